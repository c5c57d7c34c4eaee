//! The cost of leases in a SQLite file, compared with two `UPDATE`s of a row in the same mode.
//!
//! `cargo bench --bench sqlite` takes less than a minute. `cargo test` runs every case once, quickly.
//!
//! The rows are in a file of their own. Each client has a connection. One reference runs its statements on the thread
//! of the task, which it blocks. The other, like the engine, uses a thread for SQLite alone.

use std::process::ExitCode;
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use keylatch_lease::Grant;
use keylatch_lease_benches::remote::{self, Lease};
use keylatch_lease_benches::server::Server;
use keylatch_lease_sqlite::Sqlite;
use rusqlite::Connection;
use tokio::sync::oneshot;

/// A timeout that is longer than any operation waits, even if 64 connections contend.
const TIMEOUT: Duration = Duration::from_secs(60);

enum Candidate {
    Lease(Box<Lease<Sqlite>>),
    /// Updates on the thread of the caller.
    Here(Mutex<Connection>),
    /// Updates on a thread for SQLite alone.
    There(Sender<(u64, oneshot::Sender<()>)>),
}

fn connect(server: &Server) -> Connection {
    let connection = Connection::open(server.folder.join("floor.db")).expect("the folder exists");
    connection.busy_timeout(TIMEOUT).expect("it is valid");
    connection.pragma_update(None, "synchronous", "NORMAL").expect("it is valid");
    connection
}

fn update(connection: &Connection, key: u64) {
    let update = connection.prepare_cached("UPDATE floor SET n = n + 1 WHERE key = ?1");
    update.and_then(|mut update| update.execute([key as i64])).expect("the statement is valid");
}

impl Candidate {
    async fn update(&self, key: u64) {
        match self {
            Candidate::Here(connection) => update(&connection.lock().unwrap_or_else(PoisonError::into_inner), key),
            Candidate::There(keys) => {
                let (done, is_done) = oneshot::channel();
                keys.send((key, done)).expect("the thread runs");
                is_done.await.expect("the thread runs");
            }
            Candidate::Lease(_) => unreachable!("a lease has no statements"),
        }
    }
}

impl remote::Candidate for Candidate {
    const SERVER: Option<&'static str> = None;
    const NAMES: &'static [&'static str] = &["lease", "two UPDATEs here", "two UPDATEs on a thread"];
    const WAITED_FOR: usize = 1;
    const TASKS: [(usize, f64); 3] = [(1, 0.77), (16, 1.0), (64, 1.0)];

    async fn prepare(server: &Server) {
        let floor = "PRAGMA journal_mode = WAL;
            CREATE TABLE floor (key INTEGER PRIMARY KEY, n INTEGER NOT NULL);
            WITH RECURSIVE all_keys (key) AS (SELECT 0 UNION ALL SELECT key + 1 FROM all_keys WHERE key < 99)
                INSERT INTO floor SELECT key, 0 FROM all_keys";
        connect(server).execute_batch(floor).expect("the file is new");
    }

    async fn connect(name: &str, server: &Server) -> Self {
        if name == Self::NAMES[0] {
            let options = Sqlite::in_namespace("bench").timeout(TIMEOUT);
            return Candidate::Lease(Box::new(Lease::new(
                options.open(server.folder.join("leases.db")).expect("opens"),
            )));
        }
        let connection = connect(server);
        if name == "two UPDATEs here" {
            return Candidate::Here(Mutex::new(connection));
        }
        let (keys, waiting) = mpsc::channel::<(u64, oneshot::Sender<()>)>();
        thread::spawn(move || {
            for (key, done) in waiting {
                update(&connection, key);
                let _ = done.send(());
            }
        });
        Candidate::There(keys)
    }

    async fn enter(&self, key: u64) -> Option<Grant> {
        if let Candidate::Lease(lease) = self {
            return Some(lease.enter(key).await);
        }
        self.update(key).await;
        None
    }

    async fn leave(&self, key: u64, grant: Option<Grant>) {
        match self {
            Candidate::Lease(lease) => lease.leave(grant).await,
            _ => self.update(key).await,
        }
    }
}

fn main() -> ExitCode {
    remote::main::<Candidate>()
}
