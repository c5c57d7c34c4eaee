//! Explicit eviction: [`Core::pop`] removes the value that would be evicted next, and [`Core::set_max_values`] changes
//! the bound of a map in use.

use super::lookup::Ask;
use super::retire::Dead;
use super::shard::Shard;
use super::tag::Tag;
use super::value::Valued;
use super::values::{Busy, LOOKED_AT, tag_of};
use super::{Core, part_of};
use crate::panics::Panics;
use crate::sync::{Lock, Ordering, give_way};

/// Reads under the shard lock, for a caller without a hold.
impl<K, T> Core<K, Valued<T>> {
    /// Passes the value of a key to `look`, if the entry is not in use, and does not mark the value as used. `look` runs
    /// under the shard lock.
    #[inline]
    #[cfg_attr(any(not(feature = "std"), target_family = "wasm"), allow(dead_code))] // for blocking calls
    pub(crate) fn glance<R>(&self, key: &impl Ask<K>, look: impl FnOnce(&T) -> R) -> Result<Option<R>, Busy<()>> {
        self.shard(key.tag()).with(|shard| {
            let Some(entry) = shard.find(key.tag(), |other| key.is(other)) else { return Ok(None) };
            let Some(unshared) = entry.unshared() else { return Err(Busy(())) };
            Ok(Some(look(unshared.value())))
        })
    }
}

/// The search for a value to pop in one shard. It goes round the order twice. In the first round it clears the marks of
/// used values and passes them, as eviction does. In the second round it takes the first value that is not in use,
/// marked or not, so that it ends even if other callers keep using values.
#[derive(Default)]
struct Search {
    /// The number of values in the order when the search began.
    round: Option<usize>,
    /// The number of values that the search has examined.
    looked: usize,
}

enum Step<K, T> {
    Popped(K, T),
    /// The search is not finished. The next step continues behind the values that this step examined.
    More,
    /// No value can be popped.
    Nothing,
}

impl<K, T> Core<K, Valued<T>> {
    /// Removes and returns the value that the next eviction of a shard would take, with its key, unless something else
    /// keeps the entry alive. Returns `None` if no value can be removed, or if values are not bounded. The shards take
    /// turns.
    pub(crate) fn pop(&self) -> Option<(K, T)> {
        let first = self.excess.whole()?.next.fetch_add(1, Ordering::Relaxed);
        let (before, behind) = self.shards.split_at(first % self.shards.len());
        behind.iter().chain(before).find_map(|shard| self.pop_of(shard))
    }

    fn pop_of(&self, shard: &Lock<Shard<K, Valued<T>>>) -> Option<(K, T)> {
        let mut search = Search::default();
        loop {
            let mut dead = Dead::default();
            match shard.with(|shard| self.search(shard, &mut search, &mut dead)) {
                Step::Popped(key, value) => {
                    // If dropping an old key panics, the unwinding drops the key and the value.
                    drop(dead);
                    return Some((key, value));
                }
                Step::More => give_way(),
                Step::Nothing => return None,
            }
        }
    }

    fn search(
        &self,
        shard: &mut Shard<K, Valued<T>>,
        search: &mut Search,
        dead: &mut Dead<K, Valued<T>>,
    ) -> Step<K, T> {
        for _ in 0..LOOKED_AT {
            let Some(bound) = &mut shard.kept.bound else { return Step::Nothing };
            let round = *search.round.get_or_insert(bound.sieve.len());
            let Some(number) = bound.sieve.hand().filter(|_| search.looked < 2 * round) else { return Step::Nothing };
            search.looked += 1;
            let Some(entry) = shard.look_at(number) else { unreachable!("an entry with a value is live") };
            // A value in use is passed, but not parked as by a sweep: its user may leave before the shard is marked as
            // having values to sweep, and the value would stay parked.
            let free = entry.unshared().filter(|_| search.looked > round || !entry.marks().take_used());
            let Some(unshared) = free else {
                shard.kept.pass();
                continue;
            };
            let (tag, address) = (tag_of(entry), entry.address());
            let (value, claim) = unshared.take();
            let key = self.retire_with_key(shard, tag, address, claim, dead);
            return Step::Popped(key, value);
        }
        Step::More
    }

    /// Returns the largest number of values in the whole table, if values are bounded.
    pub(crate) fn max_values(&self) -> Option<usize> {
        Some(self.excess.whole()?.most.load(Ordering::Relaxed))
    }

    /// Changes the largest number of values, and evicts values in excess of it. Returns `false`, and does nothing, if
    /// values are not bounded.
    pub(crate) fn set_max_values(&self, n: usize) -> bool {
        let Some(whole) = self.excess.whole() else { return false };
        whole.most.store(n, Ordering::Relaxed);
        for (index, shard) in self.shards.iter().enumerate() {
            shard.with(|shard| {
                // Not `n`: if two calls run at once, the shard's lock orders them, and the later one reads the number
                // that was stored last, so that all shards agree.
                let part = part_of(whole.most.load(Ordering::Relaxed), index, self.shards.len());
                shard.kept.bound.iter_mut().for_each(|bound| bound.most = part);
                shard.kept.note_excess(&self.excess, index);
            });
        }
        let mut panics = Panics::default();
        for index in 0..self.shards.len() {
            // Any tag of the shard will do. No entry has the address 0, so the sweep spares none.
            let tag = Tag::from_bits(((index as u64) << self.shift) as u32);
            if self.exceeds(tag) {
                panics.run(|| self.sweep(tag, 0));
            }
        }
        panics.resume();
        true
    }
}
