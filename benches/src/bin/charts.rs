//! Makes the charts and tables that the docs show, from `results/suite.csv`: the charts in `docs/charts`, the tables of
//! `docs/performance.md`, and `results/goals.csv`.
//!
//! A table of the page stands between `<!-- table: NAME -->` and `<!-- end -->`. Its name is that of a group of
//! scenarios (`uncontended`, `contended`, `memory` or `tasks`), or `facts`, which is a paragraph about the machine. The
//! page has the measures that matter for a decision; `goals.csv` has all of them, with the goals. A test compares both
//! with the results.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{fs, io};

use keylatch_benches::chart::{Bar, Chart, Kind, Panel, fill_tables};
use keylatch_benches::report::{Report, figure};
use keylatch_benches::scenarios::{Group, Measure, PEERS, SUBJECT, Scenario, scenarios};

/// The scenarios of the headline chart. It shows the first measure of each.
const HEADLINE: [&str; 8] = [
    "one u64 key, blocking",
    "one u64 key, async poll",
    "1,024 40-byte str keys",
    "disjoint keys, 8 threads with 1 key each",
    "one hot key, 8 threads, 1 µs section",
    "zipf over 10,000 keys, 8 threads",
    "zipf over 10,000 keys, 1,000 tokio tasks",
    "1,000,000 keys held at once",
];

/// The number of peers beside keylatch in the headline chart.
const HEADLINE_PEERS: usize = 3;

/// The measures that the page shows for threads that contend.
const CONTENDED: [&str; 2] = ["rate", "time"];

fn main() -> io::Result<()> {
    let docs = docs();
    let (report, scenarios) = (Report::read(&Report::path())?, scenarios());

    let charts = docs.join("charts");
    fs::create_dir_all(&charts)?;
    fs::write(charts.join("headline.svg"), headline(&report, &scenarios).svg())?;
    for group in Group::ALL {
        fs::write(charts.join(format!("{}.svg", group.name())), grouped(&report, &scenarios, group).svg())?;
    }

    fs::write(goals_path(), report.goals(&scenarios)?)?;
    let page = docs.join("performance.md");
    let text = fs::read_to_string(&page)?;
    fs::write(&page, filled(&text, &report, &scenarios))
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

fn goals_path() -> PathBuf {
    Report::path().with_file_name("goals.csv")
}

/// Returns the page with its tables replaced by those of the report.
fn filled(page: &str, report: &Report, scenarios: &[Scenario]) -> String {
    fill_tables(page, |name| table(report, scenarios, name))
}

fn table(report: &Report, scenarios: &[Scenario], name: &str) -> String {
    if name == "facts" {
        return report.facts.clone();
    }
    let group = Group::ALL.into_iter().find(|known| known.name() == name);
    let group = group.unwrap_or_else(|| panic!("no group of scenarios is called {name}"));
    let scenarios = scenarios.iter().filter(|scenario| scenario.group == group);
    report.short_table(scenarios, |measure| group != Group::Contended || CONTENDED.contains(&measure.name))
}

/// Charts keylatch and the best peers in the scenarios of [`HEADLINE`]. A bar is a speed relative to keylatch's.
fn headline(report: &Report, scenarios: &[Scenario]) -> Chart {
    let panel = |name: &&str| {
        let scenario = scenarios.iter().find(|scenario| scenario.name == *name).expect("the headlines are scenarios");
        let measure = &scenario.measures[0];
        let own = report.stats(scenario, measure, scenario.subject)?;
        let bar = |candidate: &str| {
            let value = measure.of(&report.stats(scenario, measure, candidate)?);
            let speed = if measure.less_is_better { measure.of(&own) / value } else { value / measure.of(&own) };
            let text = format!("{} {}", figure(value), measure.unit);
            Some(Bar { label: candidate.to_owned(), length: speed, text, kind: kind(candidate) })
        };
        let mut bars: Vec<_> = PEERS.into_iter().filter_map(bar).collect();
        bars.sort_by(|a, b| b.length.total_cmp(&a.length));
        bars.truncate(HEADLINE_PEERS);
        bars.insert(0, bar(scenario.subject)?);
        let what = if measure.unit == "B" { format!(": {}", measure.name) } else { String::new() };
        Some(Panel { title: format!("{name}{what}"), bars, notes: Vec::new() })
    };
    let title = "keylatch and the best peers: longer is better, relative to keylatch";
    Chart { title: title.to_owned(), panels: HEADLINE.iter().filter_map(panel).collect() }
}

/// Charts every candidate in the scenarios of a group.
fn grouped(report: &Report, scenarios: &[Scenario], group: Group) -> Chart {
    let mut panels = Vec::new();
    for scenario in scenarios.iter().filter(|scenario| scenario.group == group) {
        // Measures of waiting qualify the rate, so they are shown beside its bars. Other measures get a panel of their
        // own.
        let (alone, beside) = match group {
            Group::Contended | Group::Conditions => scenario.measures.split_at(1),
            _ => (&scenario.measures[..], &[][..]),
        };
        panels.extend(alone.iter().map(|measure| panel(report, scenario, measure, beside)));
    }
    let who = if group == Group::Conditions { "The quickest candidates" } else { "All candidates" };
    Chart { title: format!("{who}: {}", group.name()), panels }
}

fn panel(report: &Report, scenario: &Scenario, measure: &Measure, beside: &[Measure]) -> Panel {
    let mut bars = Vec::new();
    let mut left_out = BTreeMap::<_, Vec<_>>::new();
    for (candidate, result) in report.results(scenario, measure) {
        match result {
            None => {}
            Some(Err(reason)) => left_out.entry(reason).or_default().push(candidate),
            Some(Ok(stats)) => {
                let mut text = figure(measure.of(stats));
                for measure in beside {
                    if let Some(stats) = report.stats(scenario, measure, candidate) {
                        write!(text, " · {}", figure(measure.of(&stats))).expect("strings take all");
                    }
                }
                bars.push(Bar { label: candidate.to_owned(), length: measure.of(stats), text, kind: kind(candidate) });
            }
        }
    }
    let better = if measure.less_is_better { "less is better" } else { "more is better" };
    let mut notes = Vec::new();
    if !beside.is_empty() {
        let labels: Vec<_> = beside.iter().map(Measure::label).collect();
        notes.push(format!("beside the bars: {} · {}", measure.unit, labels.join(" · ")));
    }
    if !left_out.is_empty() {
        let reasons = left_out.iter().map(|(reason, candidates)| format!("{reason}: {}", candidates.join(", ")));
        notes.push(reasons.collect::<Vec<_>>().join(" · "));
    }
    Panel { title: format!("{}: {} ({better})", scenario.name, measure.label()), bars, notes }
}

fn kind(candidate: &str) -> Kind {
    if candidate.starts_with(SUBJECT) {
        Kind::Own
    } else if PEERS.contains(&candidate) {
        Kind::Peer
    } else {
        Kind::Reference
    }
}

#[cfg(test)]
mod tests {
    use keylatch_benches::conditions::Condition;

    use super::*;

    const HELP: &str = "run `cargo run --release --bin charts` in benches/";

    #[test]
    fn the_tables_of_the_page_agree_with_the_results() {
        let (report, scenarios) = (Report::read(&Report::path()).unwrap(), scenarios());
        let page = fs::read_to_string(docs().join("performance.md")).unwrap();
        assert!(filled(&page, &report, &scenarios) == page, "docs/performance.md is not up to date: {HELP}");
    }

    #[test]
    fn the_goals_agree_with_the_results() {
        if !Condition::ALL.into_iter().all(Condition::is_possible) {
            return; // the results have scenarios that this system does not know
        }
        let (report, scenarios) = (Report::read(&Report::path()).unwrap(), scenarios());
        let goals = fs::read_to_string(goals_path()).unwrap();
        assert!(report.goals(&scenarios).unwrap() == goals, "results/goals.csv is not up to date: {HELP}");
    }
}
