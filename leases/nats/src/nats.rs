use std::{fmt, future::Future, sync::Arc, time::Duration};

use async_nats::jetstream::stream::Config;
use keylatch_lease::{
    Clock, Owner, Resource, StdClock, Token,
    engine::{Answer, Ask, Engine, Fail, Gone, Left, Notice, Owned, Record, Renewal},
};
use keylatch_lease_remote::{Handle, Limit, Live, Tenure};

use crate::{
    error::Error,
    session::{PART, Place, Session, side_by_side, stream_config},
};

/// The number of renewals of a batch that are under way at a time.
const LANES: usize = 256;

/// Leases in a JetStream stream: see the [crate's page](crate).
///
/// Clones share the connection. When the last one is dropped the connection ends, as soon as what was abandoned has been given back.
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
#[derive(Clone)]
pub struct Nats {
    shared: Arc<Shared>,
}

struct Shared {
    link: Handle<Session>,
    place: Arc<Place>,
    fallback: Duration,
    clock: StdClock,
}

impl fmt::Debug for Nats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nats").field("namespace", &self.namespace()).finish_non_exhaustive()
    }
}

impl Nats {
    pub(crate) fn new(link: Handle<Session>, place: Arc<Place>, fallback: Duration) -> Self {
        Nats { shared: Arc::new(Shared { link, place, fallback, clock: StdClock::new() }) }
    }

    /// How the stream of this name has to be set up. For JetStream's `create_stream`, or as a guide for whatever sets up streams; one that
    /// leases would not be safe in is refused with [`Error::Unsuitable`].
    ///
    /// What may be changed: `num_replicas`, which should be 3 in a cluster of 2.11 or later; `placement`, `compression`; and, if the server is of
    /// 2.10.5 or later, `max_bytes`: those before delete the oldest lease when it is reached.
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

    /// Opens the namespace at once, without a quarantine: for one that is new, or of which you know that nobody goes by a lease. It changes no
    /// lease.
    ///
    /// Once, in a deployment, as the stream is created; or by hand. A program that calls it at each start has no quarantine any more: see
    /// [the crate's page](crate#when-the-stream-forgets).
    ///
    /// # Errors
    /// As any operation.
    ///
    /// # Cancel safety
    /// Dropped, it has been done or not.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example(nats: keylatch_lease_nats::Nats) -> Result<(), keylatch_lease_nats::Error> {
    /// nats.init().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn init(&self) -> Result<(), Error> {
        let question =
            |session: Arc<Live<Session>>| async move { session.end_quarantine().await.map_err(Fail::Unknown) };
        self.ask(&mut self.limit(), question).await.map_err(Fail::into_cause)
    }

    /// Waits until there is a connection, and the stream has been found. Operations do so by themselves: this is for who wants to know
    /// at the start.
    ///
    /// # Errors
    /// As any operation: [`Error::Unconnected`] after the [timeout](crate::Options::timeout), [`Error::Missing`], [`Error::Unsuitable`],
    /// [`Error::Stopped`].
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example(nats: keylatch_lease_nats::Nats) -> Result<(), keylatch_lease_nats::Error> {
    /// nats.ready().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn ready(&self) -> Result<(), Error> {
        self.shared.link.session(&mut self.limit()).await.map(|_| ())
    }

    /// The namespace.
    ///
    /// # Examples
    /// ```no_run
    /// # fn example(nats: keylatch_lease_nats::Nats) {
    /// assert_eq!(nats.namespace(), "shop");
    /// # }
    /// ```
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.shared.place.namespace
    }

    fn limit(&self) -> Limit {
        Limit::after(self.shared.link.timeout())
    }

    /// One question, with all of its steps, in the time that there is.
    async fn ask<T, F>(
        &self,
        limit: &mut Limit,
        question: impl FnOnce(Arc<Live<Session>>) -> F,
    ) -> Result<T, Fail<Error>>
    where
        F: Future<Output = Result<T, Fail<Error>>>,
    {
        let session = self.shared.link.session(limit).await.map_err(Fail::NotDone)?;
        let question = question(Arc::clone(&session));
        let answer = self.shared.link.answer(&session, limit, question).await;
        answer.unwrap_or(Err(Fail::Unknown(Error::Timeout)))
    }

    async fn subjects(&self) -> Result<Vec<String>, Fail<Error>> {
        self.ask(&mut self.limit(), |session| async move { session.subjects().await.map_err(Fail::NotDone) }).await
    }
}

impl Engine for Nats {
    type Error = Error;

    fn now(&self) -> Duration {
        self.shared.clock.now()
    }

    fn is_real_time(&self) -> bool {
        self.shared.clock.is_real_time()
    }

    async fn acquire(&self, ask: Ask<'_>) -> Result<Answer, Fail<Error>> {
        let mut limit = self.limit();
        self.shared.link.settled(&mut limit, &ask).await.map_err(Fail::NotDone)?;
        self.ask(&mut limit, |session| async move { session.acquire(ask).await }).await
    }

    async fn renew(&self, batch: &mut [Renewal<'_>], _: Duration) -> Result<(), Fail<Error>> {
        batch.iter_mut().for_each(|renewal| renewal.left = Left::Nothing);
        if batch.is_empty() {
            return Ok(());
        }
        let questions = &*batch;
        let mut limit = self.limit();
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

    async fn release(
        &self,
        resource: &Resource,
        owner: &Owner,
        token: Option<Token>,
        _: Duration,
    ) -> Result<Gone, Fail<Error>> {
        self.ask(&mut self.limit(), |session| async move { session.release(resource, owner, token).await }).await
    }

    async fn release_all(&self, owner: &Owner, _: Duration) -> Result<Vec<Resource>, Fail<Error>> {
        let subjects = self.subjects().await?;
        let mut all = Vec::new();
        for part in subjects.chunks(PART) {
            let released = &mut all;
            self.ask(&mut self.limit(), |session| async move { session.release_all(owner, part, released).await })
                .await?;
        }
        Ok(all)
    }

    async fn look(&self, resource: &Resource, _: Duration) -> Result<Option<Record>, Fail<Error>> {
        self.ask(&mut self.limit(), |session| async move { session.look(resource).await.map_err(Fail::NotDone) }).await
    }

    async fn owned_by(&self, owner: &Owner, _: Duration) -> Result<Vec<Owned>, Fail<Error>> {
        let subjects = self.subjects().await?;
        let mut all = Vec::new();
        for part in subjects.chunks(PART) {
            let mut limit = self.limit();
            let owned = self
                .ask(&mut limit, |session| async move { session.owned_by(owner, part).await.map_err(Fail::NotDone) });
            all.extend(owned.await?);
        }
        Ok(all)
    }

    async fn sweep(&self, limit: usize, _: Duration) -> Result<usize, Fail<Error>> {
        let subjects = self.subjects().await?;
        let mut swept = 0;
        for part in subjects.chunks(PART) {
            let left = limit - swept;
            if left == 0 {
                break;
            }
            let mut time = self.limit();
            let part = self
                .ask(&mut time, |session| async move { session.sweep_some(part, left).await.map_err(Fail::NotDone) });
            swept += part.await?;
        }
        Ok(swept)
    }

    fn watch(&self, resource: &Resource) -> impl Future<Output = ()> + Send {
        self.shared.link.watchers().watch(resource)
    }

    fn subscribe(&self, resource: &Resource, notice: &Arc<Notice>) -> bool {
        self.shared.link.watchers().subscribe(resource, notice);
        true
    }

    fn unsubscribe(&self, resource: &Resource, notice: &Arc<Notice>) {
        self.shared.link.watchers().unsubscribe(resource, notice);
    }

    fn fallback(&self) -> Option<Duration> {
        Some(self.shared.fallback)
    }

    fn abandon(&self, resource: &Resource, owner: &Owner, token: Token) {
        self.shared.link.abandon(Tenure { resource: resource.clone(), owner: owner.clone(), token });
    }
}
