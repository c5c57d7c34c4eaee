//! The cost of leases in NATS, compared with the cheapest two changes of a stream: two messages, each with its
//! acknowledgement.
//!
//! `cargo bench --bench nats` takes about a minute, and starts a private server. `cargo test` runs every case once,
//! quickly.

use std::process::ExitCode;

use async_nats::jetstream::{self, Context};
use keylatch_lease::Grant;
use keylatch_lease_benches::remote::{self, Lease};
use keylatch_lease_benches::server::Server;
use keylatch_lease_nats::{ConnectOptions, Nats};

enum Candidate {
    Lease(Box<Lease<Nats>>),
    TwoMessages(Box<Context>),
}

fn address(server: &Server) -> String {
    format!("127.0.0.1:{}", server.port)
}

async fn connect(server: &Server) -> Context {
    jetstream::new(async_nats::connect(address(server)).await.expect("the server is there"))
}

/// Publishes a message of the size of a lease's.
async fn put(context: &Context, key: u64) {
    let subject = format!("floor.lease.bench.{key}");
    let payload = "x".repeat(150);
    context.publish(subject, payload.into()).await.expect("the message is sent").await.expect("the stream stores it");
}

fn engine(server: &Server) -> Nats {
    Nats::in_namespace("bench").connect(address(server), ConnectOptions::new).expect("an address")
}

impl remote::Candidate for Candidate {
    const SERVER: Option<&'static str> = Some("nats");
    const NAMES: &'static [&'static str] = &["lease", "two messages"];
    const WAITED_FOR: usize = 1;
    const TASKS: [(usize, f64); 3] = [(1, 0.75), (16, 0.6), (64, 0.6)];

    async fn prepare(server: &Server) {
        let context = connect(server).await;
        for stream in ["keylatch_lease", "floor"] {
            context.create_stream(Nats::stream(stream)).await.expect("it may");
        }
        engine(server).init().await.expect("it has just been made");
    }

    async fn connect(name: &str, server: &Server) -> Self {
        if name != Self::NAMES[0] {
            return Candidate::TwoMessages(Box::new(connect(server).await));
        }
        let engine = engine(server);
        engine.ready().await.expect("the server is there");
        Candidate::Lease(Box::new(Lease::new(engine)))
    }

    async fn enter(&self, key: u64) -> Option<Grant> {
        match self {
            Candidate::Lease(lease) => Some(lease.enter(key).await),
            Candidate::TwoMessages(context) => {
                put(context, key).await;
                None
            }
        }
    }

    async fn leave(&self, key: u64, grant: Option<Grant>) {
        match self {
            Candidate::Lease(lease) => lease.leave(grant).await,
            Candidate::TwoMessages(context) => put(context, key).await,
        }
    }
}

fn main() -> ExitCode {
    remote::main::<Candidate>()
}
