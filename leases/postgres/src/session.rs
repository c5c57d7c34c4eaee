//! A connection that is ready for use: set up, and with its statements prepared.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    time::Duration,
};

use tokio_postgres::{Client, Error, Statement};

/// What this crate needs in the database, for migrations: a table, an index, and functions. It can be run again, on an older version as
/// well, and changes no lease. [`Postgres::create_table`](crate::Postgres::create_table) runs it.
///
/// # Examples
/// ```
/// assert!(keylatch_lease_postgres::SCHEMA.contains("CREATE TABLE IF NOT EXISTS keylatch_lease ("));
/// ```
pub const SCHEMA: &str = include_str!("schema.sql");

const ACQUIRE: &str = "SELECT * FROM keylatch_lease_acquire_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";
const RENEW: &str = "SELECT * FROM keylatch_lease_renew_v1($1, $2, $3, $4, $5, $6, $7, $8)";
const RELEASE: &str = "SELECT * FROM keylatch_lease_release_v1($1, $2, $3, $4, $5, $6)";
const RELEASE_ALL: &str = "SELECT * FROM keylatch_lease_release_all_v1($1, $2, $3)";
const SWEEP: &str = "SELECT keylatch_lease_sweep_v1($1, $2)";
const LOOK: &str = "WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now)
    SELECT owner, token, greatest(extract(epoch FROM now - since) * 1000000, 0)::bigint,
        (extract(epoch FROM nullif(until, 'infinity') - now) * 1000000)::bigint
    FROM keylatch_lease, clock WHERE ns = $1 AND entity = $2 AND key = $3 AND until > now";
const OWNED_BY: &str = "WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now)
    SELECT owner, token, greatest(extract(epoch FROM now - since) * 1000000, 0)::bigint,
        (extract(epoch FROM nullif(until, 'infinity') - now) * 1000000)::bigint,
        entity, key, policy, idle, total
    FROM keylatch_lease, clock WHERE ns = $1 AND owner = $2 AND until > now";

pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) acquire: Statement,
    pub(crate) renew: Statement,
    pub(crate) release: Statement,
    pub(crate) release_all: Statement,
    pub(crate) look: Statement,
    pub(crate) owned_by: Statement,
    pub(crate) sweep: Statement,
    /// Whether the server has stopped answering.
    is_silent: AtomicBool,
    /// How many answers there have been.
    answers: AtomicU64,
}

impl Session {
    /// Whatever the database, the role or the user's configuration set by default, leases need these.
    pub(crate) async fn open(client: Client, channel: &str, timeout: Duration) -> Result<Self, Error> {
        // The server gives up before the client does, and the connection goes on.
        let statement_timeout = (timeout / 2).as_millis().clamp(1, i32::MAX as u128);
        let set = format!(
            "SET default_transaction_isolation = 'read committed'; \
             SET default_transaction_read_only = off; \
             SET statement_timeout = {statement_timeout}; \
             SET lock_timeout = 0; \
             SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'; \
             LISTEN {channel}"
        );
        client.batch_execute(&set).await?;
        Ok(Session {
            acquire: client.prepare(ACQUIRE).await?,
            renew: client.prepare(RENEW).await?,
            release: client.prepare(RELEASE).await?,
            release_all: client.prepare(RELEASE_ALL).await?,
            look: client.prepare(LOOK).await?,
            owned_by: client.prepare(OWNED_BY).await?,
            sweep: client.prepare(SWEEP).await?,
            client,
            is_silent: AtomicBool::new(false),
            answers: AtomicU64::new(0),
        })
    }

    pub(crate) fn is_usable(&self) -> bool {
        !self.is_silent.load(SeqCst) && !self.client.is_closed()
    }

    pub(crate) fn answers(&self) -> u64 {
        self.answers.load(SeqCst)
    }

    pub(crate) fn has_answered(&self) {
        self.answers.fetch_add(1, SeqCst);
    }

    pub(crate) fn mark_silent(&self) {
        self.is_silent.store(true, SeqCst);
    }
}
