//! The statements of the engine, with the types of their parameters.

use std::time::Duration;

use tokio_postgres::types::{ToSql, Type};

/// The SQL for migrations: it creates the table, the index, the functions and the triggers that this crate needs. It
/// can be run again, even on the tables of an older version, and changes no lease.
/// [`Postgres::create_table`](crate::Postgres::create_table) runs it.
///
/// # Examples
/// ```
/// assert!(keylatch_lease_postgres::SCHEMA.contains("CREATE TABLE IF NOT EXISTS keylatch_lease ("));
/// ```
pub const SCHEMA: &str = include_str!("schema.sql");

/// A statement. The last column of each row that it returns is the ID of the server process that gave the answer. An
/// engine with its own session detects a pooler by that ID.
pub(crate) struct Statement {
    pub(crate) sql: &'static str,
    types: &'static [Type],
}

/// The parameters of a statement.
pub(crate) type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

impl Statement {
    /// Returns the parameters with their types, as needed by a statement that is not prepared.
    pub(crate) fn typed<'a>(&self, parameters: Parameters<'a>) -> Vec<(&'a (dyn ToSql + Sync), Type)> {
        debug_assert_eq!(parameters.len(), self.types.len());
        parameters.iter().copied().zip(self.types.iter().cloned()).collect()
    }
}

/// The statements that an engine with its own session prepares.
pub(crate) static PREPARED: [&Statement; 9] =
    [&ACQUIRE, &TOGETHER, &RENEW, &RELEASE, &RELEASE_ALL, &LOOK, &OWNED_BY, &LIST, &SWEEP];

/// Reads the identifier of the database system, which is unique.
pub(crate) const SYSTEM: &str = "SELECT system_identifier::text FROM pg_control_system()";

/// Returns the server's time limit for a statement, in milliseconds. The server gives up before the client does, so
/// that the connection can be kept.
pub(crate) fn statement_timeout(timeout: Duration) -> u128 {
    (timeout / 2).as_millis().clamp(1, i32::MAX as u128)
}

/// The identifier of the database system: the given one, or if that is NULL, the one that the server itself reports
/// when it carries out the statement.
macro_rules! system {
    ($parameter:literal) => {
        concat!("coalesce(", $parameter, ", (SELECT system_identifier::text FROM pg_control_system()))")
    };
}

pub(crate) static ACQUIRE: Statement = Statement {
    sql: concat!(
        "SELECT *, pg_backend_pid() FROM keylatch_lease_acquire_v2(
            $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, ",
        system!("$14"),
        ", $15, $16)"
    ),
    types: &[
        Type::TEXT,
        Type::BYTEA,
        Type::BYTEA,
        Type::BYTEA,
        Type::CHAR,
        Type::BOOL,
        Type::BOOL,
        Type::INT8,
        Type::INT8,
        Type::CHAR,
        Type::INT8,
        Type::INT8,
        Type::TEXT,
        Type::TEXT,
        Type::INT8,
        Type::BOOL,
    ],
};

pub(crate) static TOGETHER: Statement = Statement {
    sql: concat!(
        "SELECT *, pg_backend_pid() FROM keylatch_lease_together_v1(
            $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, ",
        system!("$13"),
        ", $14, $15)"
    ),
    types: &[
        Type::TEXT,
        Type::BYTEA_ARRAY,
        Type::BYTEA_ARRAY,
        Type::BYTEA_ARRAY,
        Type::INT8_ARRAY,
        Type::BOOL_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::CHAR_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::TEXT,
        Type::TEXT,
        Type::INT8,
        Type::BOOL,
    ],
};

pub(crate) static RENEW: Statement = Statement {
    sql: "SELECT *, pg_backend_pid() FROM keylatch_lease_renew_v1($1, $2, $3, $4, $5, $6, $7, $8)",
    types: &[
        Type::TEXT,
        Type::BYTEA_ARRAY,
        Type::BYTEA_ARRAY,
        Type::BYTEA_ARRAY,
        Type::INT8_ARRAY,
        Type::BOOL_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
    ],
};

pub(crate) static RELEASE: Statement = Statement {
    sql: "SELECT *, pg_backend_pid() FROM keylatch_lease_release_v1($1, $2, $3, $4, $5, $6)",
    types: &[Type::TEXT, Type::BYTEA, Type::BYTEA, Type::BYTEA, Type::INT8, Type::TEXT],
};

pub(crate) static RELEASE_ALL: Statement = Statement {
    sql: "SELECT *, pg_backend_pid() FROM keylatch_lease_release_all_v1($1, $2, $3)",
    types: &[Type::TEXT, Type::BYTEA, Type::TEXT],
};

// The clock is read before the snapshot is taken. If it were read afterwards, a lease that was renewed in between would
// look expired.
pub(crate) static LOOK: Statement = Statement {
    sql: "WITH clock AS MATERIALIZED (SELECT statement_timestamp() AS now)
        SELECT owner, token, greatest(extract(epoch FROM now - since) * 1000000, 0)::bigint,
            (extract(epoch FROM nullif(until, 'infinity') - now) * 1000000)::bigint,
            pg_backend_pid()
        FROM keylatch_lease, clock WHERE ns = $1 AND entity = $2 AND key = $3 AND until > now",
    types: &[Type::TEXT, Type::BYTEA, Type::BYTEA],
};

pub(crate) static OWNED_BY: Statement = Statement {
    sql: "WITH clock AS MATERIALIZED (SELECT statement_timestamp() AS now)
        SELECT owner, token, greatest(extract(epoch FROM now - since) * 1000000, 0)::bigint,
            (extract(epoch FROM nullif(until, 'infinity') - now) * 1000000)::bigint,
            entity, key, policy, idle, total, pg_backend_pid()
        FROM keylatch_lease, clock WHERE ns = $1 AND owner = $2 AND until > now",
    types: &[Type::TEXT, Type::BYTEA],
};

/// The rows that are not leases are left out: their entities are not text.
pub(crate) static LIST: Statement = Statement {
    sql: "WITH clock AS MATERIALIZED (SELECT statement_timestamp() AS now)
        SELECT owner, token, greatest(extract(epoch FROM now - since) * 1000000, 0)::bigint,
            (extract(epoch FROM nullif(until, 'infinity') - now) * 1000000)::bigint,
            entity, key, pg_backend_pid()
        FROM keylatch_lease, clock WHERE ns = $1 AND until > now
            AND (entity, key) >= ($2, $3) AND entity < $4 AND ($5::bytea IS NULL OR owner = $5)
        ORDER BY entity, key LIMIT $6",
    types: &[Type::TEXT, Type::BYTEA, Type::BYTEA, Type::BYTEA, Type::BYTEA, Type::INT8],
};

pub(crate) static SWEEP: Statement =
    Statement { sql: "SELECT keylatch_lease_sweep_v1($1, $2), pg_backend_pid()", types: &[Type::TEXT, Type::INT8] };

pub(crate) static FIND_MARK: Statement = Statement {
    sql: concat!("SELECT pg_backend_pid() FROM keylatch_lease_barred_v1(", system!("$1"), ", $2, $3)"),
    types: &[Type::TEXT, Type::INT8, Type::BOOL],
};

pub(crate) static END_QUARANTINE: Statement = Statement {
    sql: "UPDATE keylatch_lease SET until = '-infinity' WHERE ns = '' AND entity = decode('fe', 'hex') AND key = ''",
    types: &[],
};

/// Fails if the table or a function is missing.
pub(crate) static FIND: Statement = Statement {
    sql: "SELECT 'keylatch_lease'::regclass, 'keylatch_lease_acquire_v2'::regproc,
        'keylatch_lease_together_v1'::regproc, 'keylatch_lease_renew_v1'::regproc, 'keylatch_lease_release_v1'::regproc,
        'keylatch_lease_release_all_v1'::regproc, 'keylatch_lease_sweep_v1'::regproc,
        'keylatch_lease_barred_v1'::regproc, pg_backend_pid()",
    types: &[],
};
