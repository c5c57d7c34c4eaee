//! A connection that is ready for use: set up, and with its statements prepared.

use std::{sync::Arc, time::Duration};

use keylatch_lease::{Owner, Resource, Token};
use keylatch_lease_remote::Tenure;
use tokio_postgres::{Client, Error, Row, Statement, types::ToSql};

use crate::{
    convert::{channel, number, parts},
    error,
};

/// How many rows go at a time.
const AT_A_TIME: i64 = 1000;

/// What this crate needs in the database, for migrations: a table, an index, and functions. It can be run again, on an older version as
/// well, and changes no lease. [`Postgres::create_table`](crate::Postgres::create_table) runs it.
///
/// # Examples
/// ```
/// assert!(keylatch_lease_postgres::SCHEMA.contains("CREATE TABLE IF NOT EXISTS keylatch_lease ("));
/// ```
pub const SCHEMA: &str = include_str!("schema.sql");

const ACQUIRE: &str =
    "SELECT * FROM keylatch_lease_acquire_v2($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)";
const FIND_MARK: &str = "SELECT FROM keylatch_lease_barred_v1($1, $2, $3)";
const END_QUARANTINE: &str = "UPDATE keylatch_lease SET until = '-infinity'
    WHERE ns = '' AND entity = decode('fe', 'hex') AND key = ''";
/// What no other database has.
const SYSTEM: &str = "SELECT system_identifier::text FROM pg_control_system()";
const RENEW: &str = "SELECT * FROM keylatch_lease_renew_v1($1, $2, $3, $4, $5, $6, $7, $8)";
const RELEASE: &str = "SELECT * FROM keylatch_lease_release_v1($1, $2, $3, $4, $5, $6)";
const RELEASE_ALL: &str = "SELECT * FROM keylatch_lease_release_all_v1($1, $2, $3)";
const SWEEP: &str = "SELECT keylatch_lease_sweep_v1($1, $2)";
// The clock is read before the snapshot is taken: read after it, a lease that was renewed between the two would look expired.
const LOOK: &str = "WITH clock AS MATERIALIZED (SELECT statement_timestamp() AS now)
    SELECT owner, token, greatest(extract(epoch FROM now - since) * 1000000, 0)::bigint,
        (extract(epoch FROM nullif(until, 'infinity') - now) * 1000000)::bigint
    FROM keylatch_lease, clock WHERE ns = $1 AND entity = $2 AND key = $3 AND until > now";
const OWNED_BY: &str = "WITH clock AS MATERIALIZED (SELECT statement_timestamp() AS now)
    SELECT owner, token, greatest(extract(epoch FROM now - since) * 1000000, 0)::bigint,
        (extract(epoch FROM nullif(until, 'infinity') - now) * 1000000)::bigint,
        entity, key, policy, idle, total
    FROM keylatch_lease, clock WHERE ns = $1 AND owner = $2 AND until > now";

/// Where the leases are, and who is told.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) namespace: String,
    pub(crate) channel: String,
    /// How long nothing is granted when something may have been forgotten, in microseconds.
    pub(crate) quarantine: i64,
    /// Whether a failover forgets nothing.
    pub(crate) trusts: bool,
}

impl Place {
    pub(crate) fn new(namespace: String, quarantine: i64, trusts: bool) -> Self {
        let channel = channel(&namespace);
        Place { namespace, channel, quarantine, trusts }
    }
}

pub(crate) struct Session {
    pub(crate) place: Arc<Place>,
    /// Which database system this is.
    pub(crate) system: String,
    pub(crate) client: Client,
    pub(crate) acquire: Statement,
    pub(crate) renew: Statement,
    pub(crate) release: Statement,
    pub(crate) release_all: Statement,
    pub(crate) look: Statement,
    pub(crate) owned_by: Statement,
    pub(crate) sweep: Statement,
}

impl Session {
    /// Whatever the database, the role or the user's configuration set by default, leases need these.
    pub(crate) async fn open(client: Client, place: Arc<Place>, timeout: Duration) -> Result<Self, Error> {
        // The server gives up before the client does, and the connection goes on.
        let statement_timeout = (timeout / 2).as_millis().clamp(1, i32::MAX as u128);
        let set = format!(
            "SET default_transaction_isolation = 'read committed'; \
             SET default_transaction_read_only = off; \
             SET statement_timeout = {statement_timeout}; \
             SET lock_timeout = 0; \
             SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'; \
             SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout'; \
             LISTEN keylatch_lease; LISTEN {}",
            place.channel
        );
        client.batch_execute(&set).await?;
        Ok(Session {
            system: client.query_one(SYSTEM, &[]).await?.get(0),
            acquire: client.prepare(ACQUIRE).await?,
            renew: client.prepare(RENEW).await?,
            release: client.prepare(RELEASE).await?,
            release_all: client.prepare(RELEASE_ALL).await?,
            look: client.prepare(LOOK).await?,
            owned_by: client.prepare(OWNED_BY).await?,
            sweep: client.prepare(SWEEP).await?,
            place,
            client,
        })
    }

    /// Ends a tenure: see [`is_guarded`]. Without an owner, whoever's it is.
    pub(crate) async fn release(
        &self,
        resource: &Resource,
        owner: Option<&Owner>,
        token: Option<Token>,
    ) -> Result<Row, Error> {
        let ((entity, key), id) = (parts(resource), owner.map(|owner| owner.id().as_bytes()));
        let (Place { namespace, channel, .. }, token) = (&*self.place, token.map(number));
        let parameters: [&(dyn ToSql + Sync); 6] = [namespace, &entity, &key, &id, &token, channel];
        self.client.query_one(&self.release, &parameters).await
    }

    /// Nothing has been forgotten that anybody still goes by.
    pub(crate) async fn end_quarantine(&self) -> Result<(), Error> {
        let Place { quarantine, trusts, .. } = &*self.place;
        self.client.execute(FIND_MARK, &[&self.system, quarantine, trusts]).await?;
        self.client.execute(END_QUARANTINE, &[]).await.map(|_| ())
    }

    /// How many leases have been forgotten.
    pub(crate) async fn sweep(&self, limit: i64) -> Result<i64, Error> {
        let row = self.client.query_one(&self.sweep, &[&self.place.namespace, &limit]).await?;
        Ok(row.get(0))
    }
}

/// What a function's answer begins with.
pub(crate) fn what(row: &Row) -> u8 {
    row.get::<_, i8>(0) as u8
}

/// A guarded transaction keeps the lease from ending.
pub(crate) fn is_guarded(row: &Row) -> bool {
    what(row) == b't'
}

impl keylatch_lease_remote::Session for Session {
    type Error = error::Error;

    fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    async fn give_back(&self, Tenure { resource, owner, token }: &Tenure) -> bool {
        self.release(resource, Some(owner), Some(*token)).await.is_ok_and(|row| !is_guarded(&row))
    }

    async fn sweep(&self) -> bool {
        self.sweep(AT_A_TIME).await.is_ok_and(|forgotten| forgotten >= AT_A_TIME)
    }
}
