//! The cost of leases in Postgres, compared with its advisory locks and with empty requests.
//!
//! `cargo bench --bench postgres` takes about a minute, and starts a private server. `cargo test` runs every case once,
//! quickly.
//!
//! A cycle of a lease writes to disk twice, each time before the server answers; an advisory lock never does. So each
//! has a reference with the same number of writes: two transactions that change a row, and two that do nothing.

use std::process::ExitCode;

use keylatch_lease::Grant;
use keylatch_lease_benches::remote::{self, Lease};
use keylatch_lease_benches::server::Server;
use keylatch_lease_postgres::{NoTls, Postgres};
use tokio_postgres::{Client, Config, Statement};

enum Candidate {
    Lease(Box<Lease<Postgres>>),
    /// Two statements with a key.
    TwoOf(Client, [Statement; 2]),
    /// Two statements without a key.
    Two(Client, [Statement; 2]),
}

fn config(server: &Server) -> Config {
    format!("host=127.0.0.1 port={} user=postgres dbname=postgres", server.port).parse().expect("it is valid")
}

async fn connect(server: &Server) -> Client {
    let (client, connection) = config(server).connect(NoTls).await.expect("the server is there");
    tokio::spawn(connection);
    client
}

impl Candidate {
    async fn ask(&self, which: usize, key: u64) {
        let key = key as i64;
        let asked = match self {
            Candidate::TwoOf(client, statements) => client.query_opt(&statements[which], &[&key]).await,
            Candidate::Two(client, statements) => client.query_opt(&statements[which], &[]).await,
            Candidate::Lease(_) => unreachable!("a lease has no statements"),
        };
        asked.expect("the statement is valid");
    }
}

impl remote::Candidate for Candidate {
    const SERVER: Option<&'static str> = Some("postgres");
    const NAMES: &'static [&'static str] = &["lease", "advisory lock", "two SELECT 1", "two UPDATEs of a row"];
    const WAITED_FOR: usize = 2;
    const TASKS: [(usize, f64); 3] = [(1, 0.65), (16, 1.5), (64, 3.0)];

    async fn prepare(server: &Server) {
        let client = connect(server).await;
        Postgres::create_table(&client).await.expect("the user may create tables");
        Postgres::in_namespace("bench")
            .connect(config(server), NoTls)
            .init()
            .await
            .expect("the server has just been started");
        let floor = "CREATE TABLE floor (key bigint PRIMARY KEY, n bigint NOT NULL) WITH (fillfactor = 50);
            INSERT INTO floor SELECT key, 0 FROM generate_series(0, 99) AS key";
        client.batch_execute(floor).await.expect("the user may create tables");
    }

    async fn connect(name: &str, server: &Server) -> Self {
        if name == Self::NAMES[0] {
            let engine = Postgres::in_namespace("bench").connect(config(server), NoTls);
            engine.ready().await.expect("the server is there");
            return Candidate::Lease(Box::new(Lease::new(engine)));
        }
        let client = connect(server).await;
        let update = "UPDATE floor SET n = n + 1 WHERE key = $1";
        let [first, second] = match name {
            "advisory lock" => ["SELECT pg_advisory_lock($1)", "SELECT pg_advisory_unlock($1)"],
            "two SELECT 1" => ["SELECT 1", "SELECT 1"],
            _ => [update, update],
        };
        let both =
            [client.prepare(first).await.expect("it is valid"), client.prepare(second).await.expect("it is valid")];
        if name == "two SELECT 1" { Candidate::Two(client, both) } else { Candidate::TwoOf(client, both) }
    }

    async fn enter(&self, key: u64) -> Option<Grant> {
        if let Candidate::Lease(lease) = self {
            return Some(lease.enter(key).await);
        }
        self.ask(0, key).await;
        None
    }

    async fn leave(&self, key: u64, grant: Option<Grant>) {
        match self {
            Candidate::Lease(lease) => lease.leave(grant).await,
            _ => self.ask(1, key).await,
        }
    }
}

fn main() -> ExitCode {
    remote::main::<Candidate>()
}
