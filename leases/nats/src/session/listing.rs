//! Several leases in one call: those of an owner, those on a page of the list, and those that have expired.

use std::{sync::PoisonError, time::Duration};

use keylatch_lease::{
    Owner, Resource,
    engine::{Fail, Gone, Owned, Record},
};

use super::{Deleted, LANES, Last, Listed, PART, Put, Session, is_full, perhaps, side_by_side, stored_at};
use crate::{
    error::Error,
    listing::Listing,
    record::{NEVER, Tenure},
    subjects::resource,
};

impl Session {
    /// Returns the subjects of all resources that have a message.
    pub(crate) async fn subjects(&self) -> Result<Vec<String>, Error> {
        let mut listing = Listing::default();
        loop {
            let about =
                serde_json::json!({ "subjects_filter": self.place.subjects.leases(), "offset": listing.offset() });
            let Listed { total, state } = self.api("INFO", &about).await?;
            if listing.add(state.subjects.unwrap_or_default().into_keys(), total) {
                return Ok(listing.all());
            }
        }
    }

    /// Returns the last sequence of the stream.
    pub(super) async fn last_sequence(&self) -> Result<u64, Error> {
        let Listed { state, .. } = self.api("INFO", &serde_json::json!({})).await?;
        Ok(state.last_seq)
    }

    /// Reads the last messages of these subjects side by side. Messages of other programs are left out.
    pub(super) async fn all_of(&self, subjects: &[String]) -> Result<Vec<(Resource, Last)>, Error> {
        let each = subjects.iter().map(|subject| async move {
            let Some(resource) = resource(subject) else { return Ok(None) };
            match self.last_of(subject).await {
                Ok(last) => Ok(Some((resource, last))),
                Err(Error::Foreign) => Ok(None),
                Err(error) => Err(error),
            }
        });
        side_by_side(each.collect(), LANES).await.into_iter().filter_map(Result::transpose).collect()
    }

    /// Returns the leases among these subjects; those of one owner, if it is given.
    pub(crate) async fn listed(
        &self,
        owner: Option<&Owner>,
        subjects: &[String],
    ) -> Result<Vec<(Resource, Record)>, Error> {
        let mut listed = Vec::new();
        for (resource, last) in self.all_of(subjects).await? {
            let is_wanted = |tenure: &Tenure| owner.is_none_or(|owner| tenure.owner == owner.id());
            if let Some(tenure) = last.tenure.filter(is_wanted) {
                listed.extend(self.record(&tenure, last.sequence).await?.map(|record| (resource, record)));
            }
        }
        Ok(listed)
    }

    pub(crate) async fn owned_by(&self, owner: &Owner, subjects: &[String]) -> Result<Vec<Owned>, Error> {
        let mut owned = Vec::new();
        for (resource, last) in self.all_of(subjects).await? {
            if let Some(tenure) = last.tenure.filter(|tenure| tenure.owner == owner.id()) {
                let expiry = tenure.expiry();
                owned.extend(self.record(&tenure, last.sequence).await?.map(|record| Owned {
                    resource,
                    record,
                    expiry,
                }));
            }
        }
        Ok(owned)
    }

    /// Releases the owner's leases among these subjects. Adds to `released` the resources that were released, even if
    /// other releases fail.
    pub(crate) async fn release_all(
        &self,
        owner: &Owner,
        subjects: &[String],
        released: &mut Vec<Resource>,
    ) -> Result<(), Fail<Error>> {
        let all = self.all_of(subjects).await.map_err(perhaps)?;
        let is_mine = |last: &Last| last.tenure.as_ref().is_some_and(|tenure| tenure.owner == owner.id());
        let mine = all.into_iter().filter(|(_, last)| is_mine(last));
        let each = mine.map(|(resource, _)| async move {
            // The token does not matter: the owner may have begun a fresh tenure since the listing.
            let gone = self.release(&resource, owner, None).await?;
            Ok((gone == Gone::Released).then_some(resource))
        });
        let mut failed = Ok(());
        for one in side_by_side(each.collect(), LANES).await {
            match one {
                Ok(one) => released.extend(one),
                Err(fail) => failed = Err(fail),
            }
        }
        failed
    }

    /// Deletes messages of free resources and expired leases, up to `limit`. Returns their number.
    pub(crate) async fn sweep_some(&self, subjects: &[String], limit: usize) -> Result<usize, Error> {
        // The stream's last message is never deleted, so that the server knows its sequence after a crash.
        let (now, newest) = match self.now_anew().await {
            Ok(now) => (now.earliest, now.sequence),
            // There is no room to read the time. Free resources can be swept without it.
            Err(error) if is_full(&error) => (0, self.last_sequence().await?),
            Err(error) => return Err(error),
        };
        let mut old = Vec::new();
        for (_, last) in self.all_of(subjects).await? {
            let is_over = last.tenure.is_none_or(|tenure| tenure.end != NEVER && now >= tenure.end);
            if is_over && last.sequence > 0 && last.sequence < newest {
                old.push((last.token, last.sequence));
            }
        }
        old.truncate(limit);
        // Record the greatest token before the messages are deleted, because a concurrent grant checks it. Without a
        // mark there is no grant.
        let (greatest, is_marked) = (old.iter().map(|(token, _)| *token).max(), self.known_mark().is_some());
        if let Some(greatest) = greatest.filter(|_| is_marked) {
            self.change_mark(|mark| mark.swept = mark.swept.max(greatest)).await?;
        }
        let each = old.into_iter().map(|(_, sequence)| async move {
            match self.api("MSG.DELETE", &serde_json::json!({ "seq": sequence, "no_erase": true })).await {
                Ok(Deleted { success }) => Ok(usize::from(success)),
                // A later message has replaced it.
                Err(Error::Refused { .. }) => Ok(0),
                Err(error) => Err(error),
            }
        });
        side_by_side(each.collect(), LANES).await.into_iter().sum()
    }

    /// Does the next part of the driver's sweep, and returns whether there is more. One process sweeps; the others see
    /// that it did.
    pub(super) async fn sweep_part(&self, every: Duration) -> Result<bool, Error> {
        let mut part = self.take_unswept();
        if part.is_empty() && self.is_sweep_due(every).await? {
            let all = self.subjects().await?;
            *self.unswept.lock().unwrap_or_else(PoisonError::into_inner) = all;
            part = self.take_unswept();
        }
        if !part.is_empty() {
            self.sweep_some(&part, part.len()).await?;
        }
        Ok(!self.unswept.lock().unwrap_or_else(PoisonError::into_inner).is_empty())
    }

    pub(super) fn take_unswept(&self) -> Vec<String> {
        let mut unswept = self.unswept.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = unswept.len().saturating_sub(PART);
        unswept.split_off(rest)
    }

    pub(super) async fn is_sweep_due(&self, every: Duration) -> Result<bool, Error> {
        let subject = self.place.subjects.swept();
        let last = self.message(&serde_json::json!({ "last_by_subj": subject })).await?;
        let now = match self.now().await {
            Err(error) if is_full(&error) => return Ok(true),
            now => now?,
        };
        // Half of the interval is enough, because timers are not exact. The difference is absolute, because the clock
        // may have been set back.
        let half = u64::try_from(every.as_nanos() / 2).unwrap_or(u64::MAX);
        if last.as_ref().is_some_and(|last| now.earliest.abs_diff(stored_at(last)) < half) {
            return Ok(false);
        }
        let behind = last.map_or(0, |last| last.sequence);
        match self.put(subject, Some(behind), Vec::new(), None, None).await {
            Err(error) if is_full(&error) => Ok(true),
            put => Ok(matches!(put?, Put::Stored(_))),
        }
    }
}
