use std::{future::Future, sync::Arc, time::Duration};

use keylatch_lease::{
    Owner, Resource, Token,
    engine::{Answer, Ask, Engine, Fail, Gone, Left, Listing, Owned, Part, Record, Renewal},
};
use keylatch_lease_remote::{Core, Limit, Live, from_micros};
use redis::RedisResult;

use crate::{
    convert::{self, micros},
    error::{Error, judge},
    scripts::{LIST, LOOK, OWNED_BY, RELEASE_ALL, RENEW},
    session::{Session, flag},
    together::{Decided, Question, owner_of, token},
};

/// The greatest number of leases that one script renews, or looks at for a list. It blocks the server for a few
/// milliseconds.
const AT_A_TIME: usize = 1000;

/// The outcome of an operation.
type Done<T> = Result<T, Fail<Error>>;

/// The engine that keeps leases in Redis: see the [crate's page](crate).
///
/// Clones share the connection. When the last clone is dropped, the driver releases the abandoned leases, and ends.
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
#[derive(Clone, Debug)]
pub struct Redis {
    pub(crate) core: Core<Session>,
}

impl Redis {
    /// Opens the namespace at once, without a quarantine. Do this when it is new, or when you know that nobody relies
    /// on a lease in it. It changes no lease.
    ///
    /// Call it once for each deployment, as you would create a table in a database; or by hand. A program that calls it
    /// at each start has no quarantine any more: see [the crate's page](crate#when-the-server-forgets).
    ///
    /// # Errors
    /// The errors of any operation.
    ///
    /// # Cancel safety
    /// If the future is dropped, the namespace may have been opened or not.
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
        self.ask(&mut self.core.limit(), question).await.map(|_| ()).map_err(Fail::into_cause)
    }

    /// Waits until there is a connection. Operations wait by themselves; this call is for programs that want to check
    /// this when they start.
    ///
    /// # Errors
    /// The errors of any operation: [`Error::Unconnected`] after the [timeout](crate::Options::timeout),
    /// [`Error::Evicts`], [`Error::Stopped`].
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example(redis: keylatch_lease_redis::Redis) -> Result<(), keylatch_lease_redis::Error> {
    /// redis.ready().await?;
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
    /// # fn example(redis: keylatch_lease_redis::Redis) {
    /// assert_eq!(redis.namespace(), "shop");
    /// # }
    /// ```
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.core.namespace()
    }

    /// Sends one request, within the limit.
    async fn ask<T, F>(&self, limit: &mut Limit, question: impl FnOnce(Arc<Live<Session>>) -> F) -> Done<T>
    where
        F: Future<Output = RedisResult<T>>,
    {
        self.core.ask(limit, question).await?.map_err(judge)
    }

    /// Sends a question at once if no other one waits or is under way, and otherwise together with those that wait for
    /// the connection.
    async fn decided(&self, limit: &mut Limit, resource: &Resource, question: Question) -> Done<Decided> {
        let (question, alone) =
            (&Arc::new(question), |session: Arc<Live<Session>>, question: Arc<Question>| async move {
                session.decide_one(&question).await
            });
        self.core.ask_at_once_or_together(limit, resource, question, |session| &session.together, alone).await?
    }

    async fn gone(&self, resource: &Resource, of: Option<&Owner>, token: Option<Token>) -> Done<Gone> {
        let question = Question::release(resource, of, token);
        self.decided(&mut self.core.limit(), resource, question).await.map(Gone::from)
    }
}

fn record(id: &[u8], number: &[u8], held_for: i64, remaining: Option<i64>) -> Record {
    Record {
        owner: owner_of(id),
        token: token(number).unwrap_or_else(|| unreachable!("the scripts return only valid tokens")),
        held_for: from_micros(held_for),
        remaining: remaining.map(from_micros),
    }
}

impl Engine for Redis {
    type Error = Error;

    keylatch_lease_remote::core_methods!(core);

    async fn acquire(&self, ask: Ask<'_>) -> Done<Answer> {
        let mut limit = self.core.settled(&ask).await?;
        self.decided(&mut limit, ask.resource, Question::acquire(&ask)).await.map(Answer::from)
    }

    async fn renew(&self, batch: &mut [Renewal<'_>], _: Duration) -> Done<()> {
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
            let left = self.ask(&mut self.core.limit(), question).await?;
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

    async fn release(&self, resource: &Resource, owner: &Owner, token: Option<Token>, _: Duration) -> Done<Gone> {
        self.gone(resource, Some(owner), token).await
    }

    async fn release_token(&self, resource: &Resource, token: Token, _: Duration) -> Done<Gone> {
        self.gone(resource, None, Some(token)).await
    }

    async fn release_all(&self, owner: &Owner, _: Duration) -> Done<Vec<Resource>> {
        let question = |session: Arc<Live<Session>>| async move {
            session.call::<Vec<Vec<u8>>>(&RELEASE_ALL, &[owner.id(), &session.place.channel]).await
        };
        let names = self.ask(&mut self.core.limit(), question).await?;
        Ok(names.iter().filter_map(|name| convert::resource(name)).collect())
    }

    async fn look(&self, resource: &Resource, _: Duration) -> Done<Option<Record>> {
        let name = &convert::name(resource);
        let question = |session: Arc<Live<Session>>| async move {
            session.call::<Option<(Vec<u8>, Vec<u8>, i64, Option<i64>)>>(&LOOK, &[name]).await
        };
        let found = self.ask(&mut self.core.limit(), question).await?;
        Ok(found.map(|(id, number, held_for, remaining)| record(&id, &number, held_for, remaining)))
    }

    async fn owned_by(&self, owner: &Owner, _: Duration) -> Done<Vec<Owned>> {
        let question = |session: Arc<Live<Session>>| async move {
            session.call::<Vec<(Vec<u8>, Vec<u8>, i64, Option<i64>, String)>>(&OWNED_BY, &[owner.id()]).await
        };
        let found = self.ask(&mut self.core.limit(), question).await?;
        let owned = found.into_iter().filter_map(|(name, number, held_for, remaining, policy)| {
            let resource = convert::resource(&name)?;
            let record = record(owner.id().as_bytes(), &number, held_for, remaining);
            Some(Owned { resource, record, expiry: convert::expiry(&policy) })
        });
        Ok(owned.collect())
    }

    async fn list(&self, part: Part<'_>) -> Done<Listing> {
        // The scripts compare bytes, and a cursor is a member of an index: the owner and the resource.
        let owner = part.owner.map_or("", Owner::id);
        let (after, looked_at) = (part.after.unwrap_or_default(), part.limit.min(AT_A_TIME).to_string());
        if part.after.is_some_and(|after| !after.starts_with(|first: char| first.is_ascii_digit())) {
            return Ok(Listing::UnknownCursor);
        }
        type Row = (Vec<u8>, Vec<u8>, Vec<u8>, i64, Option<i64>);
        let question = |session: Arc<Live<Session>>| async move {
            session.call::<(Vec<u8>, Vec<Row>)>(&LIST, &[owner, part.entity_prefix, after, &looked_at]).await
        };
        let (last, found) = self.ask(&mut self.core.limit(), question).await?;
        let leases = found.into_iter().filter_map(|(name, id, number, held_for, remaining)| {
            Some((convert::resource(&name)?, record(&id, &number, held_for, remaining)))
        });
        let leases = leases.collect();
        Ok(Listing::Page { leases, next: String::from_utf8(last).ok().filter(|last| !last.is_empty()) })
    }

    async fn sweep(&self, limit: usize, _: Duration) -> Done<usize> {
        self.ask(&mut self.core.limit(), |session: Arc<Live<Session>>| async move { session.sweep(limit).await }).await
    }
}
