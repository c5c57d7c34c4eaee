//! A session that no other client uses: it is set up once, and its statements are prepared.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use tokio_postgres::{Client, Error, Row, SimpleQueryMessage, Statement as Prepared};

use crate::{
    error::{self, is_pooled, unusable},
    statements::{PREPARED, Parameters, SYSTEM, Statement, statement_timeout},
};

pub(crate) struct Own {
    /// The identifier of the database system.
    pub(crate) system: String,
    /// The ID of the server process that serves the session.
    process: i32,
    /// Whether a statement has reached another session, because a pooler shares this one.
    is_pooled: AtomicBool,
    prepared: Vec<(&'static Statement, Prepared)>,
}

impl Own {
    /// Prepares the statements, and sets what leases need, whatever the defaults of the database, the role or the
    /// configuration are.
    ///
    /// No setting is made until it is as certain as possible that no other client has the session: through a pooler
    /// that shares it, other clients would get these settings too.
    pub(crate) async fn open(client: &Client, channel: &str, timeout: Duration) -> Result<Self, error::Error> {
        let failed = |error: Error| unusable(error.into());
        // A new session, or one that a pooler has reset, listens to no channel.
        let (process, 0) = listening(client).await.map_err(failed)? else { return Err(error::Error::Pooled) };
        let system = client.query_one(SYSTEM, &[]).await.map_err(failed)?.get(0);
        let mut prepared = Vec::new();
        for statement in PREPARED {
            prepared.push((statement, client.prepare(statement.sql).await.map_err(failed)?));
        }
        if listening(client).await.map_err(failed)? != (process, 0) {
            return Err(error::Error::Pooled);
        }
        let set = format!(
            "SET default_transaction_isolation = 'read committed'; \
             SET default_transaction_read_only = off; \
             SET statement_timeout = {}; \
             SET lock_timeout = 0; \
             SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'; \
             SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout'; \
             LISTEN keylatch_lease; LISTEN {channel}",
            statement_timeout(timeout)
        );
        client.batch_execute(&set).await.map_err(failed)?;
        if listening(client).await.map_err(failed)? != (process, 2) {
            return Err(error::Error::Pooled);
        }
        Ok(Own { system, process, is_pooled: AtomicBool::new(false), prepared })
    }

    /// Returns the server's answer. If a row comes from a server process other than the session's, a pooler shares the
    /// session among its clients, and the session is not used any more.
    pub(crate) async fn query(
        &self,
        client: &Client,
        statement: &Statement,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, Error> {
        let prepared = self.prepared.iter().find(|(known, _)| std::ptr::eq(*known, statement));
        let rows = match prepared {
            Some((_, prepared)) => client.query(prepared, parameters).await,
            None => client.query_typed(statement.sql, &statement.typed(parameters)).await,
        };
        // If the server does not know a prepared statement, the statement was prepared in another session.
        let is_elsewhere = match &rows {
            Ok(rows) => rows.iter().any(|row| row.get::<_, i32>(row.len() - 1) != self.process),
            Err(error) => error.code().is_some_and(is_pooled),
        };
        if is_elsewhere {
            self.is_pooled.store(true, Relaxed);
        }
        rows
    }

    /// Returns whether it has turned out that a pooler shares the session among its clients.
    pub(crate) fn is_pooled(&self) -> bool {
        self.is_pooled.load(Relaxed)
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
