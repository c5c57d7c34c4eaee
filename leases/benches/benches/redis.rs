//! The cost of leases in Redis, compared with the locks of the crate rslock and with two commands, the least that a
//! lock needs.
//!
//! `cargo bench --bench redis` takes more than a minute, and starts a private server. `cargo test` runs every case
//! once, quickly.
//!
//! rslock uses one server, as leases do. A waiter of rslock asks again after a random time of up to 200 ms, which is
//! its default. By default it asks three times; here it asks until it has the lock.

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use keylatch_lease::Grant;
use keylatch_lease_benches::remote::{self, Lease};
use keylatch_lease_benches::server::Server;
use keylatch_lease_redis::Redis;
use redis::Client;
use redis::aio::MultiplexedConnection;
use rslock::{Lock, LockManager};

const TTL: Duration = Duration::from_secs(300);

enum Candidate {
    Lease(Box<Lease<Redis>>),
    /// A manager, and the locks that it holds.
    Rslock(LockManager, Mutex<HashMap<u64, Lock>>),
    Commands(MultiplexedConnection),
}

fn client(server: &Server) -> Client {
    Client::open(format!("redis://127.0.0.1:{}", server.port)).expect("it is valid")
}

fn engine(server: &Server) -> Redis {
    Redis::in_namespace("bench").connect(client(server))
}

impl remote::Candidate for Candidate {
    const SERVER: Option<&'static str> = Some("redis");
    const NAMES: &'static [&'static str] = &["lease", "rslock", "SET NX PX and DEL"];
    const WAITED_FOR: usize = 2;
    const TASKS: [(usize, f64); 3] = [(1, 0.75), (16, 0.6), (64, 0.6)];

    async fn prepare(server: &Server) {
        engine(server).init().await.expect("the server has just been started");
    }

    async fn connect(name: &str, server: &Server) -> Self {
        match name {
            "lease" => {
                let engine = engine(server);
                engine.ready().await.expect("the server is there");
                Candidate::Lease(Box::new(Lease::new(engine)))
            }
            "rslock" => {
                let mut manager = LockManager::from_clients(vec![client(server)]);
                manager.set_retry(u32::MAX, Duration::from_millis(200));
                Candidate::Rslock(manager, Mutex::default())
            }
            _ => {
                let connection = client(server).get_multiplexed_async_connection().await;
                Candidate::Commands(connection.expect("the server is there"))
            }
        }
    }

    async fn enter(&self, key: u64) -> Option<Grant> {
        match self {
            Candidate::Lease(lease) => return Some(lease.enter(key).await),
            Candidate::Rslock(manager, locks) => {
                let name = format!("rslock:{key}");
                let lock = manager.acquire_no_guard(name.as_bytes(), TTL).await.expect("the lock is granted");
                locks.lock().unwrap_or_else(PoisonError::into_inner).insert(key, lock);
            }
            Candidate::Commands(connection) => {
                let mut command = redis::cmd("SET");
                command.arg(format!("floor:{key}")).arg("value").arg("NX").arg("PX").arg(TTL.as_millis() as u64);
                let () = command.query_async(&mut connection.clone()).await.expect("it is valid");
            }
        }
        None
    }

    async fn leave(&self, key: u64, grant: Option<Grant>) {
        match self {
            Candidate::Lease(lease) => lease.leave(grant).await,
            Candidate::Rslock(manager, locks) => {
                let lock = locks.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
                manager.unlock(&lock.expect("the client holds this lock")).await;
            }
            Candidate::Commands(connection) => {
                let mut command = redis::cmd("DEL");
                command.arg(format!("floor:{key}"));
                let () = command.query_async(&mut connection.clone()).await.expect("it is valid");
            }
        }
    }
}

fn main() -> ExitCode {
    remote::main::<Candidate>()
}
