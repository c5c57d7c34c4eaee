//! Candidates that are measured against each other, each in every round.

use crate::report::{figure, median};

/// A candidate, and the names of those with which it is compared.
pub struct Case {
    name: &'static str,
    beside: &'static [&'static str],
    run: Box<dyn Fn() -> f64>,
}

/// Creates a case. `run` returns nanoseconds.
pub fn case(name: &'static str, beside: &'static [&'static str], run: impl Fn() -> f64 + 'static) -> Case {
    Case { name, beside, run: Box::new(run) }
}

/// Prints one table with the cases of all scenarios. A ratio is the median of the ratios of all rounds.
///
/// # Panics
///
/// If a case is compared with a case that does not exist.
pub fn compare<const N: usize>(rounds: usize, scenarios: [(&str, Vec<Case>); N]) {
    println!("| scenario | candidate | time, ns | beside | ratio |");
    println!("| --- | --- | ---: | --- | ---: |");
    for (scenario, cases) in scenarios {
        let mut times = vec![Vec::new(); cases.len()];
        for round in 0..rounds {
            for i in 0..cases.len() {
                // Each round starts with a different case, so that no case is always measured first.
                let i = (i + round) % cases.len();
                times[i].push((cases[i].run)());
            }
        }
        for (case, own) in cases.iter().zip(&times) {
            let time = figure(median(own));
            if case.beside.is_empty() {
                println!("| {scenario} | {} | {time} | | |", case.name);
            }
            for beside in case.beside {
                let other = cases.iter().position(|other| other.name == *beside).expect("the case exists");
                let ratios: Vec<_> = own.iter().zip(&times[other]).map(|(own, other)| own / other).collect();
                println!("| {scenario} | {} | {time} | {beside} | {} |", case.name, figure(median(&ratios)));
            }
        }
    }
}
