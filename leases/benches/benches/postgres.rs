//! What leases in Postgres cost, beside its advisory locks and beside asking it nothing at all.
//!
//! `cargo bench --bench postgres`, half a minute. It starts a server of its own. `cargo test` runs every case once, quickly.
//!
//! A lease is written to disk before it is granted, twice for each cycle, and an advisory lock never: so each is put beside what does as
//! much: two transactions that change a row, and two that do nothing.

use std::env;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use keylatch_lease::{Leases, Owner, Resource};
use keylatch_lease_benches::server::Server;
use keylatch_lease_postgres::{NoTls, Postgres};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio_postgres::{Client, Config, Statement};

const TTL: Duration = Duration::from_secs(300);

/// One connection, and what it does.
enum Candidate {
    Lease(Box<Leases<Postgres>>, Owner),
    Advisory(Client, [Statement; 2]),
    /// Two statements without a key.
    Two(Client, [Statement; 2]),
    /// The same, with one.
    TwoOf(Client, [Statement; 2]),
}

const NAMES: [&str; 4] = ["lease", "advisory lock", "two SELECT 1", "two UPDATEs of a row"];

impl Candidate {
    async fn new(name: &str, config: &Config) -> Self {
        if name == NAMES[0] {
            let engine = Postgres::in_namespace("bench").connect(config.clone(), NoTls);
            engine.ready().await.expect("the server is there");
            return Candidate::Lease(Box::new(Leases::with_engine(engine)), Owner::incarnation("bench"));
        }
        let (client, connection) = config.connect(NoTls).await.expect("the server is there");
        tokio::spawn(connection);
        let both = async |first, second| {
            [client.prepare(first).await.expect("it is valid"), client.prepare(second).await.expect("it is valid")]
        };
        let update = "UPDATE floor SET n = n + 1 WHERE key = $1";
        let statements = match name {
            "advisory lock" => both("SELECT pg_advisory_lock($1)", "SELECT pg_advisory_unlock($1)").await,
            "two SELECT 1" => both("SELECT 1", "SELECT 1").await,
            _ => both(update, update).await,
        };
        match name {
            "advisory lock" => Candidate::Advisory(client, statements),
            "two SELECT 1" => Candidate::Two(client, statements),
            _ => Candidate::TwoOf(client, statements),
        }
    }

    async fn enter(&self, key: i64) -> Option<keylatch_lease::Grant> {
        match self {
            Candidate::Lease(leases, owner) => {
                let resource = Resource::new("bench", key.to_string());
                Some(leases.acquire(resource, owner, TTL).await.expect("it comes free"))
            }
            Candidate::Advisory(client, [first, _]) | Candidate::TwoOf(client, [first, _]) => {
                client.query_opt(first, &[&key]).await.expect("it is valid");
                None
            }
            Candidate::Two(client, [first, _]) => {
                client.query_opt(first, &[]).await.expect("it is valid");
                None
            }
        }
    }

    async fn leave(&self, key: i64, grant: Option<keylatch_lease::Grant>) {
        match (self, grant) {
            (Candidate::Lease(leases, _), Some(grant)) => leases.release(&grant).await.expect("it has not expired"),
            (Candidate::Advisory(client, [_, second]) | Candidate::TwoOf(client, [_, second]), _) => {
                client.query_opt(second, &[&key]).await.expect("it is valid");
            }
            (Candidate::Two(client, [_, second]), _) => {
                client.query_opt(second, &[]).await.expect("it is valid");
            }
            (Candidate::Lease(..), None) => unreachable!("a lease has a grant"),
        }
    }
}

struct Scale {
    rounds: usize,
    cycles: usize,
    clients: &'static [usize],
    hand_overs: usize,
}

const FULL: Scale = Scale { rounds: 9, cycles: 300, clients: &[1, 16, 64], hand_overs: 300 };
const SMOKE: Scale = Scale { rounds: 1, cycles: 3, clients: &[2], hand_overs: 2 };

fn describe(times: &Histogram<u64>) -> String {
    let at = |p| times.value_at_percentile(p);
    format!("p50 {} µs, p99 {} µs", at(50.0), at(99.0))
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(60_000_000, 3).expect("a minute, three digits")
}

/// Nobody else wants what they want.
async fn cycles(config: &Config, scale: &Scale) {
    println!(
        "\n| acquire + release | clients | each takes | cycles/s | of the advisory lock's time | of two UPDATEs' |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: |");
    for &clients in scale.clients {
        let mut crowds = vec![];
        for name in NAMES {
            let mut crowd = vec![];
            for _ in 0..clients {
                crowd.push(Arc::new(Candidate::new(name, config).await));
            }
            crowds.push((crowd, histogram(), vec![]));
        }
        for round in 0..scale.rounds {
            for at in 0..NAMES.len() {
                let (crowd, times, seconds) = &mut crowds[(at + round) % NAMES.len()];
                let start = Instant::now();
                let mut tasks = JoinSet::new();
                let cycles = (scale.cycles / clients).max(1);
                for (n, candidate) in crowd.iter().enumerate() {
                    let candidate = Arc::clone(candidate);
                    tasks.spawn(async move {
                        let mut times = vec![];
                        for _ in 0..cycles {
                            let start = Instant::now();
                            let grant = candidate.enter(n as i64).await;
                            candidate.leave(n as i64, grant).await;
                            times.push(start.elapsed().as_micros() as u64);
                        }
                        times
                    });
                }
                for time in tasks.join_all().await.into_iter().flatten() {
                    times.saturating_record(time);
                }
                seconds.push(start.elapsed().as_secs_f64() / (cycles * clients) as f64);
            }
        }
        let ratio = |of: usize, to: usize| {
            let mut ratios: Vec<f64> = crowds[of].2.iter().zip(&crowds[to].2).map(|(of, to)| of / to).collect();
            ratios.sort_by(f64::total_cmp);
            ratios[ratios.len() / 2]
        };
        for (at, name) in NAMES.iter().enumerate() {
            let mut seconds = crowds[at].2.clone();
            seconds.sort_by(f64::total_cmp);
            let rate = 1.0 / seconds[seconds.len() / 2];
            let times = describe(&crowds[at].1);
            println!("| {name} | {clients} | {times} | {rate:.0} | {:.2} | {:.2} |", ratio(at, 1), ratio(at, 3));
        }
    }
}

/// From the call that releases until another connection, which waits, has it.
async fn hand_overs(config: &Config, scale: &Scale) {
    println!("\n| hand-over to one who waits | takes |");
    println!("| --- | ---: |");
    for name in &NAMES[..2] {
        let pair = [Arc::new(Candidate::new(name, config).await), Arc::new(Candidate::new(name, config).await)];
        let mut times = histogram();
        for n in 0..scale.hand_overs {
            let key = 1_000 + n as i64;
            let grant = pair[0].enter(key).await;
            let other = Arc::clone(&pair[1]);
            let waiter = tokio::spawn(async move {
                let grant = other.enter(key).await;
                let end = Instant::now();
                other.leave(key, grant).await;
                end
            });
            tokio::time::sleep(Duration::from_millis(20)).await; // it waits by then, mostly
            let start = Instant::now();
            pair[0].leave(key, grant).await;
            let end = waiter.await.expect("it does not panic");
            times.saturating_record(end.saturating_duration_since(start).as_micros() as u64);
        }
        println!("| {name} | {} |", describe(&times));
    }
}

fn main() -> ExitCode {
    let scale = if env::args().any(|word| word == "--bench") { FULL } else { SMOKE };
    let server = match Server::start() {
        Ok(server) => server,
        Err(error) => {
            eprintln!("there is no Postgres: {error}");
            return ExitCode::FAILURE;
        }
    };
    let config: Config =
        format!("host=127.0.0.1 port={} user=postgres dbname=postgres", server.port).parse().expect("it is valid");
    let runtime = Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let (client, connection) = config.connect(NoTls).await.expect("it has just been started");
        tokio::spawn(connection);
        Postgres::create_table(&client).await.expect("it may");
        let floor = "CREATE TABLE floor (key bigint PRIMARY KEY, n bigint NOT NULL) WITH (fillfactor = 50);
            INSERT INTO floor SELECT key, 0 FROM generate_series(0, 99) AS key";
        client.batch_execute(floor).await.expect("it may");
        cycles(&config, &scale).await;
        hand_overs(&config, &scale).await;
    });
    runtime.shutdown_background();
    ExitCode::SUCCESS
}
