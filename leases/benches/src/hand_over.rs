//! Leases and locks as candidates for the scenarios of `keylatch-benches`, whose keys are numbers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use keylatch::KeyedMutex;
use keylatch_benches::candidates::Locks;
use keylatch_lease::{Grant, Leases, Owner, Resource};

const TTL: Duration = Duration::from_secs(300);

pub struct LockOf {
    locks: KeyedMutex<Resource>,
    resource: Resource,
}

impl LockOf {
    pub fn new(resource: Resource) -> Self {
        LockOf { locks: KeyedMutex::new(), resource }
    }
}

impl Locks<u64> for LockOf {
    fn lock_blocking(&self, _: &u64) -> impl Sized {
        self.locks.lock_blocking(&self.resource)
    }

    fn lock(&self, _: &u64) -> Option<impl Future<Output = impl Send> + Send> {
        Some(self.locks.lock(&self.resource))
    }
}

/// A lease as a candidate. Consecutive requests have different owners, because a request of the same owner would not
/// have to wait.
pub struct LeaseOf {
    leases: Leases,
    resource: Resource,
    owners: [Owner; 8],
    turn: AtomicUsize,
}

impl LeaseOf {
    pub fn new(resource: Resource) -> Self {
        let owners = std::array::from_fn(|i| Owner::named(format!("worker-{i}")));
        LeaseOf { leases: Leases::in_memory(), resource, owners, turn: AtomicUsize::new(0) }
    }

    fn owner(&self) -> &Owner {
        &self.owners[self.turn.fetch_add(1, Ordering::Relaxed) % self.owners.len()]
    }
}

/// A lease that is released when this is dropped.
struct Guard<'a>(&'a Leases, Grant);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.release_now(&self.1).expect("the lease has not expired");
    }
}

impl Locks<u64> for LeaseOf {
    fn lock_blocking(&self, _: &u64) -> impl Sized {
        let grant = self.leases.acquire(self.resource.clone(), self.owner(), TTL).wait();
        Guard(&self.leases, grant.expect("the arguments are valid"))
    }

    fn lock(&self, _: &u64) -> Option<impl Future<Output = impl Send> + Send> {
        let asked = self.leases.acquire(self.resource.clone(), self.owner(), TTL);
        Some(async { Guard(&self.leases, asked.await.expect("the arguments are valid")) })
    }
}
