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
    place::{Done, Place},
};

/// The number of expired leases that the driver removes at a time.
const AT_A_TIME: usize = 256;

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) place: Arc<Place>,
}

impl Session {
    /// Ends a tenure: that of this owner, if one is given, and with this token, if one is given.
    pub(crate) async fn release(&self, resource: &Resource, owner: Option<&Owner>, token: Option<Token>) -> Done<Gone> {
        self.place.change(resource, |seen, now| decide::release(owner, token, seen, now)).await
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
            let freed =
                self.place.each(over, |resource| async move { self.place.change(&resource, decide::sweep).await });
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
