//! The namespace, as the [`Link`](keylatch_lease_remote::Link) of the engine uses it. There is no connection that could
//! end: each request is independent of the others.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

/// The number of objects that a sweep reads before it frees those that have expired.
const AT_A_TIME: usize = 256;

/// The number of objects that a step of the driver's sweep lists. Stores return up to this many in one answer.
const LISTED: usize = 1000;

/// The number of times that a release among several is tried while its outcome is unknown.
const TRIES: u32 = 3;

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) place: Arc<Place>,
    /// The name of the last object that the driver has swept; `None` if it begins anew.
    cursor: Mutex<Option<String>>,
}

impl Session {
    pub(crate) fn new(place: Arc<Place>) -> Self {
        Session { place, cursor: Mutex::new(None) }
    }

    /// Ends the tenure if it has this owner and this token. `None` stands for any.
    pub(crate) async fn release(&self, resource: &Resource, owner: Option<&Owner>, token: Option<Token>) -> Done<Gone> {
        self.place.change(resource, |seen, now, _| decide::release(owner, token, seen, now)).await
    }

    /// Releases this owner's lease of a resource, and returns whether there was one to release. Asks again while that
    /// is unknown, because on a failure the caller would forget which other resources were released.
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
            swept += self.sweep_these(names, limit - swept).await?;
            if swept == limit {
                break;
            }
        }
        Ok(swept)
    }

    /// Frees up to `limit` of the resources with these names whose leases have expired, and returns their number.
    async fn sweep_these(&self, names: &[String], limit: usize) -> Done<usize> {
        let now = self.place.now();
        let mut over = Vec::new();
        for seen in self.place.leases(names, true).await? {
            if let (Some(lease), decide::Step::Write(..)) = (&seen.record.lease, decide::sweep(Some(&seen), now)) {
                over.push(lease.resource.clone());
            }
        }
        over.truncate(limit);
        let free =
            |resource| async move { self.place.change(&resource, |seen, now, _| decide::sweep(seen, now)).await };
        Ok(self.place.each(over, free).await?.into_iter().filter(|is_freed| *is_freed).count())
    }

    fn cursor(&self) -> MutexGuard<'_, Option<String>> {
        self.cursor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Continues the driver's sweep where it was left off: frees what has expired among the next objects, and returns
    /// whether there are more. A sweep that is cut off by its time limit has not lost what it has done.
    async fn sweep_on(&self) -> Done<bool> {
        let after = self.cursor().clone();
        let (names, end) = self.place.names_among(LISTED, after.as_deref()).await?;
        for names in names.chunks(AT_A_TIME) {
            self.sweep_these(names, usize::MAX).await?;
            *self.cursor() = names.last().cloned();
        }
        let is_more = end.is_some();
        *self.cursor() = end;
        Ok(is_more)
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
            // Another attempt would fail in the same way.
            Err(fail) => fail.into_cause().is_certain(),
        }
    }

    async fn sweep(&self) -> bool {
        self.sweep_on().await.unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::{AT_A_TIME, LISTED, Session};
    use crate::{
        place::Place,
        record::{Lease, Nonce, Record},
        table::Table,
    };
    use futures_lite::future::{poll_once, yield_now};
    use keylatch_lease::{Expiry, Resource};
    use keylatch_lease_remote::Policy;
    use object_store::{ObjectStore, ObjectStoreExt, memory::InMemory, path::Path};
    use std::{pin::pin, sync::Arc};

    /// Returns a session in a namespace with this many leases that have expired.
    async fn expired(count: usize) -> Session {
        let (store, runtime) = (Arc::new(InMemory::new()), tokio::runtime::Handle::current());
        let shared = Arc::clone(&store) as Arc<dyn ObjectStore>;
        let table = Table::new(None);
        let place = Place::new(shared, &Path::from("test"), "", runtime, None, table);
        for key in 0..count {
            let resource = Resource::new("page", format!("{key:04}"));
            let path = format!("test/.leases/{}", crate::names::name(&resource));
            let policy = Policy::of(&Expiry::Never);
            let lease = Lease { resource, owner: "n:jane".into(), lasts: Some(0), held: 0, written: 1, policy };
            let record = Record { token: 1, nonce: Nonce::new(), after: Vec::new(), lease: Some(lease) };
            store.put(&Path::from(path), record.to_text().into()).await.unwrap();
        }
        Session::new(Arc::new(place))
    }

    async fn left(session: &Session) -> usize {
        session.place.names(None).await.unwrap().len()
    }

    #[tokio::test]
    async fn the_steps_of_a_sweep_free_one_part_of_the_namespace_after_the_other() {
        let session = expired(LISTED + 10).await;
        assert!(session.sweep_on().await.unwrap());
        assert_eq!(left(&session).await, 10);
        assert!(!session.sweep_on().await.unwrap());
        assert_eq!(left(&session).await, 0);
        assert_eq!(*session.cursor(), None, "the next sweep begins anew");
    }

    #[tokio::test]
    async fn a_step_of_a_sweep_that_is_cut_off_has_not_lost_what_it_has_done() {
        let session = expired(2 * AT_A_TIME).await;
        {
            let mut step = pin!(session.sweep_on());
            while session.cursor().is_none() {
                assert!(poll_once(&mut step).await.is_none(), "the step was not cut off");
                yield_now().await;
            }
        }
        let last = format!("page.{:04}.lease", AT_A_TIME - 1);
        assert_eq!(*session.cursor(), Some(last));
        assert_eq!(left(&session).await, AT_A_TIME);
        assert!(!session.sweep_on().await.unwrap());
        assert_eq!(left(&session).await, 0);
    }
}
