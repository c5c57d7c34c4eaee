//! What leases in Redis cost, beside the locks of the crate rslock and beside the two commands that a lock takes at least.
//!
//! `cargo bench --bench redis`, half a minute. It starts a server of its own. `cargo test` runs every case once, quickly.
//!
//! rslock is asked for one server, as leases are. Who waits asks again there after up to 200 ms, at random, as is its default; but not three times
//! alone.

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
    /// With what it has locked.
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
    const SERVER: &'static str = "redis";
    const NAMES: &'static [&'static str] = &["lease", "rslock", "SET NX PX and DEL"];
    const WAITED_FOR: usize = 2;

    async fn prepare(server: &Server) {
        engine(server).init().await.expect("it has just been started");
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
                let lock = manager.acquire_no_guard(name.as_bytes(), TTL).await.expect("it comes free");
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
                manager.unlock(&lock.expect("it has locked it")).await;
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
