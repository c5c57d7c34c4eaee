//! The results of the measurements: as a file, and as tables.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::scenarios::{CANDIDATES, Comparison, Goal, Measure, Of, PEERS, SUBJECT, Scenario, With};

/// The results of a suite.
pub struct Report {
    /// The machine, and the number of rounds.
    pub facts: String,
    pub rows: Vec<Row>,
}

/// A candidate in a measure of a scenario.
pub struct Row {
    pub scenario: String,
    pub measure: String,
    pub candidate: String,
    /// Its statistics, or the reason why it did not take part.
    pub result: Result<Stats, String>,
}

/// Statistics over all rounds.
#[derive(Clone, Copy)]
pub struct Stats {
    pub median: f64,
    pub best: f64,
    pub lower_quartile: f64,
    pub upper_quartile: f64,
    pub rounds: usize,
    /// The median of the subject's figure divided by this candidate's figure of the same round.
    pub ratio: f64,
}

impl Stats {
    /// Computes the statistics. `subject` has the subject's figures of the same rounds. Returns `None` if the
    /// candidate does not report this figure.
    pub fn new(measure: &Measure, figures: &[f64], subject: &[f64]) -> Option<Self> {
        if figures.is_empty() || figures.iter().any(|figure| figure.is_nan()) {
            return None;
        }
        let sorted = sorted(figures.iter().copied());
        let ratios = sorted_ratios(figures, subject);
        Some(Stats {
            median: at(&sorted, 2),
            best: if measure.less_is_better { sorted[0] } else { sorted[sorted.len() - 1] },
            lower_quartile: at(&sorted, 1),
            upper_quartile: at(&sorted, 3),
            rounds: figures.len(),
            ratio: at(&ratios, 2),
        })
    }
}

fn sorted_ratios(figures: &[f64], subject: &[f64]) -> Vec<f64> {
    // Two zeros are equal.
    let ratio = |(subject, figure): (&f64, &f64)| if subject == figure { 1.0 } else { subject / figure };
    sorted(subject.iter().zip(figures).map(ratio))
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn at(sorted: &[f64], quarter: usize) -> f64 {
    sorted[(sorted.len() * quarter / 4).min(sorted.len() - 1)]
}

pub fn median(values: &[f64]) -> f64 {
    at(&sorted(values.iter().copied()), 2)
}

/// The subject compared with another candidate.
struct Verdict {
    /// The other candidate, and why it was chosen.
    other: String,
    figure: f64,
    ratio: f64,
}

impl Report {
    /// Returns the path of the results.
    pub fn path() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("results/suite.csv")
    }

    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut text = format!("# {}\n", self.facts).into_bytes();
        let mut csv = csv::Writer::from_writer(&mut text);
        csv.write_record(COLUMNS)?;
        for Row { scenario, measure, candidate, result } in &self.rows {
            let (name, unit) = measure.rsplit_once(", ").unwrap_or((measure, ""));
            let [scenario, name, unit, candidate] = [scenario, name, unit, candidate].map(str::to_owned);
            let mut record = vec![scenario, name, unit, candidate];
            match result {
                Ok(Stats { median, best, lower_quartile, upper_quartile, rounds, ratio }) => {
                    record.extend([median, best, lower_quartile, upper_quartile].map(|figure| format!("{figure:.6}")));
                    record.extend([rounds.to_string(), format!("{ratio:.4}"), String::new()]);
                }
                Err(reason) => {
                    record.extend([const { String::new() }; 6]);
                    record.push(reason.clone());
                }
            }
            csv.write_record(record)?;
        }
        drop(csv);
        fs::create_dir_all(path.parent().unwrap_or(path))?;
        fs::write(path, text)
    }

    pub fn read(path: &Path) -> io::Result<Self> {
        let text = fs::read_to_string(path)?;
        let facts = text.lines().next().unwrap_or_default().trim_start_matches("# ").to_owned();
        let mut csv = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(text.as_bytes());
        let mut rows = Vec::new();
        for record in csv.records() {
            let record = record?;
            let figure = |column: usize| record[column].parse().unwrap_or(f64::NAN);
            let result = match &record[COLUMNS.len() - 1] {
                "" => Ok(Stats {
                    median: figure(4),
                    best: figure(5),
                    lower_quartile: figure(6),
                    upper_quartile: figure(7),
                    rounds: figure(8) as usize,
                    ratio: figure(9),
                }),
                reason => Err(reason.to_owned()),
            };
            rows.push(Row {
                scenario: record[0].to_owned(),
                measure: format!("{}, {}", &record[1], &record[2]),
                candidate: record[3].to_owned(),
                result,
            });
        }
        Ok(Report { facts, rows })
    }

    /// Returns the result of each candidate, in the order of [`CANDIDATES`], with `None` for those that have no row in
    /// the scenario.
    pub fn results<'a>(
        &'a self,
        scenario: &'a Scenario,
        measure: &'a Measure,
    ) -> impl Iterator<Item = (&'static str, Option<&'a Result<Stats, String>>)> {
        let label = measure.label();
        CANDIDATES.into_iter().map(move |candidate| {
            let row = self
                .rows
                .iter()
                .find(|row| row.candidate == candidate && row.scenario == scenario.name && row.measure == label);
            (candidate, row.map(|row| &row.result))
        })
    }

    pub fn stats(&self, scenario: &Scenario, measure: &Measure, candidate: &str) -> Option<Stats> {
        let mut results = self.results(scenario, measure);
        results.find(|(name, _)| *name == candidate)?.1?.as_ref().ok().copied()
    }

    /// Returns the best peer in a measure, or `None` if all were left out.
    fn best_peer(&self, scenario: &Scenario, measure: &Measure) -> Option<&'static str> {
        let peers = PEERS.into_iter().filter_map(|peer| Some((peer, self.stats(scenario, measure, peer)?)));
        let order = |stats: &Stats| if measure.less_is_better { measure.of(stats) } else { -measure.of(stats) };
        Some(peers.min_by(|a, b| order(&a.1).total_cmp(&order(&b.1)))?.0)
    }

    /// Returns `None` if the subject or the other candidate was left out.
    fn verdict(&self, Line { scenario, measure, comparison }: Line<'_>) -> Option<Verdict> {
        let first = &scenario.measures[0];
        let (candidate, why) = match comparison.with {
            With::Best => (self.best_peer(scenario, measure)?, ", the best".to_owned()),
            With::BestInFirst => (self.best_peer(scenario, first)?, format!(", the best in {}", first.name)),
            With::Candidate(candidate) => (candidate, String::new()),
        };
        let own = self.stats(scenario, measure, scenario.subject)?;
        let theirs = self.stats(scenario, measure, candidate)?;
        let ratio = match measure.judged() {
            Of::BestRounds => own.best / theirs.best,
            Of::Ratio | Of::Figure => theirs.ratio,
        };
        Some(Verdict { other: format!("{candidate}{why}"), figure: measure.of(&theirs), ratio })
    }

    /// Returns a markdown table with a row for each comparison, and a column for each candidate that takes part.
    pub fn full_table<'a>(&self, scenarios: impl IntoIterator<Item = &'a Scenario>) -> String {
        let lines: Vec<_> = lines(scenarios).collect();
        let mut candidates = CANDIDATES.to_vec();
        let takes_part = |candidate| lines.iter().any(|line| line.scenario.cases.iter().any(|c| c.name == candidate));
        candidates.retain(|candidate| takes_part(*candidate));
        let last = ["compared with", "ratio", "goal", "stretch", "met"];
        let mut table = header(&["scenario", "measure"], &candidates, &last);
        for line in lines {
            let measure = line.measure;
            let results = self.results(line.scenario, measure).filter(|(name, _)| candidates.contains(name));
            let cells = results.map(|(_, result)| match result {
                None => "–".to_owned(),
                Some(Err(reason)) => format!("– ({reason})"),
                Some(Ok(stats)) => figure(measure.of(stats)),
            });
            let verdict = self.verdict(line);
            let judgement = self.judgement(line, verdict.as_ref());
            let other = verdict.map_or(String::new(), |verdict| verdict.other);
            let title = [line.scenario.name.clone(), measure.title()];
            row(&mut table, title.into_iter().chain(cells).chain([other]).chain(judgement));
        }
        table
    }

    /// Returns a table in Markdown: a row for each comparison in a measure that `is_shown`, with keylatch and the
    /// candidate with which it is compared.
    pub fn short_table<'a>(
        &self,
        scenarios: impl IntoIterator<Item = &'a Scenario>,
        is_shown: impl Fn(&Measure) -> bool,
    ) -> String {
        let mut table =
            header(&["scenario", "measure", "keylatch", "compared with"], &[], &["ratio", "goal", "stretch", "met"]);
        for line in lines(scenarios).filter(|line| is_shown(line.measure)) {
            let Line { scenario, measure, .. } = line;
            let Some(own) = self.stats(scenario, measure, scenario.subject) else { continue };
            let verdict = self.verdict(line);
            let other = match &verdict {
                None => "–".to_owned(),
                Some(verdict) => format!("{} {}", figure(verdict.figure), verdict.other),
            };
            let how = scenario.subject.strip_prefix(SUBJECT).unwrap_or_default();
            let own = format!("{}{how}", figure(measure.of(&own)));
            let title = [scenario.name.clone(), measure.title(), own, other];
            row(&mut table, title.into_iter().chain(self.judgement(line, verdict.as_ref())));
        }
        table
    }

    /// Returns a row for each comparison, in CSV: the columns of the short tables, for every measure.
    pub fn goals<'a>(&self, scenarios: impl IntoIterator<Item = &'a Scenario>) -> io::Result<String> {
        let mut text = format!("# {}\n", self.facts).into_bytes();
        let mut csv = csv::Writer::from_writer(&mut text);
        csv.write_record(GOAL_COLUMNS)?;
        for line in lines(scenarios) {
            let Line { scenario, measure, .. } = line;
            let Some(own) = self.stats(scenario, measure, scenario.subject) else { continue };
            let verdict = self.verdict(line);
            let judgement = self.judgement(line, verdict.as_ref());
            let (other, theirs) =
                verdict.map_or_else(Default::default, |verdict| (verdict.other, figure(verdict.figure)));
            let own = figure(measure.of(&own));
            let record = [scenario.name.clone(), measure.title(), scenario.subject.to_owned(), own, other, theirs];
            csv.write_record(record.into_iter().chain(judgement))?;
        }
        drop(csv);
        Ok(String::from_utf8(text).expect("figures are text"))
    }

    /// Returns the ratio, the goal, the stretch goal, and which of the two goals is met.
    fn judgement(&self, Line { scenario, measure, comparison }: Line<'_>, verdict: Option<&Verdict>) -> [String; 4] {
        let ratio = verdict.map(|verdict| verdict.ratio);
        let told = ratio.filter(|ratio| ratio.is_finite()).map_or(String::new(), |ratio| format!("{ratio:.2}"));
        let Some(Goal { of, goal, stretch }) = comparison.goal else {
            return [told, String::new(), String::new(), String::new()];
        };
        let reached = match of {
            Of::Figure => self.stats(scenario, measure, scenario.subject).map(|stats| stats.median),
            Of::Ratio | Of::BestRounds => ratio,
        };
        let reaches = |goal| {
            reached.is_some_and(|reached| if measure.less_is_better { reached <= goal } else { reached >= goal })
        };
        let met = if stretch.is_some_and(reaches) {
            "stretch"
        } else if reaches(goal) {
            "yes"
        } else {
            "NO"
        };
        let limit = |limit| {
            let sign = if measure.less_is_better { "≤" } else { "≥" };
            if of == Of::Figure { format!("{sign} {limit} {}", measure.unit) } else { format!("{sign} {limit:.2} ×") }
        };
        [told, limit(goal), stretch.map_or(String::new(), limit), met.to_owned()]
    }
}

const COLUMNS: [&str; 11] = [
    "scenario",
    "measure",
    "unit",
    "candidate",
    "median",
    "best",
    "lower quartile",
    "upper quartile",
    "rounds",
    "keylatch / candidate",
    "not measured because",
];

const GOAL_COLUMNS: [&str; 10] = [
    "scenario",
    "measure",
    "form of keylatch",
    "keylatch",
    "compared with",
    "its figure",
    "ratio",
    "goal",
    "stretch",
    "met",
];

impl Measure {
    fn judged(&self) -> Of {
        self.comparisons.iter().find_map(|comparison| comparison.goal).map_or(Of::Ratio, |goal| goal.of)
    }

    /// Returns the figure that is shown.
    pub fn of(&self, stats: &Stats) -> f64 {
        if self.judged() == Of::BestRounds { stats.best } else { stats.median }
    }

    fn title(&self) -> String {
        if self.judged() == Of::BestRounds { format!("{} (best round)", self.label()) } else { self.label() }
    }
}

/// The subject of a table row.
#[derive(Clone, Copy)]
struct Line<'a> {
    scenario: &'a Scenario,
    measure: &'a Measure,
    comparison: Comparison,
}

fn lines<'a>(scenarios: impl IntoIterator<Item = &'a Scenario>) -> impl Iterator<Item = Line<'a>> {
    scenarios.into_iter().flat_map(|scenario| {
        scenario.measures.iter().flat_map(move |measure| {
            measure.comparisons.iter().map(move |comparison| Line { scenario, measure, comparison: *comparison })
        })
    })
}

fn header(first: &[&str], candidates: &[&str], last: &[&str]) -> String {
    let columns = [first, candidates, last].concat();
    let mut table = String::new();
    row(&mut table, columns.iter());
    row(&mut table, columns.iter().map(|_| "---"));
    table
}

fn row(table: &mut String, cells: impl IntoIterator<Item = impl AsRef<str>>) {
    table.push('|');
    for cell in cells {
        write!(table, " {} |", cell.as_ref()).expect("writing to a string cannot fail");
    }
    table.push('\n');
}

/// Formats a value with two or three significant digits, but at most five decimals; from 100 on, as a whole number.
pub fn figure(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        ..0.01 => format!("{value:.5}"),
        0.01..0.1 => format!("{value:.3}"),
        0.1..10.0 => format!("{value:.2}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
