//! A summary of the wait list for calls that do not take its lock: whether a resource may have waiters or watchers.
//!
//! Places are counted by a part of the resource's hash, so that one watched resource slows down only calls for
//! resources with the same part. The summary may report a place for a resource that has none, but it never misses one.

use core::hash::{BuildHasher, Hash};

use hashbrown::DefaultHashBuilder;

use crate::{
    Resource,
    sync::{
        SIEVE,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

/// The summary: changed only under the wait list's lock, and read without it.
pub(crate) struct Attendance {
    hasher: DefaultHashBuilder,
    /// The number of places on the wait list.
    places: AtomicUsize,
    /// The number of places by a part of the resource's hash.
    by_hash: [AtomicUsize; SIEVE],
}

impl Attendance {
    pub(crate) fn new() -> Self {
        Attendance {
            hasher: DefaultHashBuilder::default(),
            places: AtomicUsize::new(0),
            by_hash: core::array::from_fn(|_| AtomicUsize::new(0)),
        }
    }

    pub(crate) fn hash(&self, what: impl Hash) -> u64 {
        self.hasher.hash_one(what)
    }

    pub(crate) fn add(&self, hash: u64) {
        self.places.fetch_add(1, SeqCst);
        self.part(hash).map(|part| part.fetch_add(1, SeqCst));
    }

    pub(crate) fn remove(&self, hash: u64) {
        self.part(hash).map(|part| part.fetch_sub(1, SeqCst));
        self.places.fetch_sub(1, SeqCst);
    }

    /// Returns whether any resource has waiters or watchers.
    pub(crate) fn is_any(&self) -> bool {
        self.places.load(SeqCst) > 0
    }

    /// Returns whether this resource may have waiters or watchers.
    #[inline]
    pub(crate) fn is_at(&self, resource: &Resource) -> bool {
        self.is_any() && self.is_at_hash(resource)
    }

    #[inline(never)]
    fn is_at_hash(&self, resource: &Resource) -> bool {
        self.part(self.hash(resource)).is_none_or(|part| part.load(SeqCst) > 0)
    }

    fn part(&self, hash: u64) -> Option<&AtomicUsize> {
        self.by_hash.get(((hash >> 32) as usize).checked_rem(SIEVE)?)
    }
}

#[cfg(test)]
mod tests {
    use alloc::{format, vec::Vec};

    use super::*;

    #[test]
    fn a_waiter_of_one_resource_does_not_show_at_most_other_resources() {
        let attendance = Attendance::new();
        let resources: Vec<Resource> = (0..1000).map(|n| Resource::from(format!("{n}"))).collect();
        let attended = |one: &Resource| attendance.is_at(one);
        assert!(!resources.iter().any(attended));
        attendance.add(attendance.hash(&resources[0]));
        assert!(attendance.is_at(&resources[0]));
        // About one resource in 64 has the same part of the hash.
        assert!(resources.iter().filter(|one| attended(one)).count() < 100);
        attendance.remove(attendance.hash(&resources[0]));
        assert!(!resources.iter().any(attended));
    }
}
