//! The cost of leases in a SQLite file, compared with two `UPDATE`s of a row in the same mode.
//!
//! `cargo bench --bench sqlite` takes half a minute. `cargo test` runs every case once, quickly.
//!
//! The rows are in a file of their own. Each client has a connection, and asks on the thread that also runs its task, as
//! a program does that uses SQLite without a thread for it.

use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use keylatch_lease::Grant;
use keylatch_lease_benches::remote::{self, Lease};
use keylatch_lease_benches::server::Server;
use keylatch_lease_sqlite::Sqlite;
use rusqlite::Connection;

/// Longer than any operation waits, even if 64 connections contend.
const TIMEOUT: Duration = Duration::from_secs(60);

enum Candidate {
    Lease(Box<Lease<Sqlite>>),
    Update(Mutex<Connection>),
}

fn connect(server: &Server) -> Connection {
    let connection = Connection::open(server.folder.join("floor.db")).expect("the folder exists");
    connection.busy_timeout(TIMEOUT).expect("it is valid");
    connection.pragma_update(None, "synchronous", "NORMAL").expect("it is valid");
    connection
}

impl Candidate {
    fn update(&self, key: u64) {
        let Candidate::Update(connection) = self else { unreachable!("a lease has no statements") };
        let connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
        let update = connection.prepare_cached("UPDATE floor SET n = n + 1 WHERE key = ?1");
        update.and_then(|mut update| update.execute([key as i64])).expect("the statement is valid");
    }
}

impl remote::Candidate for Candidate {
    const SERVER: Option<&'static str> = None;
    const NAMES: &'static [&'static str] = &["lease", "two UPDATEs of a row"];
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
        Candidate::Update(Mutex::new(connect(server)))
    }

    async fn enter(&self, key: u64) -> Option<Grant> {
        if let Candidate::Lease(lease) = self {
            return Some(lease.enter(key).await);
        }
        self.update(key);
        None
    }

    async fn leave(&self, key: u64, grant: Option<Grant>) {
        match self {
            Candidate::Lease(lease) => lease.leave(grant).await,
            Candidate::Update(_) => self.update(key),
        }
    }
}

fn main() -> ExitCode {
    remote::main::<Candidate>()
}
