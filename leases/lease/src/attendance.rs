//! Whether a resource may have waiters or watchers, for calls that do not take the wait list's lock.
//!
//! Counts by a part of the resource's hash: one watched resource slows down only calls for resources that share its part. It may say yes
//! where there is nobody, but never no where there is somebody.

use core::hash::{BuildHasher, Hash};

use hashbrown::DefaultHashBuilder;

use crate::{
    Resource,
    sync::{
        SIEVE,
        atomic::{
            AtomicUsize,
            Ordering::{Acquire, Release, SeqCst},
        },
    },
};

/// Changed under the wait list's lock only, and read without it.
pub(crate) struct Attendance {
    hasher: DefaultHashBuilder,
    /// The number of places on the wait list.
    places: AtomicUsize,
    /// The number of them for resources with such a hash.
    by_hash: [AtomicUsize; SIEVE],
    /// Changes whenever somebody comes to wait or to watch.
    arrivals: AtomicUsize,
}

impl Attendance {
    pub(crate) fn new() -> Self {
        Attendance {
            hasher: DefaultHashBuilder::default(),
            places: AtomicUsize::new(0),
            by_hash: core::array::from_fn(|_| AtomicUsize::new(0)),
            arrivals: AtomicUsize::new(0),
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

    pub(crate) fn somebody_comes(&self) {
        self.arrivals.fetch_add(1, Release); // who counts them sees where they are
    }

    /// Whether somebody waits or watches.
    pub(crate) fn is_any(&self) -> bool {
        self.places.load(SeqCst) > 0
    }

    /// Whether this resource may have waiters or watchers.
    #[inline]
    pub(crate) fn is_at(&self, resource: &Resource) -> bool {
        self.is_any() && self.is_at_hash(resource)
    }

    #[inline(never)]
    fn is_at_hash(&self, resource: &Resource) -> bool {
        self.part(self.hash(resource)).is_none_or(|part| part.load(SeqCst) > 0)
    }

    /// The number of waiters and watchers so far, to be read before [`is_at`](Self::is_at).
    pub(crate) fn arrivals(&self) -> usize {
        self.arrivals.load(Acquire)
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
    fn who_is_at_one_resource_is_not_at_most_others() {
        let attendance = Attendance::new();
        let resources: Vec<Resource> = (0..1000).map(|n| Resource::from(format!("{n}"))).collect();
        let attended = |one: &Resource| attendance.is_at(one);
        assert!(!resources.iter().any(attended));
        attendance.add(attendance.hash(&resources[0]));
        assert!(attendance.is_at(&resources[0]));
        // Of 64 parts each, or so.
        assert!(resources.iter().filter(|one| attended(one)).count() < 100);
        attendance.remove(attendance.hash(&resources[0]));
        assert!(!resources.iter().any(attended));
    }
}
