//! The check whether the cluster may have forgotten leases of the namespace.
//!
//! Each transaction that begins a tenure compares the revision of the mark's key. When the cluster may have forgotten
//! something, a new mark is written with a greater base of tokens. Together with the mark, a key is written that is
//! attached to an etcd lease: nothing is granted until that etcd lease has expired.

use std::{
    sync::{Arc, PoisonError},
    time::{Duration, SystemTime},
};

use crate::{
    client::{Compare, CompareOp, Txn, TxnOp, messages::StatusRequest},
    error::{Error, Trouble},
    lock::seconds,
    mark::{Before, Mark},
    place::Place,
    session::Session,
};

impl Place {
    /// Returns the difference between tokens and revisions, as the last connection knew it.
    pub(crate) fn base(&self) -> i64 {
        let before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        before.as_ref().map_or(0, |before| before.mark.base)
    }

    /// Returns an upper bound of all tokens that the last connection knew.
    fn greatest(&self) -> i64 {
        let before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        before.as_ref().map_or(0, |before| before.mark.base.saturating_add(before.seen.get()))
    }
}

/// The answer to a read of the mark.
struct Found {
    revision: i64,
    cluster: u64,
    mark: Option<Mark>,
}

/// The reason that a tenure cannot begin although the resource is free.
pub(crate) enum Standing {
    /// There is no such reason: the conditions hold.
    Sound,
    Quarantined(Duration),
}

/// Returns whether a mark was certainly not written, so that the etcd lease of its quarantine can be revoked. If the
/// transaction has no answer, it may have been carried out, or may yet be. Revoking the etcd lease could then end the
/// quarantine too early, so it is left to expire.
fn is_unused(is_written: &Result<bool, Trouble>) -> bool {
    match is_written {
        Ok(is_written) => !is_written,
        Err(Trouble::Refused(_) | Trouble::NoLease) => true,
        Err(Trouble::Broken(_) | Trouble::Full(_)) => false,
    }
}

/// Returns the microseconds since 1970, by the clock of this process.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(0)
}

impl Session {
    pub(crate) fn known_mark(&self) -> Option<Mark> {
        self.mark.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the difference between tokens and revisions.
    pub(crate) fn base(&self) -> i64 {
        self.known_mark().map_or(0, |mark| mark.base)
    }

    async fn find_mark(&self) -> Result<Found, Trouble> {
        let got = self.client.range(self.place.mark()).await?;
        let mark = match got.kvs.first() {
            Some(kv) => Some(Mark::parse(kv).ok_or(Trouble::Refused(Error::Unreadable))?),
            None => None,
        };
        let cluster = got.header.as_ref().map_or(0, |header| header.cluster_id);
        Ok(Found { revision: got.revision(), cluster, mark })
    }

    /// Checks whether the cluster may have forgotten something. If so, writes a new mark, and nothing is granted until
    /// every earlier lease has ended.
    pub(crate) async fn recall(&self) -> Result<(), Trouble> {
        loop {
            let Found { revision, cluster, mark } = self.find_mark().await?;
            // The log's index is read after the revision, so this difference is at least the one at that revision.
            let ahead = self.applied().await?.saturating_sub(revision);
            let has_gone_back = |mark: &Mark| {
                let before = self.place.before.lock().unwrap_or_else(PoisonError::into_inner);
                before.as_ref().is_some_and(|before| before.mark == *mark && revision < before.seen.get())
            };
            let is_same = |mark: &Mark| mark.cluster == cluster && mark.ahead <= ahead && !has_gone_back(mark);
            match mark {
                Some(mark) if is_same(&mark) => {
                    self.seen.sees(revision);
                    let known = Before { mark: mark.clone(), seen: Arc::clone(&self.seen) };
                    *self.place.before.lock().unwrap_or_else(PoisonError::into_inner) = Some(known);
                    *self.mark.lock().unwrap_or_else(PoisonError::into_inner) = Some(mark);
                    return Ok(());
                }
                found => self.write_mark(found).await?,
            }
        }
    }

    /// Returns the index of the last entry of the log that the node has applied.
    async fn applied(&self) -> Result<i64, Trouble> {
        let applied = self.client.call(StatusRequest {}).await?.raft_applied_index;
        Ok(i64::try_from(applied).unwrap_or(i64::MAX))
    }

    /// Writes a mark and begins a quarantine, unless another program has written a mark since `found` was read.
    async fn write_mark(&self, found: Option<Mark>) -> Result<(), Trouble> {
        // The log's index is read before the revision, so this difference is at most the one at that revision. With a
        // greater one in the mark, this cluster would later be taken for one whose log has begun again.
        let applied = self.applied().await?;
        let Found { revision, cluster, .. } = self.find_mark().await?;
        let ahead = applied.saturating_sub(revision);
        let least = found.as_ref().map_or(0, |mark| mark.base.saturating_add(revision)).max(self.place.greatest());
        let base = now().max(least.saturating_add(1));
        let mark = Mark { cluster, ahead, base, modified: 0 };
        let (id, _) = self.grant(0, self.place.quarantine).await?;
        let modified = found.map_or(0, |mark| mark.modified);
        let is_it = Compare::mod_revision(self.place.mark(), CompareOp::Equal, modified);
        let puts =
            [TxnOp::put(self.place.mark(), mark.to_text()), TxnOp::put_with_lease(self.place.in_quarantine(), "", id)];
        let answer = self.client.txn(Txn::new().when([is_it]).and_then(puts)).await;
        let is_written = answer.map(|answer| answer.succeeded()).map_err(Trouble::from);
        if is_unused(&is_written) {
            self.place.leftovers.add(id);
        }
        is_written.map(|_| ())
    }

    /// Returns the conditions under which a tenure may begin: the mark is unchanged, and there is no quarantine.
    pub(crate) fn is_sound(&self) -> [Compare; 2] {
        let modified = self.known_mark().map_or(-1, |mark| mark.modified);
        [
            Compare::mod_revision(self.place.mark(), CompareOp::Equal, modified),
            Compare::create_revision(self.place.in_quarantine(), CompareOp::Equal, 0),
        ]
    }

    /// Returns whether a tenure may begin, or why not. If the mark has changed, gives up the connection: the next one
    /// checks the cluster.
    pub(crate) async fn standing(&self) -> Result<Standing, Trouble> {
        let Found { mark, .. } = self.find_mark().await?;
        if mark.is_none() || mark != self.known_mark() {
            return Err(self.is_another());
        }
        let got = self.client.get(self.place.in_quarantine()).await?;
        let Some(kv) = got.first() else { return Ok(Standing::Sound) };
        let left = self.left(kv.lease()).await?.unwrap_or(0);
        Ok(Standing::Quarantined(seconds(left.min(self.place.quarantine)) + Duration::from_secs(1)))
    }

    /// Gives up the connection, because the cluster has been replaced or has been reset to an older copy.
    pub(crate) fn is_another(&self) -> Trouble {
        self.give_up();
        Trouble::Broken(Error::Unconnected { source: None })
    }

    /// Ends the quarantine. The caller vouches that nobody relies on a lease that the cluster has forgotten.
    pub(crate) async fn end_quarantine(&self) -> Result<(), Trouble> {
        let got = self.client.get(self.place.in_quarantine()).await?;
        let Some(kv) = got.first() else { return Ok(()) };
        let [is_marked, _] = self.is_sound();
        let delete = TxnOp::delete(self.place.in_quarantine());
        let answer = self.client.txn(Txn::new().when([is_marked]).and_then([delete])).await?;
        if !answer.succeeded() {
            return Err(self.is_another());
        }
        self.place.leftovers.add(kv.lease());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::is_unused;
    use crate::error::{Error, Trouble};

    #[test]
    fn a_quarantine_is_not_revoked_because_an_answer_is_lost() {
        let lost = || Error::Unconnected { source: None };
        assert!(!is_unused(&Ok(true)) && !is_unused(&Err(Trouble::Broken(lost()))));
        assert!(!is_unused(&Err(Trouble::Full(lost()))));
        assert!(
            is_unused(&Ok(false)) && is_unused(&Err(Trouble::Refused(lost()))) && is_unused(&Err(Trouble::NoLease))
        );
    }
}
