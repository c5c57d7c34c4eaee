//! The namespace, as the [`Link`](keylatch_lease_remote::Link) of the engine uses it. There is no connection that could
//! end: each request stands for itself.

use std::sync::Arc;

use keylatch_lease::{
    Owner, Resource, Token,
    engine::{Fail, Gone},
};
use keylatch_lease_remote::Tenure;

use crate::{
    decide,
    error::Error,
    place::{Done, Place, last},
};

/// The number of expired leases that the driver removes at a time.
const AT_A_TIME: usize = 256;

/// The number of times that a release among several is tried while its outcome is unknown.
const TRIES: u32 = 3;

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) place: Arc<Place>,
}

impl Session {
    /// Ends a tenure: that of this owner, if one is given, and with this token, if one is given.
    pub(crate) async fn release(&self, resource: &Resource, owner: Option<&Owner>, token: Option<Token>) -> Done<Gone> {
        self.place.change(resource, |seen, now| decide::release(owner, token, seen, now), last).await
    }

    /// Releases what this owner has of a resource, and returns whether there was something to release. Asks again while
    /// that is unknown, because a failure would make the caller forget what else was released.
    pub(crate) async fn has_released(&self, resource: &Resource, owner: &Owner) -> Done<bool> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.release(resource, Some(owner), None).await {
                Err(Fail::Unknown(_)) if tries < TRIES => {}
                gone => return Ok(gone? == Gone::Released),
            }
        }
    }

    /// Frees up to `limit` resources whose leases have expired, and returns their number.
    pub(crate) async fn sweep(&self, limit: usize) -> Done<usize> {
        let mut swept = 0;
        for names in self.place.names(None).await?.chunks(AT_A_TIME) {
            let now = self.place.now();
            let mut over = Vec::new();
            for seen in self.place.leases(names).await? {
                if let (Some(lease), decide::Step::Write(..)) = (&seen.record.lease, decide::sweep(Some(&seen), now)) {
                    over.push(lease.resource.clone());
                }
            }
            over.truncate(limit - swept);
            let freed = self
                .place
                .each(over, |resource| async move { self.place.change(&resource, decide::sweep, last).await });
            swept += freed.await?.into_iter().filter(|is_freed| *is_freed).count();
            if swept == limit {
                break;
            }
        }
        Ok(swept)
    }
}

impl keylatch_lease_remote::Session for Session {
    type Error = Error;

    fn is_closed(&self) -> bool {
        false
    }

    async fn give_back(&self, tenure: &Tenure) -> bool {
        let Tenure { resource, owner, token } = tenure;
        match self.release(resource, Some(owner), Some(*token)).await {
            Ok(_) => true,
            // It would fail in the same way again.
            Err(Fail::NotDone(error) | Fail::Unknown(error)) => error.is_certain(),
        }
    }

    async fn sweep(&self) -> bool {
        Session::sweep(self, AT_A_TIME).await.is_ok_and(|count| count == AT_A_TIME)
    }
}
