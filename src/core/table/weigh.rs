//! Weighing values: see [`weights`](super::weights).

use core::convert::Infallible;

use super::Core;
use super::deadlines::Deadlines;
use super::hooks::Weigher;
use super::payload::Payload;
use super::shard::Shard;
use super::slot::Live;
use super::value::{Kept, Marks, Valued};
use super::values::{Evicted, tag_of};

impl<K, V: Payload> Core<K, V> {
    /// Returns the user's function, with the bound, if values are weighed.
    #[inline]
    pub(super) fn weigher(&self) -> Option<&Weigher<K, V::Value>> {
        V::hooks(&self.hooks)?.weigher.as_ref()
    }

    /// Records the weight of a value that has been stored or changed; `None` if the user's function has panicked.
    pub(super) fn set_weight(&self, shard: &mut Shard<K, V>, entry: Live<'_, K, V>, weight: Option<u32>) {
        let number = shard.find_at(tag_of(entry), entry.address()).map(|(_, number)| number);
        let version = V::marks(entry.marks()).map(Marks::version);
        if let (Some(number), Some(version), Some(kept)) = (number, version, V::keeps(&mut shard.kept)) {
            kept.set_weight(number, version, weight);
        }
        self.note_excess(shard, tag_of(entry));
    }

    /// Evicts the value of this slot, if it alone exceeds the bound and nobody uses it.
    pub(super) fn evict_excessive(&self, shard: &mut Shard<K, V>, number: Option<u32>) -> Option<Evicted<K, V>> {
        let number = number?;
        if !V::keeps(&mut shard.kept)?.is_excessive(number) {
            return None;
        }
        let entry = shard.look_at(number)?;
        // As in other evictions: a user that leaves after this exchange sees that there is something to sweep.
        let Ok(word) = entry.state().update(Ok::<_, Infallible>);
        if !V::is_present(entry.marks()) || self.is_used(entry, word) {
            return None;
        }
        self.evict_value(shard, number)
    }

    /// Leaves an excessive value that nobody uses to the other sweeps of its shard, which do not know of it.
    pub(super) fn leave_excessive(&self, shard: &mut Shard<K, V>, number: Option<u32>) {
        let Some((entry, number)) = number.and_then(|number| Some((shard.look_at(number)?, number))) else { return };
        let idle = V::is_present(entry.marks()) && !self.is_used(entry, entry.state().word());
        V::keeps(&mut shard.kept).filter(|_| idle).into_iter().for_each(|kept: &mut Kept| kept.leave_excessive(number));
    }
}

impl<K, T> Core<K, Valued<T>> {
    /// Returns the weight of all values, added up shard by shard.
    pub(crate) fn weight(&self) -> u64 {
        if self.weigher().is_none() {
            return 0;
        }
        let now = self.time();
        let weight = |shard: &mut Shard<K, Valued<T>>| {
            shard.kept.deadlines.as_mut().map_or(0, |deadlines: &mut _| {
                now.into_iter().for_each(|now| Deadlines::advance(deadlines, now));
                deadlines.weight_of_live()
            })
        };
        self.shards.iter().map(|shard| shard.with(weight)).fold(0, u64::saturating_add)
    }

    /// Returns the largest weight of all values, if they are weighed.
    pub(crate) fn max_weight(&self) -> Option<u64> {
        self.weigher().map(Weigher::most)
    }

    /// Changes the largest weight of all values, and evicts values in excess of it, unless that is the caller's task.
    /// Returns `false`, and does nothing, if values are not weighed.
    pub(crate) fn set_max_weight(&self, most: u64) -> bool {
        let (Some(weigher), Some(whole)) = (self.weigher(), self.excess.whole()) else { return false };
        if whole.is_by_hand() {
            weigher.set_most(most);
            return true; // the shards evict nothing
        }
        let now = self.time();
        weigher.set_most(most);
        let shards = self.shards.len();
        self.set_bounds(now, |kept, index| kept.set_most_weight(part_of(weigher.most(), index, shards)));
        true
    }
}

/// Returns the part of the largest weight that a shard has.
pub(super) fn part_of(all: u64, shard: usize, shards: usize) -> u64 {
    let (shard, shards) = (shard as u64, shards as u64);
    all / shards + u64::from(shard < all % shards)
}
