use std::{future::Future, sync::Arc, time::Duration};

use keylatch_lease::{
    Owner, Resource, Token,
    engine::{Answer, Ask, Engine, Fail, Gone, Left, Listing, Owned, Part, Record, Renewal},
};
use keylatch_lease_remote::{
    Core, Limit, Live, Policy, cursor, from_micros, micros, page_start, prefix_end, resource_of, sleep,
};
use tokio_postgres::{Client, Row};

use crate::{
    convert::{number, parts},
    error::{Error, Failed, Verdict, judge},
    session::Session,
    statements::{LIST, LOOK, OWNED_BY, Parameters, RELEASE_ALL, RENEW, SCHEMA},
    together::{Decided, Question, Wish, answer, gone, is_guarded, owner, remaining, token},
};

/// The greatest number of times that a statement is sent, if the server rolls it back in favour of another.
const TRIES: u32 = 5;

/// The pause before another attempt at a release that a guarded transaction prevents.
const PAUSE: Duration = Duration::from_millis(20);

/// The outcome of an operation.
type Done<T> = Result<T, Fail<Error>>;

/// The engine that keeps leases in a Postgres table: see the [crate's page](crate).
///
/// Clones share the connection. When the last clone is dropped, the driver releases the abandoned leases, and ends.
///
/// # Examples
/// ```no_run
/// # #[cfg(feature = "tokio")]
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
///
/// use keylatch_lease::{Leases, Owner};
/// use keylatch_lease_postgres::{NoTls, Postgres};
///
/// let postgres = Postgres::in_namespace("shop").connect("host=db.example user=shop".parse()?, NoTls);
/// let leases = Leases::with_engine(postgres);
/// let jane = Owner::named("session-42");
/// let grant = leases.try_acquire(("invoice", "2024-17"), &jane, Duration::from_secs(600)).await?;
/// leases.release(&grant).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Postgres {
    pub(crate) core: Core<Session>,
}

impl Postgres {
    /// Creates the table, its index, its functions and its triggers, if they are missing, by running [`SCHEMA`].
    /// Several programs may do so at the same time.
    ///
    /// A new table grants nothing during the [quarantine](crate::Options::quarantine) that begins with its first use,
    /// unless it is [opened](Postgres::init).
    ///
    /// The role needs the right to create in the first schema of its `search_path`. Programs that only use the table
    /// need less: `SELECT`, `INSERT`, `UPDATE` and `DELETE` on it.
    ///
    /// # Errors
    /// The error of the connection, if the server refuses a statement or the connection breaks.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example(client: tokio_postgres::Client) -> Result<(), tokio_postgres::Error> {
    /// use keylatch_lease_postgres::Postgres;
    ///
    /// Postgres::create_table(&client).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn create_table(client: &Client) -> Result<(), tokio_postgres::Error> {
        // All statements are one transaction. The lock is needed because `IF NOT EXISTS` alone fails when two sessions
        // run it at the same time.
        client.batch_execute(&format!("SELECT pg_advisory_xact_lock(7742195483617905421); {SCHEMA}")).await
    }

    /// Opens the table at once, without a quarantine, for all namespaces. Do this when it is new, or when you know that
    /// nobody relies on a lease in it. It changes no lease.
    ///
    /// Call it once for each deployment, when the table is created; or by hand. A program that calls it at each start
    /// has no quarantine any more: see [the crate's page](crate#when-the-database-forgets).
    ///
    /// # Errors
    /// The errors of any operation.
    ///
    /// # Cancel safety
    /// If the future is dropped, the table may have been opened or not.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example(postgres: keylatch_lease_postgres::Postgres) -> Result<(), keylatch_lease_postgres::Error> {
    /// postgres.init().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn init(&self) -> Result<(), Error> {
        let question = |session: Arc<Live<Session>>| async move { session.end_quarantine().await };
        self.ask(&mut self.core.limit(), question).await.map_err(Fail::into_cause)
    }

    /// Waits until there is a connection, and the table has been found. Operations wait by themselves; this call is for
    /// programs that want to check this when they start.
    ///
    /// # Errors
    /// The errors of any operation: [`Error::Unconnected`] after the [timeout](crate::Options::timeout),
    /// [`Error::Missing`], [`Error::Stopped`].
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example(postgres: keylatch_lease_postgres::Postgres) -> Result<(), keylatch_lease_postgres::Error> {
    /// postgres.ready().await?;
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
    /// # fn example(postgres: keylatch_lease_postgres::Postgres) {
    /// assert_eq!(postgres.namespace(), "shop");
    /// # }
    /// ```
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.core.namespace()
    }

    /// Sends a request, within the limit. If the server rolls it back in favour of another, it is sent again, up to
    /// [`TRIES`] times in all.
    async fn ask<T, F>(&self, limit: &mut Limit, question: impl Fn(Arc<Live<Session>>) -> F) -> Done<T>
    where
        F: Future<Output = Result<T, Failed>>,
    {
        let question = &question;
        let question = |session: Arc<Live<Session>>| async move {
            session.batches.sent().await;
            let answer = question(Arc::clone(&session)).await;
            (answer, session.is_pooled())
        };
        let mut tries = 1;
        loop {
            let (answer, is_pooled) = self.core.ask(limit, &question).await?;
            match answer.map_err(judge) {
                // A shared session receives no notifications, and its settings may be those of another client.
                Ok(_) if is_pooled => return Err(Fail::Unknown(Error::Pooled)),
                Ok(answer) => return Ok(answer),
                Err(Verdict::Again(_)) if tries < TRIES => tries += 1,
                Err(Verdict::Again(error)) => return Err(Fail::NotDone(error)),
                Err(Verdict::Failed(fail)) => return Err(fail),
            }
        }
    }

    /// Sends a statement that ends leases. While a guarded transaction keeps a lease from ending, sends it again, until
    /// the limit is reached.
    async fn end<F>(&self, limit: &mut Limit, question: impl Fn(Arc<Live<Session>>) -> F) -> Result<Row, Fail<Error>>
    where
        F: Future<Output = Result<Row, Failed>>,
    {
        loop {
            let row = self.ask(limit, &question).await?;
            if !is_guarded(&row) {
                return Ok(row);
            }
            if limit.of(sleep(PAUSE)).await.is_none() {
                return Err(Fail::NotDone(Error::Guarded));
            }
        }
    }

    async fn acquired(&self, ask: &Ask<'_>) -> Done<Answer> {
        let mut limit = self.core.settled(ask).await?;
        let wish = &Wish::of(ask, self.core.is_polling());
        if let Some(question) = Question::acquire(ask, wish) {
            if let Some(Decided::Acquire(answer)) = self.decided(&mut limit, &question).await? {
                return Ok(answer);
            }
        }
        let question =
            |session: Arc<Live<Session>>| async move { session.acquire(ask.resource, ask.owner, wish).await };
        Ok(answer(&self.ask(&mut limit, question).await?))
    }

    /// Sends a question together with others. Returns `None` if it must be sent alone.
    async fn decided(&self, limit: &mut Limit, question: &Question) -> Done<Option<Decided>> {
        self.core.ask_together(limit, &question.resource, question, |session| &session.batches).await?.transpose()
    }

    async fn gone(
        &self,
        limit: &mut Limit,
        resource: &Resource,
        of: Option<&Owner>,
        token: Option<Token>,
    ) -> Done<Gone> {
        let question = |session: Arc<Live<Session>>| async move { session.release(resource, of, token).await };
        Ok(gone(&self.end(limit, question).await?))
    }
}

fn record(row: &Row) -> Record {
    let held_for = from_micros(row.get(2));
    Record { owner: owner(row, 0), token: token(row, 1), held_for, remaining: remaining(row, 3) }
}

impl Engine for Postgres {
    type Error = Error;

    keylatch_lease_remote::core_methods!(core);

    async fn acquire(&self, ask: Ask<'_>) -> Done<Answer> {
        let answer = self.acquired(&ask).await?;
        self.core.noted(&ask, &answer);
        Ok(answer)
    }

    async fn renew(&self, batch: &mut [Renewal<'_>], _: Duration) -> Done<()> {
        batch.iter_mut().for_each(|renewal| renewal.left = Left::Nothing);
        if batch.is_empty() {
            return Ok(());
        }
        let entities: &Vec<_> = &batch.iter().map(|renewal| renewal.resource.entity().as_bytes()).collect();
        let keys: &Vec<_> = &batch.iter().map(|renewal| renewal.resource.key().as_bytes()).collect();
        let owners: &Vec<_> = &batch.iter().map(|renewal| renewal.owner.id().as_bytes()).collect();
        let tokens: &Vec<_> = &batch.iter().map(|renewal| number(renewal.token)).collect();
        let terms: &Vec<_> = &batch.iter().map(|renewal| renewal.term.is_some()).collect();
        let idles: &Vec<_> = &batch.iter().map(|renewal| micros(renewal.term?.idle?)).collect();
        let totals: &Vec<_> = &batch.iter().map(|renewal| micros(renewal.term?.total?)).collect();
        let question = |session: Arc<Live<Session>>| async move {
            let arguments: Parameters<'_> =
                &[&session.place.namespace, entities, keys, owners, tokens, terms, idles, totals];
            session.ask(&RENEW, arguments).await
        };
        let rows = self.ask(&mut self.core.limit(), question).await?;
        for row in rows {
            let place = usize::try_from(row.get::<_, i64>(0)).ok().and_then(|n| n.checked_sub(1));
            if let Some(renewal) = place.and_then(|place| batch.get_mut(place)) {
                renewal.left = remaining(&row, 1).map_or(Left::Forever, Left::For);
            }
        }
        Ok(())
    }

    async fn release(&self, resource: &Resource, owner: &Owner, token: Option<Token>, _: Duration) -> Done<Gone> {
        let mut limit = self.core.limit();
        if let Some(token) = token {
            let question = Question::release(resource, owner, token);
            if let Some(Decided::Release(gone)) = self.decided(&mut limit, &question).await? {
                return Ok(gone);
            }
        }
        self.gone(&mut limit, resource, Some(owner), token).await
    }

    async fn release_token(&self, resource: &Resource, token: Token, _: Duration) -> Done<Gone> {
        self.gone(&mut self.core.limit(), resource, None, Some(token)).await
    }

    async fn release_all(&self, owner: &Owner, _: Duration) -> Done<Vec<Resource>> {
        let id = owner.id().as_bytes();
        let question = |session: Arc<Live<Session>>| async move {
            session.ask_one(&RELEASE_ALL, &[&session.place.namespace, &id, &session.place.channel]).await
        };
        let row = self.end(&mut self.core.limit(), question).await?;
        let column = |column: usize| row.get::<_, Option<Vec<&[u8]>>>(column).unwrap_or_default();
        let both = column(1).into_iter().zip(column(2));
        Ok(both.map(|(entity, key)| resource(entity, key)).collect())
    }

    async fn look(&self, resource: &Resource, _: Duration) -> Done<Option<Record>> {
        let (entity, key) = parts(resource);
        let question = |session: Arc<Live<Session>>| async move {
            session.ask(&LOOK, &[&session.place.namespace, &entity, &key]).await
        };
        let rows = self.ask(&mut self.core.limit(), question).await?;
        Ok(rows.first().map(record))
    }

    async fn owned_by(&self, owner: &Owner, _: Duration) -> Done<Vec<Owned>> {
        let id = owner.id().as_bytes();
        let question =
            |session: Arc<Live<Session>>| async move { session.ask(&OWNED_BY, &[&session.place.namespace, &id]).await };
        let rows = self.ask(&mut self.core.limit(), question).await?;
        let owned = |row: &Row| Owned {
            resource: resource(row.get(4), row.get(5)),
            record: record(row),
            expiry: Policy { kind: row.get::<_, i8>(6) as u8, idle: row.get(7), total: row.get(8) }.expiry(),
        };
        Ok(rows.iter().map(owned).collect())
    }

    async fn list(&self, part: Part<'_>) -> Done<Listing> {
        let after = match part.after.map(resource_of) {
            Some(None) => return Ok(Listing::UnknownCursor),
            after => after.flatten(),
        };
        let start = page_start(part.entity_prefix, after.as_ref());
        // Rows that are not leases have entities that begin with the byte fe or ff, which no text contains.
        let end = prefix_end(part.entity_prefix).map_or_else(|| vec![0xfe], String::into_bytes);
        let (entity, key, end) = (start.entity().as_bytes(), start.key().as_bytes(), &*end);
        let owner = part.owner.map(|owner| owner.id().as_bytes());
        let limit = i64::try_from(part.limit).unwrap_or(i64::MAX);
        let question = |session: Arc<Live<Session>>| async move {
            session.ask(&LIST, &[&session.place.namespace, &entity, &key, &end, &owner, &limit]).await
        };
        let rows = self.ask(&mut self.core.limit(), question).await?;
        let leases: Vec<_> = rows.iter().map(|row| (resource(row.get(4), row.get(5)), record(row))).collect();
        let next = leases.last().filter(|_| leases.len() == part.limit).map(|(resource, _)| cursor(resource));
        Ok(Listing::Page { leases, next })
    }

    async fn sweep(&self, limit: usize, _: Duration) -> Done<usize> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let forgotten = self.ask(&mut self.core.limit(), |session| async move { session.sweep(limit).await }).await?;
        Ok(usize::try_from(forgotten).unwrap_or(0))
    }
}

fn resource(entity: &[u8], key: &[u8]) -> Resource {
    Resource::new(String::from_utf8_lossy(entity), String::from_utf8_lossy(key))
}
