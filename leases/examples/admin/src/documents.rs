//! The documents, in the file that also has the leases.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use keylatch_lease::Grant;
use keylatch_lease_sqlite::Sqlite;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use crate::answer::Failure;

/// The table of documents.
#[derive(Clone)]
pub(crate) struct Documents {
    connection: Arc<Mutex<Connection>>,
    engine: Sqlite,
}

impl Documents {
    pub(crate) fn open(file: &Path, engine: Sqlite) -> rusqlite::Result<Self> {
        let connection = Connection::open(file)?;
        connection.busy_timeout(Duration::from_secs(10))?;
        connection.execute_batch("CREATE TABLE IF NOT EXISTS document (name TEXT PRIMARY KEY, body TEXT NOT NULL)")?;
        Ok(Self { connection: Arc::new(Mutex::new(connection)), engine })
    }

    /// Runs `work` where it may block.
    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection, &Sqlite) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let Self { connection, engine } = self.clone();
        let work = move || work(&mut connection.lock().unwrap_or_else(PoisonError::into_inner), &engine);
        tokio::task::spawn_blocking(work).await.map_err(Failure::internal)?
    }

    /// Returns the text of a document, which is empty until somebody saves one.
    pub(crate) async fn read(&self, name: String) -> Result<String, Failure> {
        self.with(move |connection, _| {
            let body = connection
                .query_row("SELECT body FROM document WHERE name = ?1", [&name], |row| row.get(0))
                .optional()
                .map_err(Failure::internal)?;
            Ok(body.unwrap_or_default())
        })
        .await
    }

    /// Makes an empty document, unless there is one of this name.
    pub(crate) async fn create(&self, name: String) -> Result<(), Failure> {
        self.with(move |connection, _| {
            connection.execute("INSERT OR IGNORE INTO document VALUES (?1, '')", [&name]).map_err(Failure::internal)?;
            Ok(())
        })
        .await
    }

    /// Saves a document if the lease has not ended.
    pub(crate) async fn save(&self, grant: Grant, body: String) -> Result<(), Failure> {
        self.with(move |connection, engine| {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(Failure::internal)?;
            engine.guard(&transaction, &grant).map_err(|error| Failure::conflict(format!("Not saved: {error}.")))?;
            transaction
                .execute("INSERT OR REPLACE INTO document VALUES (?1, ?2)", (grant.resource().key(), &body))
                .map_err(Failure::internal)?;
            transaction.commit().map_err(Failure::internal)
        })
        .await
    }

    /// Returns the names of at most `limit` documents that begin with `prefix`.
    pub(crate) async fn names(&self, prefix: String, limit: usize) -> Result<Vec<String>, Failure> {
        self.with(move |connection, _| {
            let mut statement = connection
                .prepare("SELECT name FROM document WHERE substr(name, 1, length(?1)) = ?1 ORDER BY name LIMIT ?2")
                .map_err(Failure::internal)?;
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let names = statement.query_map((&prefix, limit), |row| row.get(0)).map_err(Failure::internal)?;
            names.collect::<rusqlite::Result<_>>().map_err(Failure::internal)
        })
        .await
    }
}
