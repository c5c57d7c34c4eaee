//! Makes of `results/suite.csv` what the docs show: the charts in `docs/charts`, and the tables of
//! `docs/performance.md`.
//!
//! A table stands there between `<!-- table: NAME -->` and `<!-- end -->`. The names are those of the groups of
//! scenarios, `uncontended`, `contended`, `conditions`, `memory` and `tasks`, for keylatch and whom it is compared
//! with; the same with `-all` for all candidates; and `facts`, which is some sentences.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::{fs, io};

use keylatch_benches::chart::{Bar, Chart, Kind, Panel, fill_tables};
use keylatch_benches::report::{Report, figure};
use keylatch_benches::scenarios::{Group, Measure, PEERS, SUBJECT, Scenario, scenarios};

/// What decides, for a first look. The first measure of each is shown.
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

/// How many peers stand beside keylatch there.
const HEADLINE_PEERS: usize = 3;

fn main() -> io::Result<()> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let (report, scenarios) = (Report::read(&Report::path())?, scenarios());

    let charts = docs.join("charts");
    fs::create_dir_all(&charts)?;
    fs::write(charts.join("headline.svg"), headline(&report, &scenarios).svg())?;
    for group in Group::ALL {
        fs::write(charts.join(format!("{}.svg", group.name())), grouped(&report, &scenarios, group).svg())?;
    }

    let page = docs.join("performance.md");
    if page.exists() {
        let text = fs::read_to_string(&page)?;
        fs::write(&page, fill_tables(&text, |name| table(&report, &scenarios, name)))?;
    }
    Ok(())
}

fn table(report: &Report, scenarios: &[Scenario], name: &str) -> String {
    if name == "facts" {
        return report.facts.clone();
    }
    let (group, all) = name.strip_suffix("-all").map_or((name, false), |group| (group, true));
    let group = Group::ALL.into_iter().find(|known| known.name() == group);
    let group = group.unwrap_or_else(|| panic!("there is no table {name}"));
    let scenarios = scenarios.iter().filter(|scenario| scenario.group == group);
    if all { report.full_table(scenarios) } else { report.short_table(scenarios) }
}

/// keylatch and the best peers, in what decides. A bar is a speed, and that of keylatch is one.
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

/// Every candidate in the scenarios of a group.
fn grouped(report: &Report, scenarios: &[Scenario], group: Group) -> Chart {
    let mut panels = Vec::new();
    for scenario in scenarios.iter().filter(|scenario| scenario.group == group) {
        // What waiting is like says something about the rate, and stands beside it. Other measures stand alone.
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
