//! Visits of a shard that need all of its values in slots: none is at rest while such a visit lasts.

use super::Core;
use super::payload::Payload;
use crate::sync::give_way;

/// The number of buckets or slots that are examined at a time under the shard lock.
const LOOKED_AT: usize = 64;

/// A visit of a shard: while this exists, all of the shard's values are in slots.
#[must_use = "the values may come to rest again as soon as this is dropped"]
pub(super) struct Gathered<'a, K, V: Payload> {
    core: &'a Core<K, V>,
    shard: usize,
}

impl<K, V: Payload> Core<K, V> {
    /// Moves all values of a shard to slots, where they stay until the result is dropped.
    pub(super) fn gather(&self, shard: usize) -> Gathered<'_, K, V> {
        self.begin_gathering(shard);
        Gathered { core: self, shard }
    }

    /// Moves all values of a shard to slots, where they stay until [`end_gathering`](Self::end_gathering) is called.
    pub(super) fn begin_gathering(&self, shard: usize) {
        if !V::VALUES {
            return;
        }
        let shard = &self.shards()[shard];
        if !shard.with(|shard| V::resting(&mut shard.resting).is_some_and(|resting| resting.close())) {
            return;
        }
        let mut next = Some(0);
        while let Some(from) = next {
            next = shard.with(|shard| shard.promote_some(from, LOOKED_AT));
            if next.is_some() {
                give_way();
            }
        }
        // The hash table is empty now, and stays so until the visit ends, which may be never.
        let empty = shard.with(|shard| {
            let resting = V::resting(&mut shard.resting)?;
            resting.is_empty().then(|| resting.take())
        });
        drop(empty);
    }

    /// Ends a visit of a shard: the values that were moved for it come to rest again, if nobody uses them and no other
    /// visit is in progress.
    pub(super) fn end_gathering(&self, shard: usize) {
        if !V::VALUES {
            return;
        }
        let shard = &self.shards()[shard];
        let mut end = shard.with(|shard| {
            let is_due = V::resting(&mut shard.resting)?.open();
            is_due.then(|| shard.end())
        });
        while let Some(next) = end {
            end = shard.with(|shard| shard.demote_visited(next, LOOKED_AT as u32)).filter(|&end| end > 0);
            if end.is_some() {
                give_way();
            }
        }
        shard.with(|shard| V::resting(&mut shard.resting).into_iter().for_each(|resting| resting.fit()));
    }
}

impl<K, V: Payload> Drop for Gathered<'_, K, V> {
    fn drop(&mut self) {
        self.core.end_gathering(self.shard);
    }
}
