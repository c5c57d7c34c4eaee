//! The cost of leases in etcd, compared with etcd's own locks and with the cheapest two changes: a put and a delete.
//!
//! `cargo bench --bench etcd` takes a minute and a half, and starts a private server. `cargo test` runs every case
//! once, quickly.
//!
//! Each of etcd's own locks is attached to an etcd lease that its client already has, and that serves all locks of that
//! client. Each of our leases has its own etcd lease, which it takes over from one of our leases that has ended.

use std::process::ExitCode;
use std::sync::Mutex;

use keylatch_lease::Grant;
use keylatch_lease_benches::remote::{self, Lease};
use keylatch_lease_benches::server::Server;
use keylatch_lease_etcd::{Client, Etcd, client::Request};

#[derive(Clone, PartialEq, prost::Message)]
struct LeaseGrant {
    #[prost(int64, tag = "1")]
    ttl: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Granted {
    #[prost(int64, tag = "2")]
    id: i64,
}

impl Request for LeaseGrant {
    type Answer = Granted;
    const METHOD: &'static str = "/etcdserverpb.Lease/LeaseGrant";
}

#[derive(Clone, PartialEq, prost::Message)]
struct Lock {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int64, tag = "2")]
    lease: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Locked {
    #[prost(bytes = "vec", tag = "2")]
    key: Vec<u8>,
}

impl Request for Lock {
    type Answer = Locked;
    const METHOD: &'static str = "/v3lockpb.Lock/Lock";
}

#[derive(Clone, PartialEq, prost::Message)]
struct Unlock {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Unlocked {}

impl Request for Unlock {
    type Answer = Unlocked;
    const METHOD: &'static str = "/v3lockpb.Lock/Unlock";
}

enum Candidate {
    Lease(Box<Lease<Etcd>>),
    /// A client with its etcd lease, and the key of the lock that it holds.
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
    const SERVER: Option<&'static str> = Some("etcd");
    const NAMES: &'static [&'static str] = &["lease", "etcd's lock", "put and delete"];
    const WAITED_FOR: usize = 2;
    const TASKS: [(usize, f64); 3] = [(1, 0.6), (16, 0.8), (64, 1.0)];

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
        let lease = client.call(LeaseGrant { ttl: 3600 }).await.expect("it may").id;
        Candidate::Lock(Box::new(client), lease, Mutex::default())
    }

    async fn enter(&self, key: u64) -> Option<Grant> {
        match self {
            Candidate::Lease(lease) => return Some(lease.enter(key).await),
            Candidate::Lock(client, lease, locked) => {
                let lock = Lock { name: format!("lock-{key}"), lease: *lease };
                *locked.lock().expect("nobody panics") = client.call(lock).await.expect("it may").key;
            }
            Candidate::PutAndDelete(client) => {
                client.put(format!("floor-{key}"), "x".repeat(60)).await.expect("it may");
            }
        }
        None
    }

    async fn leave(&self, key: u64, grant: Option<Grant>) {
        match self {
            Candidate::Lease(lease) => lease.leave(grant).await,
            Candidate::Lock(client, _, locked) => {
                let locked = std::mem::take(&mut *locked.lock().expect("nobody panics"));
                client.call(Unlock { key: locked }).await.expect("it has it");
            }
            Candidate::PutAndDelete(client) => {
                client.delete(format!("floor-{key}")).await.expect("it may");
            }
        }
    }
}

fn main() -> ExitCode {
    remote::main::<Candidate>()
}
