//! The task that revokes the etcd leases that no tenure uses: see [`leftovers`](crate::leftovers).

use std::{pin::pin, sync::Arc, time::Duration};

use futures_util::{
    future::{Either, select},
    stream::{FuturesUnordered, StreamExt},
};
use keylatch_lease::Resource;
use keylatch_lease_remote::{Limit, sleep};

use crate::{
    client::{
        Client, Compare, CompareOp, KeyValue, Keys, Txn, TxnOp,
        messages::{LeaseGrantRequest, LeaseRevokeRequest},
    },
    error::{Error, Trouble},
    leftovers::{Doubt, Leftover, Leftovers},
    place::Place,
    spare::Spare,
};

/// The greatest number of etcd leases that are revoked at the same time.
const TOGETHER: usize = 64;

/// The time limit of an attempt to revoke an etcd lease, and the pause after a failed one.
const LIMIT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_secs(1);

/// A leftover that is being revoked. If it is dropped before it was revoked, it returns to the queue.
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
    spare: Arc<Spare>,
}

impl Revoker {
    pub(crate) fn new(place: Arc<Place>, client: Client, spare: Arc<Spare>) -> Self {
        Revoker { place, client, spare }
    }

    /// Revokes leftovers until the connection is unusable.
    pub(crate) async fn run(&self) -> Error {
        let leftovers = &self.place.leftovers;
        let mut under_way = FuturesUnordered::new();
        loop {
            let event = match under_way.len() {
                0 => Either::Left(self.next().await),
                TOGETHER.. => Either::Right(under_way.next().await),
                _ => match select(pin!(self.next()), under_way.next()).await {
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

    async fn next(&self) -> Leftover {
        match select(pin!(self.place.leftovers.next()), pin!(self.spare.next())).await {
            Either::Left((next, _)) => next,
            Either::Right((lease, _)) => Leftover { lease, is_granted: true, doubt: None, tries: 0 },
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
        let Some(Doubt { resource, before, created }) = doubt else {
            if *is_granted || !self.take(*lease).await? {
                self.revoke_one(*lease).await?;
            }
            return Ok(());
        };
        let is_settled = if *lease == 0 { Ok(()) } else { self.revoke_unused(*lease, *is_granted, resource).await };
        if *before != 0 {
            match self.lease_of(resource, *created).await? {
                // The tenure has moved, and never moves back.
                Some(now) if now != *before => self.revoke_one(*before).await?,
                // There is no etcd lease to mark, and the transaction may still be under way.
                Some(_) if *lease == 0 => return Err(Trouble::NoLease),
                // If the tenure has ended, it may have ended on that etcd lease, which another tenure may use again.
                _ => {}
            }
        }
        is_settled
    }

    /// Takes the ID of an etcd lease, so that a request for it that is still under way arrives too late. The ID is
    /// taken for the shortest possible time, and then expires. Returns whether it could be taken: not if it is in use,
    /// or if etcd has no space. Must be called only if nothing that is still under way could use the etcd lease.
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

    /// Returns whether the resource has been attached to the etcd lease. If not, marks the etcd lease, so that the
    /// transaction that was meant to attach the resource fails if it is still under way.
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

    /// Returns the etcd lease of a resource's tenure, if that tenure began at this revision.
    async fn lease_of(&self, resource: &Resource, created: i64) -> Result<Option<i64>, Trouble> {
        let got = self.client.get(Keys::prefix(self.place.lock(resource))).await?;
        Ok(got.iter().find(|kv| kv.create_revision() == created).map(KeyValue::lease))
    }
}
