use std::{future::Future, sync::Arc, time::Duration};

use keylatch_lease::{
    Owner, Resource, Token,
    engine::{Answer, Ask, Engine, Fail, Gone, Left, Listing, Owned, Part, Record, Renewal},
};
use keylatch_lease_remote::{Core, Limit, Live};

use crate::{
    decide::{self, Extension, Request},
    error::Error,
    names,
    place::{Done, Place},
    session::Session,
};

/// The engine that keeps leases in a bucket: see the [crate's page](crate).
///
/// Clones share what they have seen of the bucket, so make one engine for each process and namespace, and clone it.
///
/// # Examples
/// See [`Bucket::open`].
#[derive(Clone, Debug)]
pub struct Bucket {
    pub(crate) core: Core<Session>,
    pub(crate) place: Arc<Place>,
    /// The time limit of an operation that reads the whole namespace.
    pub(crate) long: Duration,
}

impl Bucket {
    /// Returns the namespace.
    ///
    /// # Examples
    /// See [`Bucket::in_namespace`].
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

    /// Returns the time limit of an operation that reads the whole namespace.
    fn long_limit(&self) -> Limit {
        Limit::after(self.long)
    }

    async fn gone(&self, resource: &Resource, owner: Option<&Owner>, token: Option<Token>) -> Done<Gone> {
        let question = |session: Arc<Live<Session>>| async move { session.release(resource, owner, token).await };
        self.ask(&mut self.core.limit(), question).await
    }

    async fn all_of(&self, owner: &Owner) -> Done<Vec<Owned>> {
        let names = self.place.names(None).await?;
        let leases = self.place.leases(&names, false).await?;
        let now = self.place.now();
        let owned = leases.iter().filter_map(|seen| seen.owned(now));
        Ok(owned.filter(|owned| owned.record.owner == *owner).collect())
    }

    /// Returns the resources that are leased by this owner.
    async fn resources_of(&self, owner: &Owner) -> Done<Vec<Resource>> {
        let names = self.place.names(None).await?;
        let leases = self.place.leases(&names, true).await?;
        let now = self.place.now();
        let found = leases.iter().filter_map(|seen| seen.found(now));
        Ok(found.filter(|(_, record, _)| record.owner == *owner).map(|(resource, ..)| resource).collect())
    }

    async fn page(&self, part: Part<'_>) -> Done<Listing> {
        let mut names = self.place.names(part.after).await?;
        names.retain(|name| names::may_begin_with(name, part.entity_prefix));
        let is_last = names.len() <= part.limit;
        names.truncate(part.limit);
        let leases = self.place.leases(&names, false).await?;
        let now = self.place.now();
        let found = leases.iter().filter_map(|seen| seen.found(now));
        let is_wanted = |resource: &Resource, record: &Record| {
            resource.entity().starts_with(part.entity_prefix) && part.owner.is_none_or(|owner| record.owner == *owner)
        };
        let wanted = found.filter(|(resource, record, _)| is_wanted(resource, record));
        let leases = wanted.map(|(resource, record, _)| (resource, record)).collect();
        Ok(Listing::Page { leases, next: names.pop().filter(|_| !is_last) })
    }
}

impl Engine for Bucket {
    type Error = Error;

    fn now(&self) -> Duration {
        self.place.clock()
    }

    async fn acquire(&self, ask: Ask<'_>) -> Done<Answer> {
        let mut limit = self.core.settled(&ask).await?;
        let Ask { want, term, waiting: is_waiting, at, .. } = ask;
        let (resource, owner, expiry) = (ask.resource.clone(), ask.owner.clone(), ask.expiry.clone());
        let request = &Request { resource, owner, want, term, expiry, is_waiting, at };
        let question = |session: Arc<Live<Session>>| async move {
            let decide = |seen: Option<&_>, now, before: Option<&_>| match before {
                None => decide::acquire(request, seen, now),
                Some(before) => decide::acquire_again(request, before, seen, now),
            };
            let answer = session.place.change(&request.resource, decide).await?;
            // Another owner has the resource, or has only left its lease behind.
            if !matches!(answer, Answer::Busy { .. }) || !session.place.read_clock().await? {
                return Ok(answer);
            }
            session.place.change(&request.resource, decide).await
        };
        let answer = self.ask(&mut limit, question).await?;
        self.core.noted(&ask, &answer);
        Ok(answer)
    }

    async fn renew(&self, batch: &mut [Renewal<'_>], _: Duration) -> Done<()> {
        let extend = |renewal: &Renewal<'_>| {
            let Renewal { token, term, .. } = *renewal;
            (renewal.resource.clone(), Extension { owner: renewal.owner.clone(), token, term })
        };
        let all: Vec<_> = batch.iter().map(extend).collect();
        let is_alone = all.len() == 1;
        let question = |session: Arc<Live<Session>>| async move {
            let place = &session.place;
            let renew = |(resource, extension): (Resource, Extension)| async move {
                let decide = |seen: Option<&_>, now, before: Option<&_>| match before {
                    None => decide::renew(&extension, seen, now),
                    Some(_) => decide::renew_again(&extension, seen, now),
                };
                Ok(place.change(&resource, decide).await)
            };
            // If one of them fails, the others still run to their ends, and may have been carried out.
            place.each(all, renew).await?.into_iter().collect::<Done<_>>().map_err(|fail| match fail {
                Fail::NotDone(error) if !is_alone => Fail::Unknown(error),
                fail => fail,
            })
        };
        let left: Vec<Left> = self.ask(&mut self.core.limit(), question).await?;
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
        let question = |session: Arc<Live<Session>>| async move {
            let all = self.resources_of(owner).await?;
            let release = |resource: Resource| {
                let session = &session;
                async move { Ok(session.has_released(&resource, owner).await?.then_some(resource)) }
            };
            let released = session.place.each(all, release).await?;
            Ok(released.into_iter().flatten().collect())
        };
        self.ask(&mut self.long_limit(), question).await
    }

    async fn look(&self, resource: &Resource, _: Duration) -> Done<Option<Record>> {
        let question = |session: Arc<Live<Session>>| async move {
            let seen = session.place.read(resource).await?;
            Ok(seen.and_then(|seen| seen.found(session.place.now())).map(|(_, record, _)| record))
        };
        self.ask(&mut self.core.limit(), question).await
    }

    async fn owned_by(&self, owner: &Owner, _: Duration) -> Done<Vec<Owned>> {
        self.ask(&mut self.long_limit(), |_| self.all_of(owner)).await
    }

    async fn list(&self, part: Part<'_>) -> Done<Listing> {
        if part.after.is_some_and(|after| !names::is_name(after)) {
            return Ok(Listing::UnknownCursor);
        }
        self.ask(&mut self.long_limit(), |_| self.page(part)).await
    }

    async fn sweep(&self, limit: usize, _: Duration) -> Done<usize> {
        self.ask(&mut self.long_limit(), |session: Arc<Live<Session>>| async move { session.sweep(limit).await }).await
    }

    /// Returns a timer for the next poll, because a bucket sends no messages. The pauses grow while a waiter waits.
    fn watch(&self, resource: &Resource) -> impl Future<Output = ()> + Send {
        self.core.watch(resource)
    }

    fn fallback(&self) -> Option<Duration> {
        Some(self.core.fallback())
    }

    fn abandon(&self, resource: &Resource, owner: &Owner, token: Token) {
        self.core.abandon(resource, owner, token);
    }
}
