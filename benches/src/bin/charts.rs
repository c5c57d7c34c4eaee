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

/// Replaces what stands between the marks.
fn fill_tables(page: &str, table: impl Fn(&str) -> String) -> String {
    const END: &str = "<!-- end -->";
    let mut filled = String::new();
    let mut rest = page;
    while let Some((before, after)) = rest.split_once("<!-- table: ") {
        let (name, after) = after.split_once(" -->").expect("a mark is closed");
        let (_, after) = after.split_once(END).expect("a table has an end");
        write!(filled, "{before}<!-- table: {name} -->\n\n{}\n\n{END}", table(name).trim()).expect("strings take all");
        rest = after;
    }
    filled + rest
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
            Some(Bar { label: candidate.to_owned(), length: speed, text, kind: Kind::of(candidate) })
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
                bars.push(Bar {
                    label: candidate.to_owned(),
                    length: measure.of(stats),
                    text,
                    kind: Kind::of(candidate),
                });
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

struct Chart {
    title: String,
    panels: Vec<Panel>,
}

/// A scenario, with a scale of its own.
struct Panel {
    title: String,
    bars: Vec<Bar>,
    /// What else there is to say, a line each.
    notes: Vec<String>,
}

struct Bar {
    label: String,
    length: f64,
    text: String,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    Own,
    Peer,
    /// No keyed lock.
    Reference,
}

impl Kind {
    fn of(candidate: &str) -> Self {
        if candidate.starts_with(SUBJECT) {
            Kind::Own
        } else if PEERS.contains(&candidate) {
            Kind::Peer
        } else {
            Kind::Reference
        }
    }

    fn colour(self) -> &'static str {
        match self {
            Kind::Own => "#e8833a",
            Kind::Peer => "#5b8dd0",
            Kind::Reference => "#9aa3ad",
        }
    }
}

impl Chart {
    fn svg(&self) -> String {
        const WIDTH: f64 = 860.0;
        const LABELS: f64 = 170.0;
        const BARS: f64 = 440.0;
        const ROW: f64 = 19.0;
        const MARGIN: f64 = 16.0;

        let mut body = String::new();
        let mut y = MARGIN + 8.0;
        // Readers may have a white page or a black one. This grey can be read on both.
        let mut text = |x: f64, y: f64, style: &str, text: &str| {
            let text = text.replace('&', "&amp;").replace('<', "&lt;");
            writeln!(body, r#"<text x="{x}" y="{y:.1}"{style}>{text}</text>"#).expect("strings take all");
        };
        text(MARGIN, y, r#" font-size="16" font-weight="bold""#, &self.title);
        let mut rects = String::new();
        for Panel { title, bars, notes } in &self.panels {
            y += 1.8 * ROW;
            text(MARGIN, y, r#" font-weight="bold""#, title);
            y += 0.4 * ROW;
            let longest = bars.iter().map(|bar| bar.length).fold(0.0, f64::max);
            for Bar { label, length, text: value, kind } in bars {
                let width = if longest > 0.0 { (BARS * length / longest).max(1.0) } else { 1.0 };
                let (height, baseline) = (ROW - 5.0, y + ROW - 8.5);
                let colour = kind.colour();
                text(LABELS - 8.0, baseline, r#" text-anchor="end""#, label);
                writeln!(
                    rects,
                    r#"<rect x="{LABELS}" y="{y:.1}" width="{width:.1}" height="{height}" fill="{colour}"/>"#
                )
                .expect("strings take all");
                text(LABELS + width + 6.0, baseline, "", value);
                y += ROW;
            }
            for note in notes {
                text(MARGIN, y + 10.0, r#" font-size="11" font-style="italic""#, note);
                y += 0.75 * ROW;
            }
        }
        let height = y + MARGIN;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" \
             height=\"{height:.0}\" font-family=\"DejaVu Sans, Verdana, sans-serif\" font-size=\"12\" \
             fill=\"#77818c\">\n{body}{rects}</svg>\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_replace_what_stands_there() {
        let page = "a\n<!-- table: x -->\nold\n<!-- end -->\nb\n<!-- table: y --><!-- end -->\n";
        let filled = fill_tables(page, |name| format!("new {name}\n"));
        assert_eq!(
            filled,
            "a\n<!-- table: x -->\n\nnew x\n\n<!-- end -->\nb\n<!-- table: y -->\n\nnew y\n\n<!-- end -->\n"
        );
        assert_eq!(fill_tables(&filled, |name| format!("new {name}\n")), filled);
    }
}
