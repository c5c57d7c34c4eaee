//! Etcd leases that no tenure uses any more, or that perhaps none uses.
//!
//! An operation whose future is dropped, or that gets no answer, may leave one behind: it was granted, but the
//! transaction that was to use it may have been carried out, may not have been sent, or may still be under way.
//! Revoking the etcd lease could end a tenure that its holder relies on; keeping it would be a leak until it expires.
//! So the doubt is resolved first, by a transaction that either finds the resource attached to the etcd lease, or
//! writes a mark that makes the other transaction fail, whenever it arrives.

use std::{
    collections::VecDeque,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::{
    future::{Either, select},
    stream::{FuturesUnordered, StreamExt},
};
use keylatch_lease::Resource;
use keylatch_lease_remote::{Limit, sleep};
use tokio::sync::Notify;

use crate::{
    client::{
        Client, Compare, CompareOp, Keys, Txn, TxnOp,
        messages::{LeaseGrantRequest, LeaseRevokeRequest},
    },
    error::{Error, Trouble},
    lock::Changed,
    place::Place,
};

/// The number of etcd leases that are revoked at the same time.
const TOGETHER: usize = 64;

/// The number of attempts to revoke an etcd lease, the time limit of each, and the pause after a failed one.
const TRIES: u32 = 5;
const LIMIT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_secs(1);

/// The number of etcd leases that may wait to be revoked. When there are more, the oldest, which expire first, are
/// dropped.
const MOST: usize = 1 << 16;

/// The queue of etcd leases to revoke. The connection's task revokes them; the others expire.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    leases: Mutex<VecDeque<Leftover>>,
    come: Notify,
}

#[derive(Debug)]
struct Leftover {
    /// The ID of the etcd lease; 0 if there is none and only the one that the resource used before may be unused.
    lease: i64,
    /// Whether the etcd lease is known to have been granted. Otherwise it was requested, and the answer did not arrive.
    is_granted: bool,
    /// The doubt, if the answer to the transaction that was to use the etcd lease did not arrive.
    doubt: Option<Doubt>,
    /// The number of failed attempts.
    tries: u32,
}

/// The transaction that may have attached a resource to an etcd lease.
#[derive(Debug)]
struct Doubt {
    /// The resource that was to be attached.
    resource: Resource,
    /// The etcd lease that the resource was attached to before; 0 if it was attached to none.
    before: i64,
}

impl Leftovers {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Leftover>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, lease: i64) {
        self.push(Leftover { lease, is_granted: true, doubt: None, tries: 0 });
    }

    fn push(&self, leftover: Leftover) {
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

    async fn next(&self) -> Leftover {
        loop {
            let come = self.come.notified();
            if let Some(leftover) = self.lock().pop_front() {
                return leftover;
            }
            come.await;
        }
    }
}

/// An etcd lease for a tenure. When it is dropped it becomes a leftover: with a doubt, if a transaction without an
/// answer may have used it.
pub(crate) struct Granted<'a> {
    leftovers: &'a Leftovers,
    left: Option<Leftover>,
    lease: i64,
}

impl<'a> Granted<'a> {
    /// Starts to track an etcd lease that is about to be requested; 0 means that there is none.
    pub(crate) fn new(leftovers: &'a Leftovers, lease: i64) -> Self {
        Granted { leftovers, left: Some(Leftover { lease, is_granted: false, doubt: None, tries: 0 }), lease }
    }

    pub(crate) fn lease(&self) -> i64 {
        self.lease
    }

    /// Notes that the etcd lease was granted.
    pub(crate) fn heard(&mut self) {
        if let Some(left) = &mut self.left {
            left.is_granted = true;
        }
    }

    /// Notes that a transaction which may use the etcd lease is about to be sent.
    pub(crate) fn asked(&mut self, resource: &Resource, before: i64) {
        if let Some(left) = &mut self.left {
            left.doubt = Some(Doubt { resource: resource.clone(), before });
        }
    }

    /// Notes the outcome of that transaction.
    pub(crate) fn settle(mut self, changed: &Result<Changed, Trouble>) {
        let Some(mut left) = self.left.take() else { return };
        match changed {
            Ok(Changed::Yes(_)) => return self.leftovers.add(left.doubt.map_or(0, |doubt| doubt.before)),
            Ok(Changed::No(_)) | Err(Trouble::NoLease | Trouble::Refused(Error::Unreadable)) => left.doubt = None,
            // The doubt remains: it is cheap to resolve.
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

/// A leftover that is being revoked. When it is dropped before that is done, it returns to the queue.
struct InHand<'a> {
    leftovers: &'a Leftovers,
    left: Option<Leftover>,
}

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        if let Some(left) = self.left.take() {
            self.leftovers.push(left);
        }
    }
}

/// The task that revokes the leftovers.
pub(crate) struct Revoker {
    place: Arc<Place>,
    client: Client,
}

impl Revoker {
    pub(crate) fn new(place: Arc<Place>, client: Client) -> Self {
        Revoker { place, client }
    }

    /// Revokes leftovers until the connection is unusable.
    pub(crate) async fn run(&self, leftovers: &Leftovers) -> Error {
        let mut under_way = FuturesUnordered::new();
        loop {
            let event = match under_way.len() {
                0 => Either::Left(leftovers.next().await),
                TOGETHER.. => Either::Right(under_way.next().await),
                _ => match select(pin!(leftovers.next()), under_way.next()).await {
                    Either::Left((next, _)) => Either::Left(next),
                    Either::Right((tried, _)) => Either::Right(tried),
                },
            };
            match event {
                Either::Left(left) => under_way.push(self.try_one(InHand { leftovers, left: Some(left) })),
                Either::Right(Some(Err(error))) => return error,
                Either::Right(_) => {}
            }
        }
    }

    /// Tries to revoke one leftover. Fails only if the connection has failed.
    async fn try_one(&self, mut hand: InHand<'_>) -> Result<(), Error> {
        let Some(left) = &mut hand.left else { return Ok(()) };
        let tried = Limit::after(LIMIT).of(self.revoke(left)).await;
        left.tries += 1;
        match tried {
            Some(Ok(())) => hand.left = None,
            Some(Err(Trouble::Broken(error))) => return Err(error),
            Some(Err(_)) => sleep(PAUSE).await,
            None => {}
        }
        Ok(())
    }

    async fn revoke(&self, Leftover { lease, is_granted, doubt, .. }: &Leftover) -> Result<(), Trouble> {
        let Some(Doubt { resource, before }) = doubt else {
            if *is_granted || !self.take(*lease).await? {
                self.revoke_one(*lease).await?;
            }
            return Ok(());
        };
        let is_settled = if *lease == 0 { Ok(()) } else { self.revoke_unused(*lease, *is_granted, resource).await };
        // A key that was detached from an etcd lease is never attached to it again.
        if *before != 0 {
            if !self.hangs_on(*before, resource).await? {
                self.revoke_one(*before).await?;
            } else if *lease == 0 {
                return Err(Trouble::NoLease); // there is no etcd lease to mark, and the transaction may still be under way
            }
        }
        is_settled
    }

    /// Takes the ID of an etcd lease, so that a request for it that is still under way arrives too late. It is taken
    /// for the shortest time, and then expires. Returns whether the ID was free. It may be called only if nothing that
    /// is still under way could use the etcd lease.
    async fn take(&self, lease: i64) -> Result<bool, Trouble> {
        match self.client.call(LeaseGrantRequest { ttl: 1, id: lease }).await.map_err(Trouble::from) {
            Ok(_) => Ok(true),
            Err(Trouble::Refused(_) | Trouble::Full(_)) => Ok(false),
            Err(trouble) => Err(trouble),
        }
    }

    /// Revokes an etcd lease unless a resource has been attached to it.
    async fn revoke_unused(&self, lease: i64, is_granted: bool, resource: &Resource) -> Result<(), Trouble> {
        match self.is_used(lease, resource).await {
            Ok(true) => Ok(()),
            Ok(false) => self.revoke_one(lease).await,
            // If it was not granted, the request for it may still be under way.
            Err(Trouble::NoLease) if is_granted => Ok(()),
            Err(trouble) => Err(trouble),
        }
    }

    async fn revoke_one(&self, lease: i64) -> Result<(), Trouble> {
        match self.client.call(LeaseRevokeRequest { id: lease }).await.map_err(Trouble::from) {
            Ok(_) | Err(Trouble::NoLease) => Ok(()),
            Err(trouble) => Err(trouble),
        }
    }

    /// Returns whether a resource has been attached to the etcd lease. If not, it never will be: the transaction that
    /// was to attach it may still be under way, and will fail.
    async fn is_used(&self, lease: i64, resource: &Resource) -> Result<bool, Trouble> {
        let (lock, mark) = (self.place.lock(resource), self.place.revoked(lease));
        // This condition also holds if there is no key.
        let is_unused = Compare::lease(Keys::prefix(lock), CompareOp::NotEqual, lease);
        let put = TxnOp::put_with_lease(mark.clone(), "", lease);
        match self.client.txn(Txn::new().when([is_unused]).and_then([put])).await.map_err(Trouble::from) {
            Ok(answer) => Ok(!answer.succeeded()),
            // The mark may have been written despite the error.
            Err(Trouble::Full(error)) => {
                let marks = self.client.get(mark).await?;
                if marks.is_empty() { Err(Trouble::Full(error)) } else { Ok(false) }
            }
            Err(trouble) => Err(trouble),
        }
    }

    async fn hangs_on(&self, lease: i64, resource: &Resource) -> Result<bool, Trouble> {
        let got = self.client.get(Keys::prefix(self.place.lock(resource))).await?;
        Ok(got.iter().any(|kv| kv.lease() == lease))
    }
}
