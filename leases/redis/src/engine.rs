use std::{fmt, future::Future, sync::Arc, time::Duration};

use keylatch_lease::{
    Clock, Owner, Resource, StdClock, Token,
    engine::{Answer, Ask, Engine, Fail, Gone, Left, Notice, Owned, Record, Renewal, Want},
};
use keylatch_lease_remote::{Handle, Limit, Live, Tenure, from_micros};
use redis::RedisResult;

use crate::{
    convert::{self, micros},
    error::{Error, judge},
    scripts::{ACQUIRE, LOOK, OWNED_BY, RELEASE_ALL, RENEW},
    session::{Place, Session, flag},
};

/// The number of leases renewed in one script, which blocks the server for a few milliseconds.
const AT_A_TIME: usize = 1000;

/// Leases in Redis: see the [crate's page](crate).
///
/// Clones share the connection. When the last one is dropped the driver ends, as soon as it has given back what was abandoned.
///
/// # Examples
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
///
/// use keylatch_lease::{Leases, Owner};
/// use keylatch_lease_redis::Redis;
///
/// let redis = Redis::in_namespace("shop").connect(redis::Client::open("redis://db.example")?);
/// let leases = Leases::with_engine(redis);
/// let jane = Owner::named("session-42");
/// let grant = leases.try_acquire(("invoice", "2024-17"), &jane, Duration::from_secs(60)).await?;
/// leases.release(&grant).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Redis {
    shared: Arc<Shared>,
}

struct Shared {
    link: Handle<Session>,
    place: Arc<Place>,
    fallback: Duration,
    clock: StdClock,
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("namespace", &self.namespace()).finish_non_exhaustive()
    }
}

impl Redis {
    pub(crate) fn new(link: Handle<Session>, place: Arc<Place>, fallback: Duration) -> Self {
        Redis { shared: Arc::new(Shared { link, place, fallback, clock: StdClock::new() }) }
    }

    /// Opens the namespace at once, without a quarantine: for one that is new, or of which you know that nobody goes by a lease. It changes no
    /// lease.
    ///
    /// Once, in a deployment, as a table is created elsewhere; or by hand. A program that calls it at each start has no quarantine any more: see
    /// [the crate's page](crate#when-the-server-forgets).
    ///
    /// # Errors
    /// As any operation.
    ///
    /// # Cancel safety
    /// Dropped, it has been done or not.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example(redis: keylatch_lease_redis::Redis) -> Result<(), keylatch_lease_redis::Error> {
    /// redis.init().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn init(&self) -> Result<(), Error> {
        let question = |session: Arc<Live<Session>>| async move { session.open_namespace(true).await };
        self.ask(&mut self.limit(), question).await.map(|_| ()).map_err(Fail::into_cause)
    }

    /// Waits until there is a connection. Operations do so by themselves: this is for who wants to know at the start.
    ///
    /// # Errors
    /// As any operation: [`Error::Unconnected`] after the [timeout](crate::Options::timeout), [`Error::Evicts`], [`Error::Stopped`].
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example(redis: keylatch_lease_redis::Redis) -> Result<(), keylatch_lease_redis::Error> {
    /// redis.ready().await?;
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
    /// # fn example(redis: keylatch_lease_redis::Redis) {
    /// assert_eq!(redis.namespace(), "shop");
    /// # }
    /// ```
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.shared.place.namespace
    }

    fn limit(&self) -> Limit {
        Limit::after(self.shared.link.timeout())
    }

    /// One question, in the time that there is.
    async fn ask<T, F>(
        &self,
        limit: &mut Limit,
        question: impl FnOnce(Arc<Live<Session>>) -> F,
    ) -> Result<T, Fail<Error>>
    where
        F: Future<Output = RedisResult<T>>,
    {
        let session = self.shared.link.session(limit).await.map_err(Fail::NotDone)?;
        let question = question(Arc::clone(&session));
        let answer = self.shared.link.answer(&session, limit, question).await;
        answer.map_or(Err(Fail::Unknown(Error::Timeout)), |answer| answer.map_err(judge))
    }

    async fn gone(&self, resource: &Resource, of: Option<&Owner>, token: Option<Token>) -> Result<Gone, Fail<Error>> {
        let question = |session: Arc<Live<Session>>| async move { session.release(resource, of, token).await };
        let (what, who) = self.ask(&mut self.limit(), question).await?;
        Ok(match &*what {
            "g" => Gone::Released,
            "b" => Gone::NotOwner(owner(&who)),
            _ => Gone::NotHeld,
        })
    }
}

fn owner(id: &[u8]) -> Owner {
    Owner::from_id(&String::from_utf8_lossy(id))
}

/// The scripts return valid tokens only.
fn token(text: &[u8]) -> Token {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.and_then(Token::new).unwrap_or_else(|| unreachable!("the scripts have no other tokens"))
}

fn record(id: &[u8], number: &[u8], held_for: i64, remaining: Option<i64>) -> Record {
    Record {
        owner: owner(id),
        token: token(number),
        held_for: from_micros(held_for),
        remaining: remaining.map(from_micros),
    }
}

impl Engine for Redis {
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
        let (name, policy) = (&convert::name(ask.resource), &convert::policy(ask.expiry));
        let want = match ask.want {
            Want::Any => "a",
            Want::Fresh => "f",
            Want::Mine => "m",
            Want::New => "n",
        };
        let idle = &micros(ask.term.and_then(|term| term.idle));
        let total = &micros(ask.term.and_then(|term| term.total));
        let question = |session: Arc<Live<Session>>| async move {
            let place = &*session.place;
            let arguments: [&str; 12] = [
                &session.run,
                &place.quarantine,
                place.trusts(),
                name,
                ask.owner.id(),
                want,
                flag(ask.waiting),
                flag(ask.term.is_some()),
                idle,
                total,
                policy,
                &place.channel,
            ];
            session.call::<(String, Vec<u8>, i64, Option<i64>)>(&ACQUIRE, &arguments).await
        };
        let (what, who, held_for, remaining) = self.ask(&mut limit, question).await?;
        let remaining = remaining.map(from_micros);
        Ok(match &*what {
            "f" => Answer::Free,
            "b" => Answer::Busy { owner: owner(&who), remaining },
            "q" => Answer::Quarantined { remaining: remaining.unwrap_or_default() },
            what => {
                Answer::Granted { token: token(&who), resumed: what == "r", held_for: from_micros(held_for), remaining }
            }
        })
    }

    async fn renew(&self, batch: &mut [Renewal<'_>], _: Duration) -> Result<(), Fail<Error>> {
        batch.iter_mut().for_each(|renewal| renewal.left = Left::Nothing);
        for some in batch.chunks_mut(AT_A_TIME) {
            let words = some.iter().flat_map(|renewal| {
                let term = renewal.term;
                [
                    convert::name(renewal.resource),
                    renewal.owner.id().to_owned(),
                    renewal.token.to_string(),
                    flag(term.is_some()).to_owned(),
                    micros(term.and_then(|term| term.idle)),
                    micros(term.and_then(|term| term.total)),
                ]
            });
            let words: &Vec<String> = &words.collect();
            let question = |session: Arc<Live<Session>>| async move {
                let arguments: Vec<&str> = words.iter().map(String::as_str).collect();
                session.call::<Vec<i64>>(&RENEW, &arguments).await
            };
            let left = self.ask(&mut self.limit(), question).await?;
            for (renewal, left) in some.iter_mut().zip(left) {
                renewal.left = match left {
                    -2 => Left::Forever,
                    -1 => Left::Nothing,
                    micros => Left::For(from_micros(micros)),
                };
            }
        }
        Ok(())
    }

    async fn release(
        &self,
        resource: &Resource,
        owner: &Owner,
        token: Option<Token>,
        _: Duration,
    ) -> Result<Gone, Fail<Error>> {
        self.gone(resource, Some(owner), token).await
    }

    async fn release_token(&self, resource: &Resource, token: Token, _: Duration) -> Result<Gone, Fail<Error>> {
        self.gone(resource, None, Some(token)).await
    }

    async fn release_all(&self, owner: &Owner, _: Duration) -> Result<Vec<Resource>, Fail<Error>> {
        let question = |session: Arc<Live<Session>>| async move {
            session.call::<Vec<Vec<u8>>>(&RELEASE_ALL, &[owner.id(), &session.place.channel]).await
        };
        let names = self.ask(&mut self.limit(), question).await?;
        Ok(names.iter().filter_map(|name| convert::resource(name)).collect())
    }

    async fn look(&self, resource: &Resource, _: Duration) -> Result<Option<Record>, Fail<Error>> {
        let name = &convert::name(resource);
        let question = |session: Arc<Live<Session>>| async move {
            session.call::<Option<(Vec<u8>, Vec<u8>, i64, Option<i64>)>>(&LOOK, &[name]).await
        };
        let found = self.ask(&mut self.limit(), question).await?;
        Ok(found.map(|(id, number, held_for, remaining)| record(&id, &number, held_for, remaining)))
    }

    async fn owned_by(&self, owner: &Owner, _: Duration) -> Result<Vec<Owned>, Fail<Error>> {
        let question = |session: Arc<Live<Session>>| async move {
            session.call::<Vec<(Vec<u8>, Vec<u8>, i64, Option<i64>, String)>>(&OWNED_BY, &[owner.id()]).await
        };
        let found = self.ask(&mut self.limit(), question).await?;
        let owned = found.into_iter().filter_map(|(name, number, held_for, remaining, policy)| {
            let resource = convert::resource(&name)?;
            let record = record(owner.id().as_bytes(), &number, held_for, remaining);
            Some(Owned { resource, record, expiry: convert::expiry(&policy) })
        });
        Ok(owned.collect())
    }

    async fn sweep(&self, limit: usize, _: Duration) -> Result<usize, Fail<Error>> {
        self.ask(&mut self.limit(), |session: Arc<Live<Session>>| async move { session.sweep(limit).await }).await
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
