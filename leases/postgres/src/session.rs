//! A connection that is ready for use: set up, and with its statements prepared.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use keylatch_lease::{Owner, Resource, Token};
use keylatch_lease_remote::{Settings, Tenure, micros};
use tokio_postgres::{Client, Error, Row, SimpleQueryMessage, Statement, types::ToSql};

use crate::{
    convert::{channel, number, parts},
    error::{self, is_pooled, unusable},
    together::{MOST, Together, is_guarded},
};

/// The greatest number of rows that one statement of the driver's sweep removes.
const AT_A_TIME: i64 = 1000;

/// The SQL for migrations: it creates the table, the index, the functions and the triggers that this crate needs. It
/// can be run again, also on an older version, and changes no lease.
/// [`Postgres::create_table`](crate::Postgres::create_table) runs it.
///
/// # Examples
/// ```
/// assert!(keylatch_lease_postgres::SCHEMA.contains("CREATE TABLE IF NOT EXISTS keylatch_lease ("));
/// ```
pub const SCHEMA: &str = include_str!("schema.sql");

// Each answer contains the ID of the server process that gave it: see [`Session::ask`].
const ACQUIRE: &str = "SELECT *, pg_backend_pid() FROM keylatch_lease_acquire_v2($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)";
const TOGETHER: &str = "SELECT *, pg_backend_pid() FROM keylatch_lease_together_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)";
const FIND_MARK: &str = "SELECT FROM keylatch_lease_barred_v1($1, $2, $3)";
const END_QUARANTINE: &str = "UPDATE keylatch_lease SET until = '-infinity'
    WHERE ns = '' AND entity = decode('fe', 'hex') AND key = ''";
/// Reads the identifier of the database system, which is unique.
const SYSTEM: &str = "SELECT system_identifier::text FROM pg_control_system()";
const RENEW: &str = "SELECT *, pg_backend_pid() FROM keylatch_lease_renew_v1($1, $2, $3, $4, $5, $6, $7, $8)";
const RELEASE: &str = "SELECT *, pg_backend_pid() FROM keylatch_lease_release_v1($1, $2, $3, $4, $5, $6)";
const RELEASE_ALL: &str = "SELECT *, pg_backend_pid() FROM keylatch_lease_release_all_v1($1, $2, $3)";
const SWEEP: &str = "SELECT keylatch_lease_sweep_v1($1, $2)";
// The clock is read before the snapshot is taken. If it were read after it, a lease that was renewed in between would
// look expired.
const LOOK: &str = "WITH clock AS MATERIALIZED (SELECT statement_timestamp() AS now)
    SELECT owner, token, greatest(extract(epoch FROM now - since) * 1000000, 0)::bigint,
        (extract(epoch FROM nullif(until, 'infinity') - now) * 1000000)::bigint
    FROM keylatch_lease, clock WHERE ns = $1 AND entity = $2 AND key = $3 AND until > now";
const OWNED_BY: &str = "WITH clock AS MATERIALIZED (SELECT statement_timestamp() AS now)
    SELECT owner, token, greatest(extract(epoch FROM now - since) * 1000000, 0)::bigint,
        (extract(epoch FROM nullif(until, 'infinity') - now) * 1000000)::bigint,
        entity, key, policy, idle, total
    FROM keylatch_lease, clock WHERE ns = $1 AND owner = $2 AND until > now";

/// The rows that are no leases are left out: their entities are no text.
const LIST: &str = "WITH clock AS MATERIALIZED (SELECT statement_timestamp() AS now)
    SELECT owner, token, greatest(extract(epoch FROM now - since) * 1000000, 0)::bigint,
        (extract(epoch FROM nullif(until, 'infinity') - now) * 1000000)::bigint,
        entity, key
    FROM keylatch_lease, clock WHERE ns = $1 AND until > now
        AND (entity, key) >= ($2, $3) AND entity < $4 AND ($5::bytea IS NULL OR owner = $5)
    ORDER BY entity, key LIMIT $6";

/// The namespace that an engine uses, its channel, and the rules for its quarantine.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) namespace: String,
    pub(crate) channel: String,
    /// The length of a quarantine, in microseconds.
    pub(crate) quarantine: i64,
    /// Whether failovers are trusted to forget nothing.
    pub(crate) trusts: bool,
}

impl Place {
    pub(crate) fn new(settings: &Settings, trusts: bool) -> Self {
        let namespace = settings.namespace.clone();
        let channel = channel(&namespace);
        Place { namespace, channel, quarantine: micros(settings.quarantine).unwrap_or(0), trusts }
    }
}

pub(crate) struct Session {
    pub(crate) place: Arc<Place>,
    /// The identifier of the database system.
    pub(crate) system: String,
    pub(crate) client: Client,
    /// The ID of the server process that serves the session.
    process: i32,
    /// Whether another server process has answered, because a pooler shares the session.
    is_pooled: AtomicBool,
    /// The questions that wait for the connection.
    pub(crate) batches: Arc<Together>,
    pub(crate) acquire: Statement,
    pub(crate) together: Statement,
    pub(crate) renew: Statement,
    pub(crate) release: Statement,
    pub(crate) release_all: Statement,
    pub(crate) look: Statement,
    pub(crate) owned_by: Statement,
    pub(crate) list: Statement,
    pub(crate) sweep: Statement,
}

impl Session {
    /// Prepares the statements, and sets what leases need, whatever the defaults of the database, the role or the
    /// configuration are.
    ///
    /// Nothing is set before it is as certain as possible that no other client has the session: through a pooler that
    /// shares it, other clients would get these settings too.
    pub(crate) async fn open(client: Client, place: Arc<Place>, timeout: Duration) -> Result<Self, error::Error> {
        let failed = |error: Error| unusable(error.into());
        // A new session, or one that a pooler has reset, listens to no channel.
        let (process, 0) = listening(&client).await.map_err(failed)? else { return Err(error::Error::Pooled) };
        let session = Session {
            system: client.query_one(SYSTEM, &[]).await.map_err(failed)?.get(0),
            acquire: client.prepare(ACQUIRE).await.map_err(failed)?,
            together: client.prepare(TOGETHER).await.map_err(failed)?,
            renew: client.prepare(RENEW).await.map_err(failed)?,
            release: client.prepare(RELEASE).await.map_err(failed)?,
            release_all: client.prepare(RELEASE_ALL).await.map_err(failed)?,
            look: client.prepare(LOOK).await.map_err(failed)?,
            owned_by: client.prepare(OWNED_BY).await.map_err(failed)?,
            list: client.prepare(LIST).await.map_err(failed)?,
            sweep: client.prepare(SWEEP).await.map_err(failed)?,
            process,
            batches: Arc::new(Together::new(MOST)),
            is_pooled: AtomicBool::new(false),
            place,
            client,
        };
        if listening(&session.client).await.map_err(failed)? != (process, 0) {
            return Err(error::Error::Pooled);
        }
        // The server gives up before the client does, so that the connection can be kept.
        let statement_timeout = (timeout / 2).as_millis().clamp(1, i32::MAX as u128);
        let set = format!(
            "SET default_transaction_isolation = 'read committed'; \
             SET default_transaction_read_only = off; \
             SET statement_timeout = {statement_timeout}; \
             SET lock_timeout = 0; \
             SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'; \
             SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout'; \
             LISTEN keylatch_lease; LISTEN {}",
            session.place.channel
        );
        session.client.batch_execute(&set).await.map_err(failed)?;
        if listening(&session.client).await.map_err(failed)? != (process, 2) {
            return Err(error::Error::Pooled);
        }
        Ok(session)
    }

    /// Returns the server's answer. Its last column is the ID of the server process. If that differs from the first
    /// one, a pooler shares the session among its clients, and the session is not used any more.
    pub(crate) async fn ask(
        &self,
        statement: &Statement,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Error> {
        let rows = self.client.query(statement, parameters).await.inspect_err(|error| self.note(error))?;
        if rows.iter().any(|row| row.get::<_, i32>(row.len() - 1) != self.process) {
            self.is_pooled.store(true, Relaxed);
        }
        Ok(rows)
    }

    /// Returns the server's answer, which is one row.
    pub(crate) async fn ask_one(
        &self,
        statement: &Statement,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Row, Error> {
        let mut rows = self.ask(statement, parameters).await?;
        Ok(rows.pop().unwrap_or_else(|| unreachable!("the function returns one row")))
    }

    /// Notes that a statement has failed. If the server does not know the statement, it was prepared in another
    /// session.
    pub(crate) fn note(&self, error: &Error) {
        if error.code().is_some_and(is_pooled) {
            self.is_pooled.store(true, Relaxed);
        }
    }

    /// Returns whether a pooler was found that shares the session among its clients.
    pub(crate) fn is_pooled(&self) -> bool {
        self.is_pooled.load(Relaxed)
    }

    /// Ends a tenure, of any owner if none is given, unless it [is guarded](is_guarded).
    pub(crate) async fn release(
        &self,
        resource: &Resource,
        owner: Option<&Owner>,
        token: Option<Token>,
    ) -> Result<Row, Error> {
        let ((entity, key), id) = (parts(resource), owner.map(|owner| owner.id().as_bytes()));
        let (Place { namespace, channel, .. }, token) = (&*self.place, token.map(number));
        let parameters: [&(dyn ToSql + Sync); 6] = [namespace, &entity, &key, &id, &token, channel];
        self.ask_one(&self.release, &parameters).await
    }

    /// Writes the mark if it is missing, and ends its quarantine.
    pub(crate) async fn end_quarantine(&self) -> Result<(), Error> {
        let Place { quarantine, trusts, .. } = &*self.place;
        self.client.execute(FIND_MARK, &[&self.system, quarantine, trusts]).await?;
        self.client.execute(END_QUARANTINE, &[]).await.map(|_| ())
    }

    /// Removes the rows of leases that ended long ago, and returns their number.
    pub(crate) async fn sweep(&self, limit: i64) -> Result<i64, Error> {
        let row = self.client.query_one(&self.sweep, &[&self.place.namespace, &limit]).await?;
        Ok(row.get(0))
    }
}

/// Returns the ID of the server process, and the number of channels that its session listens to. Needs no prepared
/// statement.
async fn listening(client: &Client) -> Result<(i32, i64), Error> {
    let told = client.simple_query("SELECT pg_backend_pid(), (SELECT count(*) FROM pg_listening_channels())").await?;
    let row = told.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some((row.get(0)?.parse().ok()?, row.get(1)?.parse().ok()?)),
        _ => None,
    });
    Ok(row.unwrap_or_else(|| unreachable!("the query returns two numbers")))
}

impl keylatch_lease_remote::Session for Session {
    type Error = error::Error;

    fn is_closed(&self) -> bool {
        self.client.is_closed() || self.is_pooled()
    }

    fn failure(&self) -> Option<error::Error> {
        self.is_pooled().then_some(error::Error::Pooled)
    }

    async fn give_back(&self, Tenure { resource, owner, token }: &Tenure) -> bool {
        self.release(resource, Some(owner), Some(*token)).await.is_ok_and(|row| !is_guarded(&row))
    }

    async fn sweep(&self) -> bool {
        self.sweep(AT_A_TIME).await.is_ok_and(|forgotten| forgotten >= AT_A_TIME)
    }
}
