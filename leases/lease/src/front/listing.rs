//! Listing leases, and watching a resource: the requests to the engine.

use alloc::{string::String, vec::Vec};
use core::time::Duration;

use super::{Leases, Tidier};
use crate::{
    Expiry, LookError, Owner, Resource,
    engine::{Ask, Engine, Listing, Part, Record, Want},
};

/// A lease in a page of a listing, and the time of the request, by [`Engine::now`].
pub(crate) struct Entry {
    pub(crate) resource: Resource,
    pub(crate) record: Record,
    pub(crate) at: Duration,
}

impl<E: Engine> Leases<E> {
    /// Returns `limit` leases, and the cursor after which the next page begins, if there is one. Returns fewer leases,
    /// or none, only if no others follow.
    pub(crate) async fn page(
        &self,
        owner: Option<&Owner>,
        entity_prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<Entry>, Option<String>), LookError<E::Error>> {
        if let Some(owner) = owner {
            owner.check()?;
        }
        let _tidier = Tidier(&self.engine);
        let mut entries = Vec::new();
        let mut next = after.map(String::from);
        loop {
            let at = self.engine.now();
            let part = Part { owner, entity_prefix, after: next.as_deref(), limit: limit - entries.len(), at };
            let (listing, _) = self.ask(None, at, &|| self.engine.list(part)).await.map_err(LookError::Engine)?;
            match listing {
                Listing::Page { leases, next: behind } => {
                    entries.extend(leases.into_iter().map(|(resource, record)| Entry { resource, record, at }));
                    next = behind;
                }
                Listing::UnknownCursor => return Err(LookError::Invalid { argument: "cursor" }),
                Listing::Unsupported => return Err(LookError::Unsupported),
            }
            if next.is_none() || entries.len() >= limit {
                return Ok((entries, next));
            }
        }
    }

    /// Asks the engine to notify [`watch`](Engine::watch) of the end of the tenure, as it does for a waiter. Acquires
    /// nothing.
    pub(crate) async fn mark_as_wanted(&self, resource: &Resource, watcher: &Owner) -> Result<(), E::Error> {
        let at = self.engine.now();
        let expiry = &Expiry::Never;
        let ask = Ask { resource, owner: watcher, want: Want::Mine, term: None, expiry, waiting: true, at };
        self.ask(Some(resource), at, &|| self.engine.acquire(ask)).await.map(|_| ())
    }
}
