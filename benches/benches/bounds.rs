//! The trade-off that a policy makes between throughput on a hot key and the time that callers wait for it.
//!
//! `cargo bench --bench bounds`, a minute and a half on two free cores.

use std::time::Duration;

use keylatch::{Fairness, KeyedMutex};
use keylatch_benches::load::Section;
use keylatch_benches::report::{figure, median};
use keylatch_benches::scenarios::crowding;

const ROUNDS: usize = 13;
const SPAN: Duration = Duration::from_millis(60);

fn main() {
    use Fairness::{Adaptive, Barging, Bounded, Fifo};
    let policies = [Adaptive, Bounded(1), Bounded(4), Bounded(16), Bounded(64), Bounded(1024), Fifo, Barging];
    println!(
        "| threads, section | policy | rate, M/s | most to least busy thread | p99.9 wait, µs | longest wait, µs |"
    );
    println!("| --- | --- | ---: | ---: | ---: | ---: |");
    for (name, section) in [("empty", Section::EMPTY), ("1 µs", Section::microseconds(1))] {
        for threads in [2, 8] {
            let mut figures = vec![[const { Vec::new() }; 4]; policies.len()];
            for round in 0..ROUNDS {
                for i in 0..policies.len() {
                    // Each round starts with a different policy, so that no policy is always measured first.
                    let i = (i + round) % policies.len();
                    let table = KeyedMutex::builder().fairness(policies[i]).build();
                    for (series, figure) in figures[i].iter_mut().zip(crowding(&table, threads, section, SPAN)) {
                        series.push(figure);
                    }
                }
            }
            for (policy, figures) in policies.iter().zip(&figures) {
                let [rate, share, p999, longest] = figures.each_ref().map(|series| figure(median(series)));
                println!("| {threads}, {name} | `{policy:?}` | {rate} | {share} | {p999} | {longest} |");
            }
        }
    }
}
