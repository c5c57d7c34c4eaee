//! Explicit eviction: [`Core::pop`] removes the value that would be evicted next, [`Core::hold_next`] acquires its key,
//! and [`Core::set_max_values`] changes the bound of a map in use.

use super::lookup::Ask;
use super::retire::Dead;
use super::shard::{Shard, Stored};
use super::slot::{Hold, Live, TypedAccess};
use super::tag::Tag;
use super::value::{Kept, Valued};
use super::values::{Busy, LOOKED_AT, tag_of};
use super::{Core, part_of};
use crate::panics::Panics;
use crate::sync::{Ordering, give_way};

/// A read under the shard lock, for a caller without a hold.
impl<K, T> Core<K, Valued<T>> {
    /// Passes the value of a key to `look`, and does not mark the value as used. Fails if the entry is in use, or if
    /// there is one and the table [has records](Self::has_records). `look` runs under the shard lock.
    #[inline]
    #[cfg_attr(any(not(feature = "std"), target_family = "wasm"), allow(dead_code))] // for blocking calls
    pub(crate) fn glance<R>(&self, key: &impl Ask<K>, look: impl FnOnce(&T) -> R) -> Result<Option<R>, Busy<()>> {
        self.shard(key.tag()).with(|shard| match shard.look_up(key.tag(), |other| key.is(other)) {
            Some(Stored::Entry(entry, _)) => match entry.unshared() {
                Some(unshared) => Ok(Some(look(unshared.value()))),
                None => Err(Busy(())),
            },
            Some(Stored::AtRest(at_rest)) => Ok(Some(look(&at_rest.value))),
            None => Ok(None),
        })
    }
}

/// The search for the next value to evict in one shard. It goes through the order four times. In the first three
/// rounds it passes over values that were used or have passes, as eviction does. In the fourth round it takes the first
/// value that is not in use, so that it ends even if other callers keep using values.
#[derive(Default)]
struct Search {
    /// The number of values in the order when the search began.
    round: Option<usize>,
    /// The number of values that the search has examined.
    looked: usize,
}

impl Search {
    /// Returns the slot of the next value to examine; `None` if the search is over.
    fn next(&mut self, kept: &Kept) -> Option<u32> {
        let sieve = &kept.bound.as_ref()?.sieve;
        let round = *self.round.get_or_insert(sieve.len());
        let number = sieve.hand().filter(|_| self.looked < 4 * round)?;
        self.looked += 1;
        Some(number)
    }

    /// Returns whether the value that is being examined is taken even if it was used, or has a pass.
    fn takes_any(&self) -> bool {
        self.round.is_some_and(|round| self.looked > 3 * round)
    }
}

enum Step<R> {
    Found(R),
    /// The search is not finished. The next step continues behind the values that this step examined.
    More,
    /// No value can be taken.
    Nothing,
}

impl<K, T> Core<K, Valued<T>> {
    /// Removes and returns the value that the next eviction of a shard would take, with its key. Passes over values
    /// whose entries have other users. Returns `None` if no value can be removed, or if values are not bounded. The
    /// shards take turns.
    pub(crate) fn pop(&self) -> Option<(K, T)> {
        if self.is_timed() {
            self.tick();
        }
        let mut dead = Dead::default();
        let popped = self.next_value(
            |entry| self.is_alone(entry),
            |shard, number| {
                // If this call is nested in sweeps, the `tick` above may have left ended values to other sweeps.
                let is_over = shard.kept.deadlines.as_ref().is_some_and(|deadlines| deadlines.is_over(number));
                let entry = shard.look_at(number).filter(|_| !is_over)?;
                let (tag, address) = (tag_of(entry), entry.address());
                let (value, claim) = self.unshared(entry)?.take();
                shard.kept.remember(tag);
                Some((self.retire_with_key(shard, tag, address, claim, &mut dead), value))
            },
        );
        // If dropping an old key panics, the unwinding drops the key and the value.
        drop(dead);
        popped
    }

    /// Acquires the key of the value that the next eviction of a shard would take, and moves on to the next value.
    /// Returns `None` if all values are in use, or if values are not bounded. The shards take turns.
    pub(crate) fn hold_next<M: TypedAccess>(&self, mode: M) -> Option<Hold<K, Valued<T>, M>> {
        if self.is_timed() {
            self.tick();
        }
        self.next_value(
            |entry| !self.is_used(entry, entry.state().word()),
            |shard, number| {
                // This fails if a future that has kept the entry acquires the key at this moment.
                let unit = shard.look_at(number)?.join(|word| word.hold(mode.access(), 1)).ok()?;
                // The caller may or may not remove the value. If it does not, the key is remembered needlessly.
                shard.kept.remember(tag_of(unit.live()));
                shard.kept.pass();
                Some(unit.into_hold(mode))
            },
        )
    }

    /// Searches the shards, which take turns, for the next value for which `is_free` returns `true` and `take`
    /// succeeds.
    fn next_value<R>(
        &self,
        is_free: impl Fn(Live<'_, K, Valued<T>>) -> bool,
        mut take: impl FnMut(&mut Shard<K, Valued<T>>, u32) -> Option<R>,
    ) -> Option<R> {
        let first = self.excess.whole()?.next.fetch_add(1, Ordering::Relaxed);
        let (before, behind) = self.shards().split_at(first % self.shards().len());
        behind.iter().chain(before).find_map(|shard| {
            let mut search = Search::default();
            loop {
                match shard.with(|shard| Self::search(shard, &mut search, &is_free, &mut take)) {
                    Step::Found(taken) => return Some(taken),
                    Step::More => give_way(),
                    Step::Nothing => return None,
                }
            }
        })
    }

    fn search<R>(
        shard: &mut Shard<K, Valued<T>>,
        search: &mut Search,
        is_free: impl Fn(Live<'_, K, Valued<T>>) -> bool,
        mut take: impl FnMut(&mut Shard<K, Valued<T>>, u32) -> Option<R>,
    ) -> Step<R> {
        for _ in 0..LOOKED_AT {
            let Some(number) = search.next(&shard.kept) else { return Step::Nothing };
            let has_pass = shard.kept.has_pass(number);
            let Some(entry) = shard.look_at(number) else { unreachable!("an entry with a value is live") };
            let is_free = is_free(entry);
            if is_free && !search.takes_any() {
                let was_used = entry.marks().take_used();
                if was_used || has_pass {
                    shard.kept.spare(was_used);
                    continue;
                }
            }
            if let Some(taken) = is_free.then(|| take(shard, number)).flatten() {
                return Step::Found(taken);
            }
            // A value in use is passed over, but not parked as in a sweep: its user might leave before the shard is
            // marked as having values to sweep, and the value would then stay parked.
            shard.kept.pass();
        }
        Step::More
    }

    /// Returns the number of values beyond the bound, or their weight beyond it; 0 if values are not bounded.
    pub(crate) fn excess(&self) -> usize {
        let Some(whole) = self.excess.whole() else { return 0 };
        if let Some(most) = self.max_weight() {
            return self.weight().saturating_sub(most).try_into().unwrap_or(usize::MAX);
        }
        let counted = whole.values.as_ref().filter(|_| !self.is_timed());
        let values = counted.map_or_else(|| self.values(), |values| values.load(Ordering::Relaxed));
        values.saturating_sub(whole.most.load(Ordering::Relaxed))
    }

    /// Returns the largest number of values in the whole table, if that is bounded.
    pub(crate) fn max_values(&self) -> Option<usize> {
        let whole = self.excess.whole().filter(|_| self.weigher().is_none());
        Some(whole?.most.load(Ordering::Relaxed))
    }

    /// Changes the largest number of values, and evicts values in excess of it, unless that is the caller's task.
    /// Returns `false`, and does nothing, if their number is not bounded.
    pub(crate) fn set_max_values(&self, n: usize) -> bool {
        let Some(whole) = self.excess.whole().filter(|_| self.weigher().is_none()) else { return false };
        let now = if whole.is_by_hand() { None } else { self.time() };
        whole.most.store(n, Ordering::Relaxed);
        if whole.is_by_hand() {
            return true; // the shards evict nothing
        }
        self.set_bounds(now, |kept, index| {
            let part = part_of(whole.most.load(Ordering::Relaxed) as u64, index, self.shards().len());
            kept.bound.iter_mut().for_each(|bound| bound.most = part as usize);
        });
        true
    }

    /// Calls `set` to set the bound of each shard, and tells the shard the time, if `now` is given. Then evicts values
    /// in excess of the bounds.
    ///
    /// `set` runs under the shard lock, and must read the new bound from where the caller has stored it: if two calls
    /// run at once, the lock orders them, and the later one reads the bound that was stored last, so all shards agree.
    pub(super) fn set_bounds(&self, now: Option<u64>, set: impl Fn(&mut Kept, usize)) {
        for (index, shard) in self.shards().iter().enumerate() {
            shard.with(|shard| {
                set(&mut shard.kept, index);
                if let (Some(now), Some(deadlines)) = (now, &mut shard.kept.deadlines) {
                    deadlines.advance(now);
                }
                shard.kept.note_excess(&self.excess, index);
            });
        }
        let mut panics = Panics::default();
        for index in 0..self.shards().len() {
            // Any tag of the shard will do. No entry has the address 0, so the sweep spares no value.
            let tag = Tag::from_bits(((index as u64) << self.shift) as u32);
            if self.exceeds(tag) {
                panics.run(|| self.sweep(tag, 0));
            }
        }
        panics.resume();
    }
}
