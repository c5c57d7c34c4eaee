//! The measurements of leases on servers, which are the same for each server: a cycle of acquire and release, by
//! clients that want different resources; the same cycle by many tasks on one connection, and by processes with one
//! task each; and the hand-off to a waiter. The lease is compared with the server's other locks, and with simple
//! requests.

use std::env;
use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use keylatch_lease::engine::Engine;
use keylatch_lease::{Grant, Leases, Owner, Resource};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::processes;
use crate::server::Server;

const TTL: Duration = Duration::from_secs(300);

/// A client with its own connection, and a kind of lock that it takes.
pub trait Candidate: Send + Sync + Sized + 'static {
    /// The server's name in `leases/servers/run`; `None` if there is none.
    const SERVER: Option<&'static str>;
    /// The names of the candidates. The first is the lease, and is compared with the others. The last one makes two
    /// simple writes, to which the goals relate.
    const NAMES: &'static [&'static str];
    /// The number of candidates, from the first on, that support waiting.
    const WAITED_FOR: usize;
    /// The numbers of tasks on one connection, each with the goal for the rate of the lease divided by the rate of the
    /// last candidate.
    const TASKS: [(usize, f64); 3];

    /// Prepares the server. This is called once, before everything else.
    fn prepare(server: &Server) -> impl Future<Output = ()> + Send;

    fn connect(name: &str, server: &Server) -> impl Future<Output = Self> + Send;

    fn enter(&self, key: u64) -> impl Future<Output = Option<Grant>> + Send;

    fn leave(&self, key: u64, grant: Option<Grant>) -> impl Future<Output = ()> + Send;
}

/// The lease as a candidate.
pub struct Lease<E: Engine>(Leases<E>, Owner);

impl<E: Engine + 'static> Lease<E> {
    pub fn new(engine: E) -> Self {
        Lease(Leases::with_engine(engine), Owner::incarnation("bench"))
    }

    /// # Panics
    /// If the engine fails.
    pub async fn enter(&self, key: u64) -> Grant {
        let resource = Resource::new("bench", key.to_string());
        self.0.acquire(resource, &self.1, TTL).await.expect("the engine grants the lease")
    }

    /// # Panics
    /// If the engine fails, there is no grant, or the lease has ended.
    pub async fn leave(&self, grant: Option<Grant>) {
        self.0.release(&grant.expect("a lease has a grant")).await.expect("the lease has not expired");
    }
}

pub(crate) struct Scale {
    pub(crate) rounds: usize,
    /// The shortest time of a round of tasks on one connection, and of a round of processes.
    pub(crate) time: Duration,
    cycles: usize,
    clients: &'static [usize],
    hand_overs: usize,
    pub(crate) processes: usize,
}

const FULL: Scale = Scale {
    rounds: 9,
    time: Duration::from_millis(500),
    cycles: 300,
    clients: &[1, 16, 64],
    hand_overs: 300,
    processes: 64,
};
const SMOKE: Scale = Scale { rounds: 1, time: Duration::ZERO, cycles: 3, clients: &[2], hand_overs: 2, processes: 2 };

fn describe(times: &Histogram<u64>) -> String {
    let at = |p| times.value_at_percentile(p);
    format!("p50 {} µs, p99 {} µs", at(50.0), at(99.0))
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(60_000_000, 3).expect("a minute, three digits")
}

/// Measures cycles of clients that want different resources.
async fn cycles<C: Candidate>(server: &Server, scale: &Scale) {
    let of: String = C::NAMES[1..].iter().map(|name| format!(" of the time of {name} |")).collect();
    println!("\n| acquire + release | clients | each takes | cycles/s |{of}");
    println!("| --- | ---: | ---: | ---: |{}", " ---: |".repeat(C::NAMES.len() - 1));
    for &clients in scale.clients {
        let mut crowds = vec![];
        for name in C::NAMES {
            let mut crowd = vec![];
            for _ in 0..clients {
                crowd.push(Arc::new(C::connect(name, server).await));
            }
            crowds.push((crowd, histogram(), vec![]));
        }
        for round in 0..scale.rounds {
            for at in 0..C::NAMES.len() {
                let (crowd, times, seconds) = &mut crowds[(at + round) % C::NAMES.len()];
                let start = Instant::now();
                let mut tasks = JoinSet::new();
                let cycles = (scale.cycles / clients).max(1);
                for (key, candidate) in (0..).zip(crowd.iter()) {
                    let candidate = Arc::clone(candidate);
                    tasks.spawn(async move {
                        let mut times = vec![];
                        for _ in 0..cycles {
                            let start = Instant::now();
                            let grant = candidate.enter(key).await;
                            candidate.leave(key, grant).await;
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
        for (at, name) in C::NAMES.iter().enumerate() {
            let mut seconds = crowds[at].2.clone();
            seconds.sort_by(f64::total_cmp);
            let rate = 1.0 / seconds[seconds.len() / 2];
            let times = describe(&crowds[at].1);
            let ratios: String = (1..C::NAMES.len()).map(|to| format!(" {:.2} |", ratio(at, to))).collect();
            println!("| {name} | {clients} | {times} | {rate:.0} |{ratios}");
        }
    }
}

/// Returns how many cycles per second `count` tasks complete over one shared connection. Adds the time of each cycle to
/// `times`.
async fn rate<C: Candidate>(candidate: &Arc<C>, count: usize, time: Duration, times: &mut Histogram<u64>) -> f64 {
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for key in 0..count as u64 {
        let candidate = Arc::clone(candidate);
        tasks.spawn(async move {
            let mut times = vec![];
            while times.is_empty() || start.elapsed() < time {
                let begin = Instant::now();
                let grant = candidate.enter(key).await;
                candidate.leave(key, grant).await;
                times.push(begin.elapsed().as_micros() as u64);
            }
            times
        });
    }
    let all: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
    let rate = all.len() as f64 / start.elapsed().as_secs_f64();
    all.iter().for_each(|&time| times.saturating_record(time));
    rate
}

/// Measures tasks that share a connection and want different resources.
async fn tasks<C: Candidate>(server: &Server, scale: &Scale) {
    let floor = C::NAMES[C::NAMES.len() - 1];
    println!("\n| one connection | tasks | each takes | cycles/s | {floor}: each takes | cycles/s | ratio | goal |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    let names = [C::NAMES[0], floor];
    let both = [Arc::new(C::connect(names[0], server).await), Arc::new(C::connect(names[1], server).await)];
    for (count, goal) in C::TASKS {
        let (mut times, mut rates) = ([histogram(), histogram()], [vec![], vec![]]);
        for round in 0..scale.rounds {
            for at in [round % 2, 1 - round % 2] {
                rates[at].push(rate(&both[at], count, scale.time, &mut times[at]).await);
            }
        }
        let mut ratios: Vec<f64> = rates[0].iter().zip(&rates[1]).map(|(lease, floor)| lease / floor).collect();
        let median = |figures: &mut Vec<f64>| {
            figures.sort_by(f64::total_cmp);
            figures[figures.len() / 2]
        };
        let [lease, least] = rates.each_mut().map(median);
        let [ours, theirs] = times.each_ref().map(describe);
        let ratio = median(&mut ratios);
        println!("| {} | {count} | {ours} | {lease:.0} | {theirs} | {least:.0} | {ratio:.2} | ≥ {goal} |", names[0]);
    }
}

/// Measures the time from the call that releases until a waiter on another connection has the lease.
async fn hand_overs<C: Candidate>(server: &Server, scale: &Scale) {
    println!("\n| hand-off to a waiter | takes |");
    println!("| --- | ---: |");
    for name in &C::NAMES[..C::WAITED_FOR] {
        let pair = [Arc::new(C::connect(name, server).await), Arc::new(C::connect(name, server).await)];
        let mut times = histogram();
        for n in 0..scale.hand_overs {
            let key = 1_000 + n as u64;
            let grant = pair[0].enter(key).await;
            let other = Arc::clone(&pair[1]);
            let waiter = tokio::spawn(async move {
                let grant = other.enter(key).await;
                let end = Instant::now();
                other.leave(key, grant).await;
                end
            });
            tokio::time::sleep(Duration::from_millis(20)).await; // nearly always enough for the waiter to be in line
            let start = Instant::now();
            pair[0].leave(key, grant).await;
            let end = waiter.await.expect("the waiter does not panic");
            times.saturating_record(end.saturating_duration_since(start).as_micros() as u64);
        }
        println!("| {name} | {} |", describe(&times));
    }
}

/// Makes all measurements, on a private server; with the argument `tasks`, only those of many tasks on one connection,
/// and with `processes` only those of processes, which need a server. `cargo bench` measures; `cargo test` runs each
/// case once.
///
/// # Panics
/// If the server fails.
pub fn main<C: Candidate>() -> ExitCode {
    if processes::work::<C>() {
        return ExitCode::SUCCESS;
    }
    let scale = if env::args().any(|word| word == "--bench") { FULL } else { SMOKE };
    let server = match Server::start(C::SERVER) {
        Ok(server) => server,
        Err(error) => {
            eprintln!("cannot start the server: {error}");
            return ExitCode::FAILURE;
        }
    };
    let runtime = Runtime::new().expect("a runtime");
    runtime.block_on(async {
        C::prepare(&server).await;
        let only = env::args().skip(1).find(|word| !word.starts_with('-'));
        let is_asked_for = |group| only.as_deref().is_none_or(|only| only == group);
        if is_asked_for("tasks") {
            tasks::<C>(&server, &scale).await;
        }
        if is_asked_for("processes") && C::SERVER.is_some() {
            processes::measure::<C>(&server, &scale);
        }
        if only.is_none() {
            cycles::<C>(&server, &scale).await;
            hand_overs::<C>(&server, &scale).await;
        }
    });
    runtime.shutdown_background();
    ExitCode::SUCCESS
}
