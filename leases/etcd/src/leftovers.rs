//! Etcd leases that are not, or may not be, used by any tenure.
//!
//! An operation whose future is dropped, or that gets no answer, may leave such an etcd lease behind: it was granted,
//! or may have been, but the transaction that was meant to use it may have been carried out, may not have been sent, or
//! may still be under way. Revoking the etcd lease could end a tenure that its holder relies on; keeping it would be a
//! leak until it expires. So the doubt is resolved first, by a transaction that either finds the resource attached to
//! the etcd lease, or writes a mark that makes the other transaction fail, whenever it arrives.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use keylatch_lease::Resource;
use tokio::sync::Notify;

use crate::{
    error::{Error, Trouble},
    lock::{Changed, Lock},
};

/// The number of attempts to revoke an etcd lease.
const TRIES: u32 = 5;

/// The number of etcd leases that may wait to be revoked. When there are more, the oldest are dropped, and are left to
/// expire.
const MOST: usize = 1 << 16;

/// The queue of etcd leases to revoke. The connection's task revokes them; those that the queue has no room for expire.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    leases: Mutex<VecDeque<Leftover>>,
    come: Notify,
}

#[derive(Debug)]
pub(crate) struct Leftover {
    /// The ID of the etcd lease; 0 if the tenure needs none. Then only the etcd lease that the resource was attached to
    /// before may have to be revoked.
    pub(crate) lease: i64,
    /// Whether the etcd lease is known to have been granted. Otherwise it was requested, and the answer did not arrive.
    pub(crate) is_granted: bool,
    /// The doubt, if the answer to the transaction that was meant to use the etcd lease did not arrive.
    pub(crate) doubt: Option<Doubt>,
    /// The number of failed attempts.
    pub(crate) tries: u32,
}

/// The transaction that may have attached a resource to an etcd lease.
#[derive(Debug)]
pub(crate) struct Doubt {
    /// The resource that the transaction attaches.
    pub(crate) resource: Resource,
    /// The etcd lease that the resource was attached to before; 0 if it was attached to none.
    pub(crate) before: i64,
    /// The revision at which the tenure began, if the transaction moves a tenure away from that etcd lease; 0 if it
    /// begins one.
    pub(crate) created: i64,
}

impl Leftovers {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Leftover>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, lease: i64) {
        self.push(Leftover { lease, is_granted: true, doubt: None, tries: 0 });
    }

    pub(crate) fn push(&self, leftover: Leftover) {
        let before = leftover.doubt.as_ref().map_or(0, |doubt| doubt.before);
        if leftover.tries < TRIES && (leftover.lease, before) != (0, 0) {
            let mut leases = self.lock();
            if leases.len() == MOST {
                leases.pop_front();
            }
            leases.push_back(leftover);
            drop(leases);
            self.come.notify_one();
        }
    }

    pub(crate) async fn next(&self) -> Leftover {
        loop {
            let come = self.come.notified();
            if let Some(leftover) = self.lock().pop_front() {
                return leftover;
            }
            come.await;
        }
    }
}

/// An etcd lease for a tenure. When it is dropped, it becomes a leftover. If a transaction that was not answered may
/// have used it, the leftover has a doubt.
pub(crate) struct Granted<'a> {
    leftovers: &'a Leftovers,
    left: Option<Leftover>,
    lease: i64,
    /// Whether the etcd lease exists, as far as is known, and lasts long enough.
    is_there: bool,
}

impl<'a> Granted<'a> {
    /// Starts to track an etcd lease that is about to be requested; 0 means that there is none.
    pub(crate) fn new(leftovers: &'a Leftovers, lease: i64) -> Self {
        let left = Leftover { lease, is_granted: false, doubt: None, tries: 0 };
        Granted { leftovers, left: Some(left), lease, is_there: false }
    }

    /// Starts to track an etcd lease that was granted before, and is about to be used again.
    pub(crate) fn again(leftovers: &'a Leftovers, lease: i64) -> Self {
        let left = Leftover { lease, is_granted: true, doubt: None, tries: 0 };
        Granted { leftovers, left: Some(left), lease, is_there: false }
    }

    pub(crate) fn lease(&self) -> i64 {
        self.lease
    }

    /// Returns whether the etcd lease exists, as far as is known, and lasts long enough.
    pub(crate) fn is_there(&self) -> bool {
        self.is_there
    }

    /// Notes that the etcd lease was granted, that its time was restarted, or that no restart is needed.
    pub(crate) fn heard(&mut self) {
        self.is_there = self.lease != 0;
        if let Some(left) = &mut self.left {
            left.is_granted = true;
        }
    }

    /// Records that a transaction that may use the etcd lease is about to be sent.
    /// `old` is the tenure that it moves; `None` if it begins one.
    pub(crate) fn asked(&mut self, resource: &Resource, old: Option<&Lock>) {
        if let Some(left) = &mut self.left {
            let (before, created) = old.map_or((0, 0), |old| (old.lease, old.created));
            left.doubt = Some(Doubt { resource: resource.clone(), before, created });
        }
    }

    /// Keeps the etcd lease from becoming a leftover.
    pub(crate) fn keep(mut self) {
        self.left = None;
    }

    /// Notes the outcome of the transaction that was to use the etcd lease.
    pub(crate) fn settle(mut self, changed: &Result<Changed, Trouble>) {
        let Some(mut left) = self.left.take() else { return };
        match changed {
            Ok(Changed::Yes(_)) => return self.leftovers.add(left.doubt.map_or(0, |doubt| doubt.before)),
            Ok(Changed::No(_)) | Err(Trouble::NoLease | Trouble::Refused(Error::Unreadable)) => left.doubt = None,
            // The doubt remains, and is resolved later, which is cheap.
            Err(Trouble::Refused(_) | Trouble::Broken(_) | Trouble::Full(_)) => {}
        }
        self.leftovers.push(left);
    }
}

impl Drop for Granted<'_> {
    fn drop(&mut self) {
        if let Some(left) = self.left.take() {
            self.leftovers.push(left);
        }
    }
}
