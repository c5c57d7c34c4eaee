use std::{future::Future, sync::Arc, time::Duration};

use keylatch_lease::{
    Owner, Resource, Token,
    engine::{Answer, Ask, Engine, Fail, Gone, Left, Owned, Record, Renewal, Want},
};
use keylatch_lease_remote::{Core, Limit, Live, Policy, from_micros, micros, sleep};
use tokio_postgres::{Client, Row};

use crate::{
    convert::{number, parts},
    error::{Error, Verdict, judge},
    session::{SCHEMA, Session, is_guarded, what},
};

/// The number of times that a statement is sent when the server rolls it back in favour of another.
const TRIES: u32 = 5;

/// When to ask again for what a guarded transaction keeps.
const PAUSE: Duration = Duration::from_millis(20);
const GUARDED: Duration = Duration::from_millis(100);

/// The outcome of an operation.
type Done<T> = Result<T, Fail<Error>>;

/// Leases in a Postgres table: see the [crate's page](crate).
///
/// Clones share the connection. When the last one is dropped the driver ends, as soon as it has given back what was abandoned.
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
    /// Creates what is missing of the table, its index and its functions, by running [`SCHEMA`]. Several may do so at the same time.
    ///
    /// One that is new grants nothing in its first minute, unless it is [opened](Postgres::init).
    ///
    /// The role needs the right to create in the first schema of its `search_path`. Programs need less: `SELECT`, `INSERT`, `UPDATE` and
    /// `DELETE` on the table.
    ///
    /// # Errors
    /// A refusal by the server.
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
        // All of it is one transaction; `IF NOT EXISTS` alone fails when two come at the same time.
        client.batch_execute(&format!("SELECT pg_advisory_xact_lock(7742195483617905421); {SCHEMA}")).await
    }

    /// Opens the table at once, without a quarantine, for all namespaces: one that is new, or of which you know that nobody goes by a lease. It
    /// changes no lease.
    ///
    /// Once, in a deployment, as the table is created; or by hand. A program that calls it at each start has no quarantine any more: see
    /// [the crate's page](crate#when-the-database-forgets).
    ///
    /// # Errors
    /// As any operation.
    ///
    /// # Cancel safety
    /// Dropped, it has been done or not.
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

    /// Waits until there is a connection, and the table has been found. Operations do so by themselves: this is for who wants to know
    /// at the start.
    ///
    /// # Errors
    /// As any operation: [`Error::Unconnected`] after the [timeout](crate::Options::timeout), [`Error::Missing`], [`Error::Stopped`].
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

    /// The namespace.
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

    /// Sends one statement, in the time that there is.
    async fn ask<T, F>(&self, limit: &mut Limit, question: impl Fn(Arc<Live<Session>>) -> F) -> Done<T>
    where
        F: Future<Output = Result<T, tokio_postgres::Error>>,
    {
        let question = |session: Arc<Live<Session>>| {
            let answer = question(Arc::clone(&session));
            async move { (answer.await.inspect_err(|error| session.note(error)), session.is_pooled()) }
        };
        let mut tries = 1;
        loop {
            let (answer, is_pooled) = self.core.ask(limit, &question).await?;
            match answer.map_err(judge) {
                // It is told of nothing; and what it has set may be another's.
                Ok(_) if is_pooled => return Err(Fail::Unknown(Error::Pooled)),
                Ok(answer) => return Ok(answer),
                Err(Verdict::Again(_)) if tries < TRIES => tries += 1,
                Err(Verdict::Again(error)) => return Err(Fail::NotDone(error)),
                Err(Verdict::Failed(fail)) => return Err(fail),
            }
        }
    }

    /// The same statement again and again, while a guarded transaction keeps the lease from ending.
    async fn end<F>(&self, question: impl Fn(Arc<Live<Session>>) -> F) -> Result<Row, Fail<Error>>
    where
        F: Future<Output = Result<Row, tokio_postgres::Error>>,
    {
        let mut limit = self.core.limit();
        loop {
            let row = self.ask(&mut limit, &question).await?;
            if !is_guarded(&row) {
                return Ok(row);
            }
            if limit.of(sleep(PAUSE)).await.is_none() {
                return Err(Fail::NotDone(Error::Guarded));
            }
        }
    }

    async fn gone(&self, resource: &Resource, of: Option<&Owner>, token: Option<Token>) -> Done<Gone> {
        let question = |session: Arc<Live<Session>>| async move { session.release(resource, of, token).await };
        let row = self.end(question).await?;
        Ok(match what(&row) {
            b'g' => Gone::Released,
            b'b' => Gone::NotOwner(owner(&row, 1)),
            _ => Gone::NotHeld,
        })
    }
}

fn owner(row: &Row, column: usize) -> Owner {
    Owner::from_id(&String::from_utf8_lossy(row.get(column)))
}

fn token(row: &Row, column: usize) -> Token {
    let number = u64::try_from(row.get::<_, i64>(column)).ok();
    number.and_then(Token::new).unwrap_or_else(|| unreachable!("the table has no other tokens"))
}

fn remaining(row: &Row, column: usize) -> Option<Duration> {
    row.get::<_, Option<i64>>(column).map(from_micros)
}

fn record(row: &Row) -> Record {
    let held_for = from_micros(row.get(2));
    Record { owner: owner(row, 0), token: token(row, 1), held_for, remaining: remaining(row, 3) }
}

impl Engine for Postgres {
    type Error = Error;

    keylatch_lease_remote::core_methods!(core);

    async fn acquire(&self, ask: Ask<'_>) -> Done<Answer> {
        let mut limit = self.core.settled(&ask).await?;
        let ((entity, key), id) = (parts(ask.resource), ask.owner.id().as_bytes());
        let want = match ask.want {
            Want::Any => b'a',
            Want::Fresh => b'f',
            Want::Mine => b'm',
            Want::New => b'n',
        } as i8;
        let idle = ask.term.and_then(|term| term.idle).and_then(micros);
        let total = ask.term.and_then(|term| term.total).and_then(micros);
        let has_term = ask.term.is_some();
        let policy = Policy::of(ask.expiry);
        let kind = policy.kind as i8;
        let question = |session: Arc<Live<Session>>| async move {
            let arguments: [&(dyn tokio_postgres::types::ToSql + Sync); 16] = [
                &session.place.namespace,
                &entity,
                &key,
                &id,
                &want,
                &ask.waiting,
                &has_term,
                &idle,
                &total,
                &kind,
                &policy.idle,
                &policy.total,
                &session.place.channel,
                &session.system,
                &session.place.quarantine,
                &session.place.trusts,
            ];
            session.ask_one(&session.acquire, &arguments).await
        };
        let row = self.ask(&mut limit, question).await?;
        Ok(match what(&row) {
            b'f' => Answer::Free,
            b'q' => Answer::Quarantined { remaining: remaining(&row, 4).unwrap_or_default() },
            b'b' => Answer::Busy { owner: owner(&row, 1), remaining: remaining(&row, 4) },
            b't' => Answer::Busy { owner: owner(&row, 1), remaining: Some(GUARDED) },
            what => Answer::Granted {
                token: token(&row, 2),
                resumed: what == b'r',
                held_for: from_micros(row.get(3)),
                remaining: remaining(&row, 4),
            },
        })
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
            let arguments: [&(dyn tokio_postgres::types::ToSql + Sync); 8] =
                [&session.place.namespace, entities, keys, owners, tokens, terms, idles, totals];
            session.ask(&session.renew, &arguments).await
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
        self.gone(resource, Some(owner), token).await
    }

    async fn release_token(&self, resource: &Resource, token: Token, _: Duration) -> Done<Gone> {
        self.gone(resource, None, Some(token)).await
    }

    async fn release_all(&self, owner: &Owner, _: Duration) -> Done<Vec<Resource>> {
        let id = owner.id().as_bytes();
        let question = |session: Arc<Live<Session>>| async move {
            session.ask_one(&session.release_all, &[&session.place.namespace, &id, &session.place.channel]).await
        };
        let row = self.end(question).await?;
        let column = |column: usize| row.get::<_, Option<Vec<&[u8]>>>(column).unwrap_or_default();
        let both = column(1).into_iter().zip(column(2));
        Ok(both.map(|(entity, key)| resource(entity, key)).collect())
    }

    async fn look(&self, resource: &Resource, _: Duration) -> Done<Option<Record>> {
        let (entity, key) = parts(resource);
        let question = |session: Arc<Live<Session>>| async move {
            session.client.query_opt(&session.look, &[&session.place.namespace, &entity, &key]).await
        };
        let row = self.ask(&mut self.core.limit(), question).await?;
        Ok(row.as_ref().map(record))
    }

    async fn owned_by(&self, owner: &Owner, _: Duration) -> Done<Vec<Owned>> {
        let id = owner.id().as_bytes();
        let question = |session: Arc<Live<Session>>| async move {
            session.client.query(&session.owned_by, &[&session.place.namespace, &id]).await
        };
        let rows = self.ask(&mut self.core.limit(), question).await?;
        let owned = |row: &Row| Owned {
            resource: resource(row.get(4), row.get(5)),
            record: record(row),
            expiry: Policy { kind: row.get::<_, i8>(6) as u8, idle: row.get(7), total: row.get(8) }.expiry(),
        };
        Ok(rows.iter().map(owned).collect())
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
