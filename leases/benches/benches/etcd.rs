//! What leases in etcd cost, beside etcd's own locks and beside the least that two changes can be: a put and a delete.
//!
//! `cargo bench --bench etcd`, half a minute. It starts a server of its own. `cargo test` runs every case once, quickly.
//!
//! Each of etcd's own locks hangs on an etcd lease that its client has already, for all of its locks. A lease of ours has one of its own,
//! which is one more change for each cycle that somebody waits for, and one that nobody does.

use std::process::ExitCode;
use std::sync::Mutex;

use etcd_client::LockOptions;
use keylatch_lease::Grant;
use keylatch_lease_benches::remote::{self, Lease};
use keylatch_lease_benches::server::Server;
use keylatch_lease_etcd::{Client, Etcd};

enum Candidate {
    Lease(Box<Lease<Etcd>>),
    /// With its etcd lease, and the key of what it has locked.
    Lock(Box<Client>, i64, Mutex<Vec<u8>>),
    PutAndDelete(Box<Client>),
}

fn endpoint(server: &Server) -> String {
    format!("http://127.0.0.1:{}", server.port)
}

fn engine(server: &Server) -> Etcd {
    Etcd::in_namespace("bench").connect([endpoint(server)], None)
}

impl remote::Candidate for Candidate {
    const SERVER: &'static str = "etcd";
    const NAMES: &'static [&'static str] = &["lease", "etcd's lock", "put and delete"];
    const WAITED_FOR: usize = 2;

    async fn prepare(server: &Server) {
        engine(server).init().await.expect("it has just been started");
    }

    async fn connect(name: &str, server: &Server) -> Self {
        if name == Self::NAMES[0] {
            let engine = engine(server);
            engine.ready().await.expect("the server is there");
            return Candidate::Lease(Box::new(Lease::new(engine)));
        }
        let client = Client::connect([endpoint(server)], None).await.expect("the server is there");
        if name != Self::NAMES[1] {
            return Candidate::PutAndDelete(Box::new(client));
        }
        let lease = client.lease_client().grant(3600, None).await.expect("it may").id();
        Candidate::Lock(Box::new(client), lease, Mutex::default())
    }

    async fn enter(&self, key: u64) -> Option<Grant> {
        match self {
            Candidate::Lease(lease) => return Some(lease.enter(key).await),
            Candidate::Lock(client, lease, locked) => {
                let options = LockOptions::new().with_lease(*lease);
                let lock = client.lock_client().lock(format!("lock-{key}"), Some(options)).await.expect("it may");
                *locked.lock().expect("nobody panics") = lock.key().to_vec();
            }
            Candidate::PutAndDelete(client) => {
                client.kv_client().put(format!("floor-{key}"), "x".repeat(60), None).await.expect("it may");
            }
        }
        None
    }

    async fn leave(&self, key: u64, grant: Option<Grant>) {
        match self {
            Candidate::Lease(lease) => lease.leave(grant).await,
            Candidate::Lock(client, _, locked) => {
                let locked = std::mem::take(&mut *locked.lock().expect("nobody panics"));
                client.lock_client().unlock(locked).await.expect("it has it");
            }
            Candidate::PutAndDelete(client) => {
                client.kv_client().delete(format!("floor-{key}"), None).await.expect("it may");
            }
        }
    }
}

fn main() -> ExitCode {
    remote::main::<Candidate>()
}
