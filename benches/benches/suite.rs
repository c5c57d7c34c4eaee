//! Every candidate in every scenario, and keylatch compared with the best keyed peers.
//!
//! On a busy machine a figure drifts by tens of per cent within minutes; a ratio of figures that were taken one right
//! after the other does not. So each round measures every case once (scenarios that take long are measured only in some
//! of the rounds), a ratio compares two cases of the same round, and the table shows the medians. A missed goal is
//! marked in the table, but is not a failure.
//!
//! - `cargo bench --bench suite`: everything, in some ten minutes on two free cores. The results are also written to
//!   `results/suite.csv`.
//! - `cargo bench --bench suite -- hot`: the scenarios whose names contain `hot`; nothing is written.
//! - `cargo bench --bench suite -- "one core"`: the scenarios in which all threads share one core. The other conditions
//!   are `"busy cores"`, where each core also has a thread that never waits, and `"slow wake"`, where a woken thread
//!   sleeps another 30 µs.
//! - `cargo bench --bench suite -- --rounds 1 --span 5`: a quick look, with one round and 5 ms for each case. It
//!   overwrites the results, too.
//!
//! On some processors a spin hint takes a tenth of the time that it takes on others. To see the effect on keylatch,
//! this command builds it with an empty loop iteration in place of the hint:
//!
//! `RUSTFLAGS="--cfg keylatch_short_pause" CARGO_TARGET_DIR=target/short-pause cargo bench --bench suite -- hot`

use std::env;
use std::thread;
use std::time::{Duration, Instant};

use keylatch_benches::conditions;
use keylatch_benches::heap::Counted;
use keylatch_benches::load::{PAUSE, cores};
use keylatch_benches::report::{Report, Row, Stats, median};
use keylatch_benches::scenarios::{Case, Group, LEFT_OUT, Scenario, scenarios};
use keylatch_benches::system;

#[global_allocator]
static HEAP: Counted = Counted;

/// No new round is started after this time.
const LIMIT: Duration = Duration::from_secs(14 * 60);

struct Options {
    filter: String,
    rounds: usize,
    span: Duration,
}

/// The figures of all rounds: a list for each case and each measure.
type Table = Vec<Vec<Vec<f64>>>;

fn main() {
    let start = Instant::now();
    let Options { filter, rounds, span } = options();
    let machine = machine();
    eprintln!("{machine}");
    let mut scenarios = scenarios();
    scenarios.retain(|scenario| scenario.name.contains(&filter));
    let empty = |scenario: &Scenario| vec![vec![Vec::new(); scenario.measures.len()]; scenario.cases.len()];
    let mut tables: Vec<Table> = scenarios.iter().map(empty).collect();
    let mut parallel = Vec::new();
    for round in 0..rounds {
        if round > 0 && start.elapsed() > LIMIT {
            break;
        }
        eprintln!("round {} of {rounds}, {:.0} s", round + 1, start.elapsed().as_secs_f64());
        parallel.push(cores());
        for (scenario, table) in scenarios.iter().zip(&mut tables) {
            if round % scenario.every == 0 {
                measure(scenario, round / scenario.every, span, table);
            }
        }
    }

    let facts = format!(
        "{} rounds of {} ms for each case. {} cores, of which two threads got {:.1}: the further this is below 2, \
         the less the threads meet. {machine}",
        parallel.len(),
        span.as_millis(),
        thread::available_parallelism().map_or(0, usize::from),
        median(&parallel),
    );
    let rows = scenarios.iter().zip(&tables).flat_map(|(scenario, table)| rows(scenario, table)).collect();
    let report = Report { facts, rows };
    println!("{}\n{}", report.full_table(&scenarios), report.facts);
    if scenarios.iter().any(|scenario| scenario.group == Group::Conditions) {
        println!("{LEFT_OUT}");
    }
    println!("Instructions and allocations are counted by `cargo bench --bench counts`.");
    if filter.is_empty() {
        report.write(&Report::path()).expect("the results can be written");
    }
}

/// Describes the machine, and the properties of it that determine how a lock should best wait.
fn machine() -> String {
    let pause = if cfg!(keylatch_short_pause) { " keylatch was built with a short pause in its place." } else { "" };
    format!("{}. A spin hint takes {:.1} ns.{pause} {}", system::machine(), *PAUSE, conditions::wakes())
}

fn options() -> Options {
    let mut options = Options { filter: String::new(), rounds: 13, span: Duration::from_millis(60) };
    let mut args = env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = || args.next().and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{arg} needs a number"));
        match arg.as_str() {
            "--rounds" => options.rounds = number(),
            "--span" => options.span = Duration::from_millis(number() as u64),
            // Added by cargo.
            "--bench" => {}
            _ => options.filter = arg,
        }
    }
    options
}

fn measure(Scenario { cases, .. }: &Scenario, round: usize, span: Duration, table: &mut Table) {
    for i in 0..cases.len() {
        // Each round starts with a different case, so that no case is always measured first.
        let i = (i + round) % cases.len();
        if let Ok(run) = &cases[i].run {
            for (figures, figure) in table[i].iter_mut().zip(run(span)) {
                figures.push(figure);
            }
        }
    }
}

fn rows(scenario: &Scenario, table: &Table) -> Vec<Row> {
    let subject = scenario.cases.iter().position(|case| case.name == scenario.subject).expect("the subject takes part");
    let mut rows = Vec::new();
    for (i, measure) in scenario.measures.iter().enumerate() {
        for (Case { name, run }, figures) in scenario.cases.iter().zip(table) {
            let result = match run {
                Err(reason) => Err(reason.to_string()),
                Ok(_) => Stats::new(measure, &figures[i], &table[subject][i]).ok_or_else(|| "not told".to_owned()),
            };
            rows.push(Row {
                scenario: scenario.name.clone(),
                measure: measure.label(),
                candidate: name.to_string(),
                result,
            });
        }
    }
    rows
}
