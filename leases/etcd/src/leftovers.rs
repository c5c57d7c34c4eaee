//! Etcd leases on which nothing hangs any more, or perhaps nothing.
//!
//! An operation whose future is dropped, or that gets no answer, may leave one behind: it was granted, and the transaction that was to use
//! it has been made, has not been made, or is still under way. To revoke it would end a tenure that somebody relies on; to leave it would
//! be a leak for as long as it lasts. So the doubt is ended first, by a transaction that either finds that the resource hangs on it, or
//! leaves a mark with which the other transaction fails, whenever it comes.

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

/// The number of leases revoked at the same time.
const TOGETHER: usize = 64;

/// How often one is tried, and how long each try may take; and how long after one that failed the next one comes.
const TRIES: u32 = 5;
const LIMIT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_secs(1);

/// The number of leases that may wait to be revoked. The oldest, which expire first, make room.
const MOST: usize = 1 << 16;

/// The owner of the connection revokes them when it has time; otherwise they expire.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    leases: Mutex<VecDeque<Leftover>>,
    come: Notify,
}

#[derive(Debug)]
struct Leftover {
    /// 0: none; but the resource may have left another one.
    lease: i64,
    /// Whether it is or was there. Otherwise it was asked for, and nobody has heard what came of that.
    is_granted: bool,
    /// If nobody has heard what came of the transaction that was to use it.
    doubt: Option<Doubt>,
    /// The number of failed attempts.
    tries: u32,
}

/// The request for an etcd lease.
#[derive(Debug)]
struct Doubt {
    /// The resource that was to hang on it.
    resource: Resource,
    /// On which etcd lease it hung before. 0: on none.
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

/// An etcd lease for a tenure. Dropped, it is left over: with a doubt, if a transaction that has not been heard of may have used it.
pub(crate) struct Granted<'a> {
    leftovers: &'a Leftovers,
    left: Option<Leftover>,
    lease: i64,
}

impl<'a> Granted<'a> {
    /// It is about to be asked for. With 0: there is none.
    pub(crate) fn new(leftovers: &'a Leftovers, lease: i64) -> Self {
        Granted { leftovers, left: Some(Leftover { lease, is_granted: false, doubt: None, tries: 0 }), lease }
    }

    pub(crate) fn lease(&self) -> i64 {
        self.lease
    }

    /// It is there.
    pub(crate) fn heard(&mut self) {
        if let Some(left) = &mut self.left {
            left.is_granted = true;
        }
    }

    /// From now on a transaction may use it.
    pub(crate) fn asked(&mut self, resource: &Resource, before: i64) {
        if let Some(left) = &mut self.left {
            left.doubt = Some(Doubt { resource: resource.clone(), before });
        }
    }

    /// This is what came of that transaction.
    pub(crate) fn settle(mut self, changed: &Result<Changed, Trouble>) {
        let Some(mut left) = self.left.take() else { return };
        match changed {
            Ok(Changed::Yes(_)) => return self.leftovers.add(left.doubt.map_or(0, |doubt| doubt.before)),
            Ok(Changed::No(_)) | Err(Trouble::NoLease | Trouble::Refused(Error::Unreadable)) => left.doubt = None,
            // To look is cheap.
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

/// One that is being revoked. Dropped, it is left over as before.
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

/// The task that revokes them.
pub(crate) struct Revoker {
    place: Arc<Place>,
    client: Client,
}

impl Revoker {
    pub(crate) fn new(place: Arc<Place>, client: Client) -> Self {
        Revoker { place, client }
    }

    /// Until the connection is of no use any more.
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

    /// Fails if the connection has.
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
                return Err(Trouble::NoLease); // there is nothing to mark, and the transaction may still be under way
            }
        }
        is_settled
    }

    /// Takes the ID of an etcd lease, so that a request for it that is still under way comes too late: for the shortest time, and then it expires.
    /// Whether it was free. Only if nothing that is still under way could come to hang on it.
    async fn take(&self, lease: i64) -> Result<bool, Trouble> {
        match self.client.call(LeaseGrantRequest { ttl: 1, id: lease }).await.map_err(Trouble::from) {
            Ok(_) => Ok(true),
            Err(Trouble::Refused(_) | Trouble::Full(_)) => Ok(false),
            Err(trouble) => Err(trouble),
        }
    }

    /// Revokes an etcd lease unless a resource has come to hang on it.
    async fn revoke_unused(&self, lease: i64, is_granted: bool, resource: &Resource) -> Result<(), Trouble> {
        match self.is_used(lease, resource).await {
            Ok(true) => Ok(()),
            Ok(false) => self.revoke_one(lease).await,
            // Otherwise the request for it may still be under way.
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

    /// Whether a resource has come to hang on the etcd lease. If not it never will: the transaction that was to do it may still be under way, and
    /// fails.
    async fn is_used(&self, lease: i64, resource: &Resource) -> Result<bool, Trouble> {
        let (lock, mark) = (self.place.lock(resource), self.place.revoked(lease));
        // This also holds if there is no key.
        let is_unused = Compare::lease(Keys::prefix(lock), CompareOp::NotEqual, lease);
        let put = TxnOp::put_with_lease(mark.clone(), "", lease);
        match self.client.txn(Txn::new().when([is_unused]).and_then([put])).await.map_err(Trouble::from) {
            Ok(answer) => Ok(!answer.succeeded()),
            // The mark may be there all the same.
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
