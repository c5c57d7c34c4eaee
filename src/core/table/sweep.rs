//! Sweeps: a user that leaves an entry disposes of values that have ended, or are too many.
//!
//! Disposing of a value calls code of the user, which may use the same shard, and so sweep again. So that this does not
//! recurse for each value, the number of nested sweeps of a thread is limited; a deeper one leaves its part to the
//! others. Nothing is forgotten: a sweep counts as one of its shard's from the moment when it finds something to do,
//! and until it finds nothing more to do under the same lock.
//!
//! An inner sweep does not leave everything to the outer one, because of functions that use the map only if they are
//! not called from within their own use of it. Such a function must be called within that use for the values that the
//! use leaves behind. If the outer sweep called it afterwards, the function would use the map again, and so on without
//! end.
//!
//! However many threads dispose of values of a shard, and however slowly, another one sweeps, too: otherwise it could
//! store values faster than these dispose of them. (There are limits, which are documented at `max_values`.)

use super::Core;
use super::counters::Event;
use super::payload::Payload;
use super::shard::Shard;
use super::tag::Tag;
use super::values::{Evicted, Eviction};
use crate::evicted::Evicted as Cause;
use crate::panics::Panics;
use crate::sync::{deeper, depth, give_way};

/// The number of ended values that a call disposes of besides its own work.
const IN_PASSING: usize = 3;

/// With this many nested disposals of a thread, a sweep leaves its part to another sweep of the shard. So this many
/// maps can store in each other the values that they evict.
const DEEPEST: usize = 4;

/// Returns whether a sweep of a shard that has this many others leaves its part to them.
fn is_too_deep(others: u8) -> bool {
    match depth() {
        Some(depth) => others > 0 && (others == u8::MAX || depth >= DEEPEST),
        // All of the others may be sweeps of the same thread.
        None => others > 1,
    }
}

/// A sweep of a shard.
struct Sweep<'a, K, V: Payload> {
    core: &'a Core<K, V>,
    /// The entry that a user has left.
    tag: Tag,
    address: usize,
    /// How many more ended values are disposed of; `None` if all are, and only these.
    most: Option<usize>,
    /// Whether it is one of the shard's sweeps.
    is_counted: bool,
    /// Whether it has left its part to the others.
    leaves: bool,
}

/// The work of a sweep with no lock held, before it looks again.
enum Step<K, V: Payload> {
    Dispose(Evicted<K, V>, Cause),
    More,
    Nothing,
}

impl<K, V: Payload> Core<K, V> {
    /// Sweeps after a user has left the entry at this address: if the entry still exists and its value is unused, the
    /// value returns to the order; a few values that have ended are disposed of; then unused values are evicted while
    /// there are too many.
    pub(super) fn sweep(&self, tag: Tag, address: usize) {
        let mut panics = Panics::default();
        self.sweep_with(tag, address, Some(IN_PASSING), &mut panics);
        panics.resume();
    }

    /// Disposes of all values of a shard that have ended, or leaves them to other sweeps. Returns whether it does that.
    /// Any tag of the shard will do.
    pub(super) fn sweep_ended(&self, tag: Tag, panics: &mut Panics) -> bool {
        self.sweep_with(tag, 0, None, panics) // no entry has the address 0
    }

    /// Sweeps, and returns whether it has left its part to others.
    fn sweep_with(&self, tag: Tag, address: usize, most: Option<usize>, panics: &mut Panics) -> bool {
        let mut sweep = Sweep { core: self, tag, address, most, is_counted: false, leaves: false };
        loop {
            match self.shard(tag).with(|shard| sweep.next(shard)) {
                Step::Dispose(value, cause) => {
                    if cause == Cause::Size {
                        self.count(tag, Event::EvictedForSize);
                    }
                    deeper(|| self.dispose(value, cause, panics));
                }
                Step::More => give_way(),
                Step::Nothing => return sweep.leaves,
            }
        }
    }
}

impl<K, V: Payload> Sweep<'_, K, V> {
    fn next(&mut self, shard: &mut Shard<K, V>) -> Step<K, V> {
        self.core.unpark(shard, self.tag, self.address);
        self.core.note_excess(shard, self.tag);
        if !self.is_counted && V::keeps(&mut shard.kept).is_some_and(|kept| is_too_deep(kept.sweeps)) {
            return self.leave(shard);
        }
        let step = self.look(shard);
        self.count(shard, !matches!(step, Step::Nothing));
        step
    }

    /// Counts this sweep among the shard's, or no longer, if that changes anything.
    fn count(&mut self, shard: &mut Shard<K, V>, counts: bool) {
        let Some(kept) = V::keeps(&mut shard.kept) else { return };
        kept.sweeps = kept.sweeps - u8::from(self.is_counted) + u8::from(counts);
        self.is_counted = counts;
    }

    /// Leaves everything to the shard's other sweeps.
    fn leave(&mut self, shard: &mut Shard<K, V>) -> Step<K, V> {
        self.leaves = true;
        match self.most {
            Some(_) => V::keeps(&mut shard.kept).into_iter().for_each(|kept| kept.is_left = true),
            // The values stay where they are: there may be many.
            None => self.core.leave_all_ended(shard),
        }
        let number = shard.find_at(self.tag, self.address).map(|(_, number)| number);
        self.core.leave_excessive(shard, number);
        self.core.note_excess(shard, self.tag);
        match self.core.leave_ended(shard, self.tag, self.address) {
            // Nobody else knows the rest.
            Eviction::Done(rest) => Step::Dispose(rest, Cause::Expired),
            Eviction::More => Step::More,
            Eviction::Nothing => Step::Nothing,
        }
    }

    /// Finds the next value to dispose of: one that has ended, if possible.
    fn look(&mut self, shard: &mut Shard<K, V>) -> Step<K, V> {
        match self.core.take_ended(shard, self.tag, self.address, &mut self.most) {
            Eviction::Done(ended) => return Step::Dispose(ended, Cause::Expired),
            Eviction::More => return Step::More,
            Eviction::Nothing => {}
        }
        if self.most.is_none() && !V::keeps(&mut shard.kept).is_some_and(|kept| kept.is_left) {
            return Step::Nothing;
        }
        let evicted = self.core.evict(shard, self.tag, self.address);
        self.core.note_excess(shard, self.tag);
        match evicted {
            Eviction::Done(evicted) => Step::Dispose(evicted, Cause::Size),
            Eviction::More => Step::More,
            Eviction::Nothing => {
                V::keeps(&mut shard.kept).into_iter().for_each(|kept| kept.is_left = false);
                Step::Nothing
            }
        }
    }
}

impl<K, V: Payload> Drop for Sweep<'_, K, V> {
    fn drop(&mut self) {
        // Only a panic that is not caught ends a sweep that is counted: without `std` none is caught.
        if self.is_counted {
            self.core.shard(self.tag).with(|shard| self.count(shard, false));
        }
    }
}
