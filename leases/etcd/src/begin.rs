//! The beginning of a tenure: its etcd lease, and the transaction that attaches its keys.

use std::{pin::pin, time::Duration};

use futures_util::future::{Either, join, select};
use keylatch_lease_remote::sleep;

use crate::{
    client::{Compare, CompareOp, Keys, Txn, TxnOp},
    error::Trouble,
    leftovers::Granted,
    lock::Changed,
    session::{Draft, Session},
    spare::Restarted,
};

/// The head start that a request for an etcd lease has over the transaction that uses that etcd lease.
const AHEAD: Duration = Duration::from_millis(10);

impl Session {
    /// Begins a tenure if the resource is free; with `is_fresh`, also if the same owner has a tenure, which then ends.
    /// If the tenure can expire, uses an etcd lease that was kept, or else requests one alongside the transaction.
    pub(crate) async fn begin(&self, new: &mut Draft<'_>, is_fresh: bool) -> Result<Changed, Trouble> {
        let now = Restarted::now(new.value.seconds);
        let spare = if new.lease == 0 { None } else { self.spare.take(now.seconds) };
        new.value.base = self.base();
        let seen = self.seen.get();
        let (mut granted, mut changed, restarted);
        if let Some((lease, before)) = spare {
            new.lease = lease;
            granted = Granted::again(&self.place.leftovers, lease);
            restarted = if before.is_long_enough() { before } else { now };
            changed = self.begin_again(&mut granted, new, is_fresh, restarted == before).await;
        } else {
            granted = Granted::new(&self.place.leftovers, new.lease);
            restarted = now;
            changed = self.begin_with(&mut granted, new, is_fresh).await;
        }
        if let Ok(Changed::Yes(at)) = &mut changed {
            // An older copy of the cluster may have the same mark, but its revisions are smaller.
            if *at <= seen {
                changed = Err(self.is_another());
            } else {
                *at = at.saturating_add(new.value.base);
            }
        }
        match &changed {
            Ok(Changed::No(_)) if granted.is_there() && self.spare.keep(new.lease, restarted) => granted.keep(),
            _ => {
                if matches!(changed, Ok(Changed::Yes(_))) && granted.is_there() {
                    self.spare.is_used(new.lease, restarted);
                }
                granted.settle(&changed);
            }
        }
        changed
    }

    /// Begins a tenure with an etcd lease that was kept. Unless enough of the etcd lease's time is left, restarts that
    /// time alongside the transaction.
    async fn begin_again(
        &self,
        granted: &mut Granted<'_>,
        new: &mut Draft<'_>,
        is_fresh: bool,
        is_long_enough: bool,
    ) -> Result<Changed, Trouble> {
        new.value.since = match self.about() {
            Some(since) => since,
            None => self.clock().await?,
        };
        granted.asked(new.resource, None);
        let ask = async { self.changed(self.ask(new.resource, self.beginning(new, is_fresh)).await?) };
        if is_long_enough {
            granted.heard();
            return ask.await;
        }
        let (is_there, changed) = join(self.restarts.restart(new.lease), ask).await;
        match (is_there, changed) {
            (Ok(true), changed) => {
                granted.heard();
                changed
            }
            // The etcd lease has ended, and the tenure with it.
            (Ok(false), Ok(Changed::Yes(_))) => Err(Trouble::NoLease),
            // The time may not have been restarted.
            (Err(Trouble::Broken(error) | Trouble::Refused(error) | Trouble::Full(error)), Ok(Changed::Yes(_))) => {
                Err(Trouble::Broken(error))
            }
            (_, changed) => changed,
        }
    }

    async fn begin_with(
        &self,
        granted: &mut Granted<'_>,
        new: &mut Draft<'_>,
        is_fresh: bool,
    ) -> Result<Changed, Trouble> {
        let (lease, seconds) = (new.lease, new.value.seconds);
        let grant = async {
            if lease != 0 {
                self.grant(lease, seconds).await?;
            }
            Ok(())
        };
        let (mut grant, ahead) = (pin!(grant), pin!(sleep(AHEAD)));
        let mut early = None;
        new.value.since = match self.about() {
            Some(since) => since,
            None => {
                let (granted, shows) = join(grant.as_mut(), self.clock()).await;
                early = Some(granted);
                shows?
            }
        };
        let txn = self.beginning(new, is_fresh);
        let ask = || async { self.changed(self.ask(new.resource, txn.clone()).await?) };
        // The transaction does not wait long for the answer to the request for the etcd lease: it only needs to arrive
        // after that request.
        let first = match early {
            Some(granted) => Ok(granted),
            None if lease == 0 => Ok(Ok(())),
            None => match select(grant, ahead).await {
                Either::Left((granted, _)) => Ok(granted),
                Either::Right(((), grant)) => Err(grant),
            },
        };
        let (is_granted, changed) = match first {
            Ok(is_granted) => {
                // Without an etcd lease the transaction is not sent.
                is_granted.map_err(|trouble| match trouble {
                    Trouble::Full(error) => Trouble::Refused(error),
                    trouble => trouble,
                })?;
                granted.heard();
                granted.asked(new.resource, None);
                return ask().await;
            }
            Err(grant) => {
                granted.asked(new.resource, None);
                let (is_granted, changed) = join(grant, ask()).await;
                if is_granted.is_ok() {
                    granted.heard();
                }
                (is_granted, changed)
            }
        };
        match (is_granted, changed) {
            // The transaction overtook the request for the etcd lease.
            (Ok(()), Err(Trouble::NoLease)) => ask().await,
            (Err(Trouble::Full(error)), Err(Trouble::NoLease)) => Err(Trouble::Refused(error)),
            (Err(trouble), Err(Trouble::NoLease)) => Err(trouble),
            (_, changed) => changed,
        }
    }

    /// Returns the transaction that begins a tenure.
    fn beginning(&self, new: &Draft<'_>, is_fresh: bool) -> Txn {
        let is_free = Compare::create_revision(Keys::prefix(self.place.lock(new.resource)), CompareOp::Equal, 0);
        let get = TxnOp::get(Keys::prefix(self.place.lock(new.resource)));
        let otherwise = if is_fresh { self.instead(new, 0, self.instead(new, 1, get)) } else { get };
        let when: Vec<_> = self.is_sound().into_iter().chain([self.is_wanted(new), is_free]).collect();
        Txn::new().when(when).and_then(self.puts(new)).or_else([otherwise])
    }

    /// Returns the condition that the etcd lease is not about to be revoked.
    pub(crate) fn is_wanted(&self, new: &Draft<'_>) -> Compare {
        Compare::create_revision(self.place.revoked(new.lease), CompareOp::Equal, 0)
    }

    /// Returns an operation that replaces the owner's tenure in this slot, if there is one, with a tenure in the other
    /// slot.
    fn instead(&self, new: &Draft<'_>, slot: u8, otherwise: TxnOp) -> TxnOp {
        let keys = self.keys(new.resource, &new.value.owner, slot);
        let is_held = keys.clone().map(|key| Compare::create_revision(key, CompareOp::Greater, 0));
        let when: Vec<_> = is_held.into_iter().chain(self.is_sound()).chain([self.is_wanted(new)]).collect();
        let deletes = keys.map(TxnOp::take);
        let puts = self.puts(&Draft { slot: 1 - slot, value: new.value.clone(), ..*new });
        let then: Vec<_> = deletes.into_iter().chain(puts).collect();
        TxnOp::txn(Txn::new().when(when).and_then(then).or_else([otherwise]))
    }
}
