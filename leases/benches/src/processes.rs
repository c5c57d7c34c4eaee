//! Cycles of acquire and release by processes that have one task and one connection each, and want different resources.
//!
//! The processes run the same program as the bench. An environment variable tells them what to do; they wait for a line
//! on their standard input before each round.

use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::runtime::Builder;

use crate::remote::{Candidate, Scale};
use crate::server::Server;

const ORDER: &str = "KEYLATCH_BENCH_WORKER";

/// The goal: the greatest ratio of the time of a lease's cycle to that of the last candidate's.
const GOAL: f64 = 2.5;

/// Carries out rounds if this process is a worker; returns whether it is.
///
/// # Panics
/// If the server fails, or the bench sends something other than a time.
pub(crate) fn work<C: Candidate>() -> bool {
    let Ok(order) = env::var(ORDER) else { return false };
    let [name, port, key] = order.splitn(3, '\t').collect::<Vec<_>>().try_into().expect("three parts");
    let (port, key) = (port.parse().expect("a port"), key.parse().expect("a key"));
    let server = Server::of_another_process(port);
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let candidate = C::connect(name, &server).await;
        println!("ready");
        for line in io::stdin().lock().lines() {
            let time = Duration::from_millis(line.expect("it is a pipe").parse().expect("milliseconds"));
            let (start, mut cycles) = (Instant::now(), 0_u64);
            while cycles == 0 || start.elapsed() < time {
                let grant = candidate.enter(key).await;
                candidate.leave(key, grant).await;
                cycles += 1;
            }
            println!("{}", cycles as f64 / start.elapsed().as_secs_f64());
        }
    });
    runtime.shutdown_background();
    true
}

/// A process that makes cycles. It is killed when this is dropped.
struct Worker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Worker {
    fn start(name: &str, server: &Server, key: usize) -> Self {
        let order = format!("{name}\t{}\t{key}", server.port);
        let mut command = Command::new(env::current_exe().expect("the path of this program"));
        command.env(ORDER, order).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("this program starts");
        let (input, output) = (child.stdin.take(), child.stdout.take());
        Worker { child, input: input.expect("a pipe"), output: BufReader::new(output.expect("a pipe")) }
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        let read = self.output.read_line(&mut line).expect("it is a pipe");
        assert!(read > 0, "a worker has ended: see its message above");
        line.trim_end().to_owned()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Returns the total of the workers' cycles per second.
fn rate(workers: &mut [Worker], time: Duration) -> f64 {
    for worker in workers.iter_mut() {
        writeln!(worker.input, "{}", time.as_millis()).expect("the worker is there");
    }
    workers.iter_mut().map(|worker| worker.answer().parse::<f64>().expect("a rate")).sum()
}

/// Measures the lease and the last candidate in turn.
///
/// # Panics
/// If a process or the server fails.
pub(crate) fn measure<C: Candidate>(server: &Server, scale: &Scale) {
    let floor = C::NAMES[C::NAMES.len() - 1];
    println!("\n| one task in each process | processes | cycles/s | {floor}: cycles/s | of its time | goal |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: |");
    let mut crowds = [C::NAMES[0], floor].map(|name| -> Vec<_> {
        let mut workers: Vec<_> = (0..scale.processes).map(|key| Worker::start(name, server, key)).collect();
        workers.iter_mut().for_each(|worker| assert_eq!(worker.answer(), "ready"));
        workers
    });
    let mut rates = [vec![], vec![]];
    for round in 0..scale.rounds {
        for at in [round % 2, 1 - round % 2] {
            rates[at].push(rate(&mut crowds[at], scale.time));
        }
    }
    let mut ratios: Vec<f64> = rates[0].iter().zip(&rates[1]).map(|(lease, floor)| floor / lease).collect();
    let median = |figures: &mut Vec<f64>| {
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    };
    let [lease, least] = rates.each_mut().map(median);
    let ratio = median(&mut ratios);
    println!("| {} | {} | {lease:.0} | {least:.0} | {ratio:.2} | ≤ {GOAL} |", C::NAMES[0], scale.processes);
}
