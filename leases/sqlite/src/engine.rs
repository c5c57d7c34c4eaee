use std::{future::Future, sync::Arc, time::Duration};

use keylatch_lease::{
    Owner, Resource, Token,
    engine::{Answer, Ask, Engine, Gone, Listing, Owned, Part, Record, Renewal},
};
use keylatch_lease_remote::{Core, Limit, Live, Policy, cursor, page_start, resource_of};

use crate::{
    decide::{Extension, Query, Request},
    error::Error,
    place::Place,
    session::Session,
    worker::Done,
};

/// The engine that keeps leases in a SQLite file: see the [crate's page](crate).
///
/// Clones share the connection. When the last clone is dropped, the abandoned leases are released, and the engine's
/// threads end.
///
/// # Examples
/// See [`Sqlite::open`].
#[derive(Clone, Debug)]
pub struct Sqlite {
    pub(crate) core: Core<Session>,
    pub(crate) place: Arc<Place>,
}

impl Sqlite {
    /// Returns the namespace.
    ///
    /// # Examples
    /// ```no_run
    /// # fn example(sqlite: keylatch_lease_sqlite::Sqlite) {
    /// assert_eq!(sqlite.namespace(), "shop");
    /// # }
    /// ```
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.core.namespace()
    }

    async fn ask<T, F>(&self, limit: &mut Limit, question: impl FnOnce(Arc<Live<Session>>) -> F) -> Done<T>
    where
        F: Future<Output = Done<T>>,
    {
        self.core.ask(limit, question).await?
    }

    async fn gone(&self, resource: &Resource, owner: Option<&Owner>, token: Option<Token>) -> Done<Gone> {
        let (resource, owner) = (resource.clone(), owner.cloned());
        let question = |session: Arc<Live<Session>>| async move {
            session.write(move |table| table.release(&resource, owner.as_ref(), token)).await
        };
        self.ask(&mut self.core.limit(), question).await
    }
}

impl Engine for Sqlite {
    type Error = Error;

    keylatch_lease_remote::core_methods!(core);

    async fn acquire(&self, ask: Ask<'_>) -> Done<Answer> {
        let mut limit = self.core.settled(&ask).await?;
        let request = Request {
            resource: ask.resource.clone(),
            owner: ask.owner.clone(),
            want: ask.want,
            term: ask.term,
            policy: Policy::of(ask.expiry),
            is_waiting: ask.waiting,
        };
        let question =
            |session: Arc<Live<Session>>| async move { session.write(move |table| table.acquire(&request)).await };
        self.ask(&mut limit, question).await
    }

    async fn renew(&self, batch: &mut [Renewal<'_>], _: Duration) -> Done<()> {
        let extend = |renewal: &Renewal<'_>| Extension {
            resource: renewal.resource.clone(),
            owner: renewal.owner.clone(),
            token: renewal.token,
            term: renewal.term,
        };
        let all: Vec<_> = batch.iter().map(extend).collect();
        let question = |session: Arc<Live<Session>>| async move {
            session.write(move |table| all.iter().map(|one| table.renew(one)).collect::<Result<Vec<_>, _>>()).await
        };
        let left = self.ask(&mut self.core.limit(), question).await?;
        for (renewal, left) in batch.iter_mut().zip(left) {
            renewal.left = left;
        }
        Ok(())
    }

    async fn release(&self, resource: &Resource, owner: &Owner, token: Option<Token>, _: Duration) -> Done<Gone> {
        self.gone(resource, Some(owner), token).await
    }

    async fn release_token(&self, resource: &Resource, token: Token, _: Duration) -> Done<Gone> {
        self.gone(resource, None, Some(token)).await
    }

    async fn release_all(&self, owner: &Owner, _: Duration) -> Done<Vec<Resource>> {
        let owner = owner.clone();
        let question =
            |session: Arc<Live<Session>>| async move { session.write(move |table| table.release_all(&owner)).await };
        self.ask(&mut self.core.limit(), question).await
    }

    async fn look(&self, resource: &Resource, _: Duration) -> Done<Option<Record>> {
        let resource = resource.clone();
        let question =
            |session: Arc<Live<Session>>| async move { session.read(move |table| table.look(&resource)).await };
        self.ask(&mut self.core.limit(), question).await
    }

    async fn owned_by(&self, owner: &Owner, _: Duration) -> Done<Vec<Owned>> {
        let owner = owner.clone();
        let question =
            |session: Arc<Live<Session>>| async move { session.read(move |table| table.owned_by(&owner)).await };
        self.ask(&mut self.core.limit(), question).await
    }

    async fn list(&self, part: Part<'_>) -> Done<Listing> {
        let after = match part.after.map(resource_of) {
            Some(None) => return Ok(Listing::UnknownCursor),
            after => after.flatten(),
        };
        let (owner, entity_prefix, limit) = (part.owner.cloned(), part.entity_prefix.to_owned(), part.limit);
        let start = page_start(part.entity_prefix, after.as_ref());
        let query = Query { owner, entity_prefix, start, limit };
        let question = |session: Arc<Live<Session>>| async move { session.read(move |table| table.list(&query)).await };
        let leases = self.ask(&mut self.core.limit(), question).await?;
        let next = leases.last().filter(|_| leases.len() == limit).map(|(resource, _)| cursor(resource));
        Ok(Listing::Page { leases, next })
    }

    async fn sweep(&self, limit: usize, _: Duration) -> Done<usize> {
        self.ask(&mut self.core.limit(), |session: Arc<Live<Session>>| async move { session.sweep(limit).await }).await
    }
}
