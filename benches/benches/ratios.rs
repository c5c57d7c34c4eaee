//! keylatch beside each peer as a ratio, with the target where there is one.
//!
//! On a busy machine a figure drifts by tens of per cent within minutes; a ratio of figures that were taken one after
//! the other does not. So each round measures every case once, a ratio is that of two cases in the same round, and the
//! table has the medians. A target that is missed is told in the table, and fails nothing.
//!
//! `cargo bench --bench ratios -- hot` does the scenarios whose names contain `hot`.

use std::env;
use std::time::{Duration, Instant};

use keylatch_benches::scenarios::{LATE_CANCELS, Scenario, Unit, cores, late_cancels, scenarios};

const ROUNDS: usize = 15;

/// For how long a round measures a case.
const SPAN: Duration = Duration::from_millis(60);

/// No new round is begun after this time.
const LIMIT: Duration = Duration::from_secs(75);

/// What each round has measured.
type Series = Vec<f64>;

fn main() {
    let start = Instant::now();
    let filter = env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let mut scenarios = scenarios();
    scenarios.retain(|scenario| scenario.name.contains(&filter));
    let mut tables: Vec<Vec<Series>> = scenarios.iter().map(|s| vec![Series::new(); s.cases.len()]).collect();
    let mut parallel = Series::new();
    for round in 0..ROUNDS {
        if round > 0 && start.elapsed() > LIMIT {
            break;
        }
        parallel.push(cores());
        for (Scenario { unit, cases, .. }, table) in scenarios.iter().zip(&mut tables) {
            for i in 0..cases.len() {
                // Each round begins with another case, so that the first place is nobody's handicap.
                let i = (i + round) % cases.len();
                table[i].push(unit.of(cases[i].nanos(SPAN)));
            }
        }
    }

    print_row(["scenario", "", "keylatch", "peer", "", "ratio", "target", "met?"]);
    for (scenario, table) in scenarios.iter().zip(&tables) {
        print_scenario(scenario, table);
    }
    let [(_, own), peers @ ..] = late_cancels();
    let name = format!("{LATE_CANCELS} late cancels");
    for (peer, theirs) in peers {
        print_row([&name, "entries left", &own.to_string(), peer, &theirs.to_string(), "", "0 left", met(own == 0)]);
    }
    let (rounds, cores) = (parallel.len(), median(parallel));
    println!("\n{rounds} rounds. Two threads had {cores:.1} cores; the further from 2, the less do threads meet.");
    println!("Instructions and allocations are counted by `cargo bench --bench counts`.");
}

fn print_scenario(scenario: &Scenario, table: &[Series]) {
    let [own, peers @ ..] = table else { return };
    for (case, theirs) in scenario.cases[1..].iter().zip(peers) {
        let ratio = median(own.iter().zip(theirs).map(|(own, theirs)| own / theirs));
        let (target, met) = match case.target {
            None => (String::new(), ""),
            Some(target) => match scenario.unit {
                Unit::Nanos => (format!("at most {target:.2}"), met(ratio <= target)),
                Unit::Millions => (format!("at least {target:.2}"), met(ratio >= target)),
            },
        };
        print_row([
            &scenario.name,
            scenario.unit.name(),
            &figure(own),
            case.name,
            &figure(theirs),
            &format!("{ratio:.2}"),
            &target,
            met,
        ]);
    }
}

fn figure(series: &Series) -> String {
    format!("{:.2}", median(series.iter().copied()))
}

fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn met(yes: bool) -> &'static str {
    if yes { "yes" } else { "NO" }
}

fn print_row(cells: [&str; 8]) {
    let [scenario, unit, own, peer, theirs, ratio, target, met] = cells;
    println!("{scenario:<34} | {unit:<12} | {own:>8} | {peer:<21} | {theirs:>8} | {ratio:>6} | {target:<14} | {met}");
}
