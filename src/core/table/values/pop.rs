//! Eviction by hand: the value whose turn it is, taken out; and a bound that changes.

use super::super::lookup::Ask;
use super::super::part_of;
use super::super::retire::Dead;
use super::super::shard::Shard;
use super::super::slot::Claim;
use super::super::tag::Tag;
use super::super::value::Valued;
use super::{Busy, Core, LOOKED_AT, tag_of};
use crate::core::wait::word::{Unit, Word};
use crate::panics::Panics;
use crate::sync::{Lock, Ordering, give_way};

/// Under the shard lock, for a caller without a hold.
impl<K, T> Core<K, Valued<T>> {
    /// Looks at the value of a key, if nobody uses the entry, and does not mark it as used. `look` runs under the shard lock.
    #[inline]
    pub(crate) fn glance<R>(&self, key: &impl Ask<K>, look: impl FnOnce(&T) -> R) -> Result<Option<R>, Busy<()>> {
        self.shard(key.tag()).with(|shard| {
            let Some(entry) = shard.find(key.tag(), |other| key.is(other)) else { return Ok(None) };
            let Some(unshared) = entry.unshared() else { return Err(Busy(())) };
            Ok(Some(look(unshared.value())))
        })
    }
}

/// The search for a value to pop, in one shard. It goes round the order twice: in the first round it passes values that were used,
/// and takes their marks away, as eviction does. In the second it takes the first value that it can, so that it ends even if others
/// go on using values.
#[derive(Default)]
struct Search {
    /// The number of values in the order when the search began.
    round: Option<usize>,
    looked: usize,
}

enum Step<K, T> {
    Popped(K, T),
    /// The next step goes on behind the values of this one.
    More,
    /// There is nothing to pop.
    Nothing,
}

impl<K, T> Core<K, Valued<T>> {
    /// Takes out the key and the value that the next eviction of a shard would take, but of an entry that nobody else keeps.
    /// `None` if there is none, or if the values are not bounded. The shards take turns.
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
                    // If the drop of an old key panics, these are dropped as well.
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
            // A value in use is passed. It is not parked: who uses it may leave before anybody says that there is something to
            // sweep, and would then leave it parked.
            let free = entry.unshared().filter(|_| search.looked > round || !entry.marks().take_used());
            let Some(unshared) = free else {
                shard.kept.pass();
                continue;
            };
            let (tag, address) = (tag_of(entry), entry.address());
            let (value, claim) = unshared.take();
            let key = self.retire_popped(shard, tag, address, claim, dead);
            return Step::Popped(key, value);
        }
        Step::More
    }

    /// An entry whose value is gone dies with the claim that the value had, and its key is taken out, even if keys are recycled.
    fn retire_popped(
        &self,
        shard: &mut Shard<K, Valued<T>>,
        tag: Tag,
        address: usize,
        claim: Claim<K, Valued<T>>,
        dead: &mut Dead<K, Valued<T>>,
    ) -> K {
        self.uncount(shard, tag, address);
        let Ok(mut spare) = shard.retire(claim.into_unit(), Word::born(Unit::Claim)) else {
            unreachable!("the only unit of an entry whose shard is locked stays the only one")
        };
        let Some(key) = spare.take_key() else { unreachable!("an entry has a key") };
        self.put_away(shard, spare, dead);
        key
    }

    /// The largest number of values in all, if they are bounded.
    pub(crate) fn max_values(&self) -> Option<usize> {
        Some(self.excess.whole()?.most.load(Ordering::Relaxed))
    }

    /// Changes it, and evicts what is too much. `false` if the values are not bounded: then nothing is done.
    pub(crate) fn set_max_values(&self, n: usize) -> bool {
        let Some(whole) = self.excess.whole() else { return false };
        whole.most.store(n, Ordering::Relaxed);
        for (index, shard) in self.shards.iter().enumerate() {
            shard.with(|shard| {
                // Not `n`: of two calls at once, each reads here what was stored last, as the shard's lock has ordered them.
                let part = part_of(whole.most.load(Ordering::Relaxed), index, self.shards.len());
                shard.kept.bound.iter_mut().for_each(|bound| bound.most = part);
                shard.kept.note_excess(&self.excess, index);
            });
        }
        let mut panics = Panics::default();
        for index in 0..self.shards.len() {
            // Any tag of the shard. No entry is at this address: none is spared.
            let tag = Tag::from_bits(((index as u64) << self.shift) as u32);
            if self.exceeds(tag) {
                panics.run(|| self.sweep(tag, 0));
            }
        }
        panics.resume();
        true
    }
}
