//! The values at rest of a shard: see the [core's overview](crate::core#values-at-rest). Used under the shard lock.

use core::num::NonZeroU32;

use hashbrown::HashTable;

use super::shrink::{self, is_nearly_empty};
use super::tag::Tag;
use crate::sync::LOOKS_TO_REST;

/// A value at rest, with its key.
pub(super) struct AtRest<K, T> {
    pub(super) key: K,
    pub(super) value: T,
    tag: Tag,
    version: NonZeroU32,
}

/// The values at rest of a shard.
#[allow(unreachable_pub, missing_debug_implementations)] // not visible outside the crate
pub struct Resting<K, T> {
    values: HashTable<AtRest<K, T>>,
    /// The slot that was examined last in the search for values that keep mostly free chunks alive.
    hand: u32,
    /// The number of looks at values in entries since it was last a value's turn to come to rest.
    looks: u32,
    /// Whether values have been moved to slots for a visit, and have not come to rest again.
    has_visited: bool,
    /// Whether values of the table rest at all.
    is_allowed: bool,
    /// The number of visits of the shard that are in progress. Until they end, no value comes to rest.
    visits: u32,
}

impl<K, T> AtRest<K, T> {
    #[inline]
    pub(super) fn new(tag: Tag, key: K, value: T, version: NonZeroU32) -> Self {
        AtRest { key, value, tag, version }
    }

    #[inline]
    pub(super) fn tag(&self) -> Tag {
        self.tag
    }

    #[inline]
    pub(super) fn version(&self) -> u64 {
        self.version.get().into()
    }

    /// Replaces the value, and returns the old one. Fails if the next version is too large for a value at rest.
    #[inline]
    pub(super) fn write_over(&mut self, value: &mut Option<T>) -> Option<T> {
        self.version = self.version.checked_add(1)?;
        Some(core::mem::replace(&mut self.value, value.take()?))
    }
}

/// Returns a version in the form that a value at rest has; `None` if it is too large.
#[inline]
pub(super) fn small(version: u64) -> Option<NonZeroU32> {
    NonZeroU32::new(version.try_into().ok()?)
}

impl<K, T> Default for Resting<K, T> {
    fn default() -> Self {
        Resting { values: HashTable::new(), hand: 0, looks: 0, has_visited: false, is_allowed: false, visits: 0 }
    }
}

impl<K, T> Resting<K, T> {
    /// The largest size in bytes of a value at rest, with its key, tag and version. Because hash tables are up to half
    /// empty, a larger one would take more memory there than in a slot.
    const LARGEST: usize = 32;

    /// Lets the values of the shard rest, if that is worth it. Values that own something never rest: they are cloned
    /// outside the shard lock, so even `get` uses them with a hold.
    pub(super) fn allow(&mut self) {
        self.is_allowed = size_of::<AtRest<K, T>>() <= Self::LARGEST && !core::mem::needs_drop::<T>();
    }

    /// Counts a look at a value in an entry. Returns whether the value may come to rest: only one look in every
    /// [`LOOKS_TO_REST`] lets it. So a value that is often used with a hold moves rarely, and no look needs to be noted
    /// in a slot.
    #[inline]
    pub(super) fn is_turn(&mut self) -> bool {
        self.looks += 1;
        if self.looks < LOOKS_TO_REST {
            return false;
        }
        self.looks = 0;
        self.is_open()
    }

    /// Returns whether values may come to rest now.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.is_allowed && self.visits == 0
    }

    /// Keeps values from coming to rest, until the matching call of [`open`](Self::open). Returns whether values ever
    /// rest.
    pub(super) fn close(&mut self) -> bool {
        self.visits += u32::from(self.is_allowed);
        self.is_allowed
    }

    /// Undoes one [`close`](Self::close). Returns whether values may come to rest again, and have been moved for
    /// visits.
    pub(super) fn open(&mut self) -> bool {
        self.visits -= u32::from(self.is_allowed);
        self.is_open() && core::mem::take(&mut self.has_visited)
    }

    /// Notes that values have been moved for a visit, and have not come to rest again.
    pub(super) fn note_visited(&mut self) {
        self.has_visited = true;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    #[inline(always)]
    pub(super) fn find(&mut self, tag: Tag, mut eq: impl FnMut(&K) -> bool) -> Option<&mut AtRest<K, T>> {
        if self.values.is_empty() {
            return None;
        }
        self.values.find_mut(tag.bucket_hash(), |at_rest| at_rest.tag == tag && eq(&at_rest.key))
    }

    #[inline(always)]
    pub(super) fn remove(&mut self, tag: Tag, eq: impl FnMut(&K) -> bool) -> Option<AtRest<K, T>> {
        let bucket = self.bucket_of(tag, eq)?;
        self.take_at(bucket)
    }

    /// Shrinks the hash table after a burst, but not while there is a visit, which goes through the buckets.
    #[inline]
    pub(super) fn fit(&mut self) {
        if is_nearly_empty(self.values.num_buckets(), self.values.len(), shrink::KEPT) && self.visits == 0 {
            self.shrink();
        }
    }

    #[cold]
    #[inline(never)]
    fn shrink(&mut self) {
        let room = shrink::room(self.values.len(), shrink::KEPT);
        self.values.shrink_to(room, |at_rest| at_rest.tag.bucket_hash());
    }

    /// Makes room for one more value.
    #[inline]
    pub(super) fn reserve(&mut self) {
        if self.values.len() == self.values.capacity() {
            self.grow();
        }
    }

    /// Makes room: rebuilds the hash table without the tombstones of removed values, if that frees at least a quarter
    /// of it, or lets it grow. hashbrown itself would double a table that is more than half full.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let full = self.values.num_buckets() / 8 * 7;
        if self.values.len() < full / 4 * 3 {
            let mut values = HashTable::with_capacity(full);
            for at_rest in self.values.drain() {
                values.insert_unique(at_rest.tag.bucket_hash(), at_rest, |at_rest| at_rest.tag.bucket_hash());
            }
            self.values = values;
        } else {
            self.values.reserve(1, |at_rest| at_rest.tag.bucket_hash());
        }
    }

    /// Returns the number of buckets. During a visit it stays the same until the hash table is empty.
    pub(super) fn buckets(&self) -> usize {
        self.values.num_buckets()
    }

    /// Returns whether there is a value in this bucket.
    pub(super) fn has_at(&self, bucket: usize) -> bool {
        self.values.get_bucket(bucket).is_some()
    }

    /// Takes the value out of this bucket.
    pub(super) fn take_at(&mut self, bucket: usize) -> Option<AtRest<K, T>> {
        let (taken, _) = self.values.get_bucket_entry(bucket).ok()?.remove();
        self.fit();
        Some(taken)
    }

    /// Returns the bucket of a key.
    #[inline(always)]
    pub(super) fn bucket_of(&self, tag: Tag, mut eq: impl FnMut(&K) -> bool) -> Option<usize> {
        if self.values.is_empty() {
            return None;
        }
        self.values.find_bucket_index(tag.bucket_hash(), |at_rest| at_rest.tag == tag && eq(&at_rest.key))
    }

    /// Returns the number of the slot before the one that it returned last. The numbers are less than `end`; after 0 it
    /// starts again at the top.
    pub(super) fn next_down(&mut self, end: u32) -> u32 {
        self.hand = self.hand.min(end).checked_sub(1).unwrap_or(end.saturating_sub(1));
        self.hand
    }

    #[inline]
    pub(super) fn insert(&mut self, at_rest: AtRest<K, T>) {
        self.reserve();
        self.values.insert_unique(at_rest.tag.bucket_hash(), at_rest, |at_rest| at_rest.tag.bucket_hash());
    }

    /// Takes all values out, with the hash table.
    pub(super) fn take(&mut self) -> HashTable<AtRest<K, T>> {
        core::mem::take(&mut self.values)
    }
}
