//! Sweeps: a user that leaves an entry disposes of values that have ended, or that exceed the bound.
//!
//! Disposing of a value calls user code, which may use the same shard, and so sweep again. To prevent a recursion for
//! each value, the number of nested sweeps of a thread is limited; a deeper one leaves its part to the others. Nothing
//! is forgotten: a sweep is counted among its shard's sweeps from when it finds something to do until it finds nothing
//! more to do. Each time it looks and counts without releasing the shard lock in between.
//!
//! An inner sweep does not leave everything to the outer one. Suppose that a user function uses the map whenever it is
//! called, except when that call comes from within such a use. Values that have to go because of a use must then be
//! handed to the function before that use ends. If the outer sweep handed them over afterwards, the function would use
//! the map again, and so on without end.
//!
//! However many threads already dispose of values of a shard, and however slowly, another thread that leaves an entry
//! sweeps, too. Otherwise it could store values faster than the others dispose of them. (There are limits, which are
//! documented at `max_values`.)

use super::Core;
use super::counters::Event;
use super::payload::Payload;
use super::shard::Shard;
use super::slot::Live;
use super::tag::Tag;
use super::values::{Evicted, Eviction};
use crate::evicted::Evicted as Cause;
use crate::panics::Panics;
use crate::sync::{deeper, depth, give_way};

/// The number of ended values that a call disposes of besides its own work, at most; for the exceptions see
/// [`Core::take_ended`].
const IN_PASSING: usize = 3;

/// The number of nested disposals of a thread at which a sweep leaves its part to another sweep of the shard. So this
/// many maps can store their evicted values in each other.
const DEEPEST: usize = 4;

/// Returns whether a sweep leaves its part to the shard's other sweeps, of which there are this many.
fn is_too_deep(others: u8) -> bool {
    if others == 0 {
        return false; // usually, and without asking for the depth
    }
    match depth() {
        Some(depth) => others == u8::MAX || depth >= DEEPEST,
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
    /// The number of ended values that may still be disposed of. `None`: all of them, and no other values, unless
    /// another sweep has left such values to this one.
    most: Option<usize>,
    /// Whether the sweep counts as one of the shard's sweeps.
    is_counted: bool,
    /// Whether the sweep has left its part to the others.
    leaves: bool,
}

/// The work of a sweep with no lock held, before it looks again.
enum Step<K, V: Payload> {
    Dispose(Evicted<K, V>, Cause),
    More,
    Nothing,
}

impl<K, V: Payload> Core<K, V> {
    /// Sweeps after a user has left the entry at this address. If the entry still exists and its value is unused, the
    /// value returns to the order of eviction. Then a few values that have ended are disposed of, and unused values are
    /// evicted while there are too many.
    pub(super) fn sweep(&self, tag: Tag, address: usize) {
        let mut panics = Panics::default();
        self.sweep_with(tag, address, Some(IN_PASSING), &mut panics);
        panics.resume();
    }

    /// Disposes of all values of a shard that have ended, or leaves them to other sweeps. Returns whether it has left
    /// them. Any tag of the shard will do.
    pub(super) fn sweep_ended(&self, tag: Tag, panics: &mut Panics) -> bool {
        self.sweep_with(tag, 0, None, panics) // no entry has the address 0
    }

    /// Sweeps, and returns whether it has left its part to others.
    fn sweep_with(&self, tag: Tag, address: usize, most: Option<usize>, panics: &mut Panics) -> bool {
        let mut sweep = Sweep { core: self, tag, address, most, is_counted: false, leaves: false };
        let first = self.shard(tag).with(|shard| sweep.next(shard));
        sweep.finish(first, panics)
    }

    /// Calls `leave`, under the shard lock, to leave the entry at this address. `leave` returns the number of the
    /// entry's slot if it has done so. In that case, sweeps if there is anything to sweep, beginning under the same
    /// lock. Returns whether the entry has been left.
    pub(super) fn leave_and_sweep(
        &self,
        tag: Tag,
        address: usize,
        leave: impl FnOnce(&mut Shard<K, V>) -> Option<u32>,
        panics: &mut Panics,
    ) -> bool {
        let mut sweep = Sweep { core: self, tag, address, most: Some(IN_PASSING), is_counted: false, leaves: false };
        let mut first = None;
        let has_left = self.shard(tag).with(|shard| {
            let Some(number) = leave(shard) else { return false };
            if !self.is_clean(shard, number) {
                first = Some(sweep.next_at(shard, Some(number)));
            }
            true
        });
        if let Some(first) = first {
            sweep.finish(first, panics);
        }
        has_left
    }

    /// Returns whether there is certainly nothing to sweep, for a user that has just left the entry in this slot.
    fn is_clean(&self, shard: &mut Shard<K, V>, number: u32) -> bool {
        let has_value = |entry: Live<'_, K, V>| V::is_present(entry.marks());
        shard.look_at(number).is_some_and(has_value)
            && V::parted(&mut shard.parted).is_none_or(|parted| parted.is_none())
            && V::keeps(&mut shard.kept).is_none_or(|kept| kept.bound.is_none() && !kept.has_ended())
    }
}

impl<K, V: Payload> Sweep<'_, K, V> {
    /// Does the work of this step and of all that follow, and returns whether the sweep has left its part to others.
    fn finish(&mut self, mut step: Step<K, V>, panics: &mut Panics) -> bool {
        loop {
            match step {
                Step::Dispose(value, cause) => {
                    if cause == Cause::Size {
                        self.core.count(self.tag, Event::EvictedForSize);
                    }
                    deeper(|| self.core.dispose(value, cause, panics));
                }
                Step::More => give_way(),
                Step::Nothing => return self.leaves,
            }
            step = self.core.shard(self.tag).with(|shard| self.next(shard));
        }
    }

    fn next(&mut self, shard: &mut Shard<K, V>) -> Step<K, V> {
        let number = shard.find_at(self.tag, self.address).map(|(_, number)| number);
        self.next_at(shard, number)
    }

    /// Finds the next step. The entry that a user has left is in the slot with this number, if it still exists.
    fn next_at(&mut self, shard: &mut Shard<K, V>, number: Option<u32>) -> Step<K, V> {
        self.core.unpark(shard, number);
        self.core.note_excess(shard, self.tag);
        if !self.is_counted && V::keeps(&mut shard.kept).is_some_and(|kept| is_too_deep(kept.sweeps)) {
            return self.leave(shard, number);
        }
        let step = self.look(shard, number);
        self.count(shard, !matches!(step, Step::Nothing));
        step
    }

    /// Counts this sweep among the shard's sweeps if `counts` is set; otherwise stops counting it.
    fn count(&mut self, shard: &mut Shard<K, V>, counts: bool) {
        let Some(kept) = V::keeps(&mut shard.kept) else { return };
        kept.sweeps = kept.sweeps - u8::from(self.is_counted) + u8::from(counts);
        self.is_counted = counts;
    }

    /// Leaves everything to the shard's other sweeps.
    fn leave(&mut self, shard: &mut Shard<K, V>, number: Option<u32>) -> Step<K, V> {
        self.leaves = true;
        match self.most {
            Some(_) => V::keeps(&mut shard.kept).into_iter().for_each(|kept| kept.is_left = true),
            // The values stay where they are: there may be many.
            None => self.core.leave_all_ended(shard),
        }
        self.core.leave_excessive(shard, number);
        self.core.note_excess(shard, self.tag);
        match self.core.leave_ended(shard, number) {
            // No other sweep knows of the rest of the entry.
            Eviction::Done(rest) => Step::Dispose(rest, Cause::Expired),
            Eviction::More => Step::More,
            Eviction::Nothing => Step::Nothing,
        }
    }

    /// Finds the next value to dispose of: one that has ended, if possible.
    fn look(&mut self, shard: &mut Shard<K, V>, number: Option<u32>) -> Step<K, V> {
        match self.core.take_ended(shard, number, &mut self.most) {
            Eviction::Done(ended) => return Step::Dispose(ended, Cause::Expired),
            Eviction::More => return Step::More,
            Eviction::Nothing => {}
        }
        if self.most.is_none() && !V::keeps(&mut shard.kept).is_some_and(|kept| kept.is_left) {
            return Step::Nothing;
        }
        let evicted = self.core.evict(shard, number);
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
        // A sweep is still counted here only after a panic that was not caught: without `std`, none is caught.
        if self.is_counted {
            self.core.shard(self.tag).with(|shard| self.count(shard, false));
        }
    }
}
