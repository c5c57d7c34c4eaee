use std::{future::Future, sync::Arc, time::Duration};

use async_nats::jetstream::stream::Config;
use keylatch_lease::{
    Owner, Resource, Token,
    engine::{Answer, Ask, Engine, Fail, Gone, Left, Listing, Owned, Part, Record, Renewal},
};
use keylatch_lease_remote::{Core, Limit, Live};

use crate::{
    error::Error,
    session::{PART, Session, perhaps, side_by_side, stream_config},
    subjects::resource,
};

/// The greatest number of renewals of a batch that run at the same time.
const LANES: usize = 256;

/// The outcome of an operation.
type Done<T> = Result<T, Fail<Error>>;

/// The engine that keeps leases in a JetStream stream: see the [crate's page](crate).
///
/// Clones share the connection. When the last clone is dropped, the connection ends once the abandoned leases have been
/// released.
///
/// # Examples
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
///
/// use keylatch_lease::{Leases, Owner};
/// use keylatch_lease_nats::{ConnectOptions, Nats};
///
/// let nats = Nats::in_namespace("shop").connect("nats.example", ConnectOptions::new)?;
/// let leases = Leases::with_engine(nats);
/// let jane = Owner::named("session-42");
/// let grant = leases.try_acquire(("invoice", "2024-17"), &jane, Duration::from_secs(600)).await?;
/// leases.release(&grant).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Nats {
    pub(crate) core: Core<Session>,
}

impl Nats {
    /// Returns the configuration of the stream of this name: for JetStream's `create_stream`, or as a guide for another
    /// tool that creates streams. A stream in which leases would not be safe is refused with [`Error::Unsuitable`].
    ///
    /// Some settings may be changed: `num_replicas`, which should be 3 in a cluster of 2.11 or later; `placement`;
    /// `compression`; `max_messages`; and, with servers of 2.10.5 or later, `max_bytes`: earlier servers delete the
    /// oldest lease when the limit is reached.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example(client: async_nats::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use async_nats::jetstream::{self, stream::Config};
    /// use keylatch_lease_nats::Nats;
    ///
    /// let config = Config { num_replicas: 3, ..Nats::stream("keylatch_lease") };
    /// jetstream::new(client).get_or_create_stream(config).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn stream(name: &str) -> Config {
        stream_config(name)
    }

    /// Opens the namespace at once, without a quarantine. Do this when it is new, or when you know that nobody relies
    /// on a lease in it. It changes no lease.
    ///
    /// Call it once for each deployment, when the stream is created; or by hand. A program that calls it at each start
    /// has no quarantine any more: see [the crate's page](crate#when-the-stream-forgets).
    ///
    /// # Errors
    /// The errors of any operation.
    ///
    /// # Cancel safety
    /// If the future is dropped, the namespace may have been opened or not.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example(nats: keylatch_lease_nats::Nats) -> Result<(), keylatch_lease_nats::Error> {
    /// nats.init().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn init(&self) -> Result<(), Error> {
        let question = |session: Arc<Live<Session>>| async move { session.end_quarantine().await.map_err(perhaps) };
        self.ask(&mut self.core.limit(), question).await.map_err(Fail::into_cause)
    }

    /// Waits until there is a connection, and the stream has been found. Operations wait by themselves; this call is
    /// for programs that want to check this when they start.
    ///
    /// # Errors
    /// The errors of any operation: [`Error::Unconnected`] after the [timeout](crate::Options::timeout),
    /// [`Error::Missing`], [`Error::Unsuitable`], [`Error::Stopped`].
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example(nats: keylatch_lease_nats::Nats) -> Result<(), keylatch_lease_nats::Error> {
    /// nats.ready().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn ready(&self) -> Result<(), Error> {
        self.core.ready().await
    }

    /// Returns the namespace.
    ///
    /// # Examples
    /// ```no_run
    /// # fn example(nats: keylatch_lease_nats::Nats) {
    /// assert_eq!(nats.namespace(), "shop");
    /// # }
    /// ```
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.core.namespace()
    }

    /// Sends one request, with all its steps, within the limit.
    async fn ask<T, F>(&self, limit: &mut Limit, question: impl FnOnce(Arc<Live<Session>>) -> F) -> Done<T>
    where
        F: Future<Output = Done<T>>,
    {
        self.core.ask(limit, question).await?
    }

    async fn subjects(&self) -> Done<Vec<String>> {
        self.ask(&mut self.core.limit(), |session| async move { session.subjects().await.map_err(perhaps) }).await
    }
}

impl Engine for Nats {
    type Error = Error;

    keylatch_lease_remote::core_methods!(core);

    async fn acquire(&self, ask: Ask<'_>) -> Done<Answer> {
        let mut limit = self.core.settled(&ask).await?;
        let question = |session: Arc<Live<Session>>| async move {
            session.listen(ask.resource).await.map_err(perhaps)?;
            session.acquire(ask).await
        };
        self.ask(&mut limit, question).await
    }

    async fn renew(&self, batch: &mut [Renewal<'_>], _: Duration) -> Done<()> {
        batch.iter_mut().for_each(|renewal| renewal.left = Left::Nothing);
        if batch.is_empty() {
            return Ok(());
        }
        let questions = &*batch;
        let mut limit = self.core.limit();
        let left = self.ask(&mut limit, |session| async move {
            let session = &session;
            let each = questions.iter().map(|one| session.renew(one.resource, one.owner, one.token, one.term));
            Ok(side_by_side(each.collect(), LANES).await)
        });
        let left = left.await?;
        let mut failed = Ok(());
        for (renewal, left) in batch.iter_mut().zip(left) {
            match left {
                Ok(left) => renewal.left = left,
                Err(fail) => failed = Err(fail),
            }
        }
        failed
    }

    async fn release(&self, resource: &Resource, owner: &Owner, token: Option<Token>, _: Duration) -> Done<Gone> {
        self.ask(&mut self.core.limit(), |session| async move { session.release(resource, owner, token).await }).await
    }

    async fn release_all(&self, owner: &Owner, _: Duration) -> Done<Vec<Resource>> {
        let subjects = self.subjects().await?;
        let mut all = Vec::new();
        for part in subjects.chunks(PART) {
            let released = &mut all;
            self.ask(&mut self.core.limit(), |session| async move { session.release_all(owner, part, released).await })
                .await?;
        }
        Ok(all)
    }

    async fn look(&self, resource: &Resource, _: Duration) -> Done<Option<Record>> {
        let question = |session: Arc<Live<Session>>| async move {
            session.listen(resource).await.map_err(perhaps)?;
            session.look(resource).await.map_err(perhaps)
        };
        self.ask(&mut self.core.limit(), question).await
    }

    async fn owned_by(&self, owner: &Owner, _: Duration) -> Done<Vec<Owned>> {
        let subjects = self.subjects().await?;
        let mut all = Vec::new();
        for part in subjects.chunks(PART) {
            let mut limit = self.core.limit();
            let owned =
                self.ask(&mut limit, |session| async move { session.owned_by(owner, part).await.map_err(perhaps) });
            all.extend(owned.await?);
        }
        Ok(all)
    }

    /// Lists a page of the leases. A cursor is the last subject that was looked at.
    async fn list(&self, part: Part<'_>) -> Done<Listing> {
        if part.after.is_some_and(|after| resource(after).is_none()) {
            return Ok(Listing::UnknownCursor);
        }
        let subjects = self.subjects().await?;
        let behind = part.after.map_or(0, |after| subjects.partition_point(|subject| subject.as_str() <= after));
        let begins = |subject: &String| resource(subject).is_some_and(|of| of.entity().starts_with(part.entity_prefix));
        let mut leases = Vec::new();
        let mut next = None;
        let wanted: Vec<String> = subjects.into_iter().skip(behind).filter(begins).collect();
        for some in wanted.chunks(part.limit.min(PART)) {
            if leases.len() + some.len() > part.limit {
                break;
            }
            let question =
                |session: Arc<Live<Session>>| async move { session.listed(part.owner, some).await.map_err(perhaps) };
            leases.extend(self.ask(&mut self.core.limit(), question).await?);
            next = some.last().cloned();
        }
        next = next.filter(|last| wanted.last() != Some(last));
        Ok(Listing::Page { leases, next })
    }

    async fn sweep(&self, limit: usize, _: Duration) -> Done<usize> {
        let subjects = self.subjects().await?;
        let mut swept = 0;
        for part in subjects.chunks(PART) {
            let left = limit - swept;
            if left == 0 {
                break;
            }
            let mut time = self.core.limit();
            let part =
                self.ask(&mut time, |session| async move { session.sweep_some(part, left).await.map_err(perhaps) });
            swept += part.await?;
        }
        Ok(swept)
    }
}
