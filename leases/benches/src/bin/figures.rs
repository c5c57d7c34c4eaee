//! Converts `results` into the tables of `docs/leases.md` and its charts in `docs/charts`.
//!
//! `cargo bench --bench crowds` writes `results/crowds.csv`, and the output of each engine's own bench is in
//! `results/ENGINE.md`. The script `figures` of this package makes all of these files, and runs this program. An engine
//! without a file is left out.
//!
//! Each table on the page stands between `<!-- table: NAME -->` and `<!-- end -->`. NAME is a case of `crowds`; or
//! `facts`, which is a line of text; or `cycles` or `hand-offs`, which are the tables of the engines' benches.

use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};

use keylatch_benches::chart::{Bar, Chart, Kind, Panel, fill_tables};
use keylatch_benches::report::figure;
use keylatch_lease_benches::figures::Figures;

/// The names of the first columns of the tables in the engines' benches, which identify the tables.
const CYCLES: &str = "acquire + release";
const HAND_OVERS: &str = "hand-off to a waiter";

fn main() -> io::Result<()> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (results, docs) = (package.join("results"), package.join("../../docs"));
    let figures = Figures::read(&results.join("crowds.csv"))?;
    let engines = engines(&results)?;

    let charts = docs.join("charts");
    fs::write(charts.join("leases-cycles.svg"), cycles(&engines).svg())?;
    fs::write(charts.join("leases-hand-off.svg"), hand_overs(&engines, &figures).svg())?;

    let page = docs.join("leases.md");
    let filled = fill_tables(&fs::read_to_string(&page)?, |name| match name {
        "facts" => figures.facts(),
        "cycles" => printed(&engines, CYCLES),
        "hand-offs" => printed(&engines, HAND_OVERS),
        case => figures.table(case),
    });
    fs::write(page, filled)
}

/// The output of an engine's bench.
struct Printed {
    engine: String,
    tables: Vec<Table>,
}

/// A table in Markdown.
struct Table {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
    text: String,
}

fn engines(results: &Path) -> io::Result<Vec<Printed>> {
    let mut files: Vec<_> =
        fs::read_dir(results)?.collect::<Result<Vec<_>, _>>()?.iter().map(|file| file.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "md"));
    files.sort();
    let read = |file: &std::path::PathBuf| {
        let engine = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Printed { engine, tables: tables(&fs::read_to_string(file)?) })
    };
    files.iter().map(read).collect()
}

fn tables(text: &str) -> Vec<Table> {
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let blocks = text.split("\n\n").map(str::trim).filter(|block| block.starts_with('|'));
    let read = |block: &str| {
        let mut lines = block.lines();
        let columns = cells(lines.next()?);
        let rows = lines.skip(1).map(cells).filter(|row| row.len() == columns.len()).collect();
        Some(Table { columns, rows, text: block.to_owned() })
    };
    blocks.filter_map(read).collect()
}

impl Printed {
    fn table(&self, name: &str) -> Option<&Table> {
        self.tables.iter().find(|table| table.columns[0] == name)
    }

    /// Returns the kind of a candidate. The first is the lease. The others that can hand over are its peers, and the
    /// rest are references.
    fn kind(&self, at: usize, candidate: &str) -> Kind {
        let hand_overs = self.table(HAND_OVERS).map_or(&[][..], |table| &table.rows);
        match at {
            0 => Kind::Own,
            _ if hand_overs.iter().any(|row| row[0] == candidate) => Kind::Peer,
            _ => Kind::Reference,
        }
    }
}

fn printed(engines: &[Printed], name: &str) -> String {
    let of = |engine: &Printed| Some(format!("{}:\n\n{}", engine.engine, engine.table(name)?.text));
    engines.iter().filter_map(of).collect::<Vec<_>>().join("\n\n")
}

/// Draws a panel for each engine and each number of clients.
fn cycles(engines: &[Printed]) -> Chart {
    let mut panels = vec![];
    for engine in engines {
        let Some(table) = engine.table(CYCLES) else { continue };
        let column = |name: &str| table.columns.iter().position(|column| column == name);
        let (Some(clients), Some(rate)) = (column("clients"), column("cycles/s")) else { continue };
        let crowds: BTreeSet<u64> = table.rows.iter().filter_map(|row| row[clients].parse().ok()).collect();
        for crowd in crowds {
            let rows = table.rows.iter().filter(|row| row[clients].parse() == Ok(crowd));
            let bar = |(at, row): (usize, &Vec<String>)| {
                let (label, text) = (row[0].clone(), row[rate].clone());
                Some(Bar { kind: engine.kind(at, &label), length: text.parse().ok()?, label, text })
            };
            let bars = rows.enumerate().filter_map(bar).collect();
            let with = if crowd == 1 { "one client".to_owned() } else { format!("{crowd} clients") };
            panels.push(Panel { title: format!("{}, {with}", engine.engine), bars, notes: vec![] });
        }
    }
    Chart { title: "Acquire and release: cycles in a second (more is better)".to_owned(), panels }
}

/// Draws the hand-offs between two connections, with the peers, and those among processes.
fn hand_overs(engines: &[Printed], figures: &Figures) -> Chart {
    let mut panels = vec![];
    for engine in engines {
        let Some(table) = engine.table(HAND_OVERS) else { continue };
        let bar = |(at, row): (usize, &Vec<String>)| {
            let [p50, p99] = ["p50 ", "p99 "].map(|name| quantile(row.get(1)?, name));
            let text = format!("{} · {}", figure(p50? / 1e3), figure(p99? / 1e3));
            Some(Bar { label: row[0].clone(), length: p50? / 1e3, text, kind: engine.kind(at, &row[0]) })
        };
        let bars = table.rows.iter().enumerate().filter_map(bar).collect();
        panels.push(Panel { title: format!("{}: between two connections", engine.engine), bars, notes: vec![] });
    }
    const CASE: &str = "hand-off";
    for processes in [2, 64] {
        let value = |engine: &str, p: u32| {
            figures.value(engine, CASE, &format!("{processes} processes: p{p}, ms"))?.parse().ok()
        };
        let bar = |engine: &str| {
            let (p50, p99): (f64, f64) = (value(engine, 50)?, value(engine, 99)?);
            let text = format!("{} · {}", figure(p50), figure(p99));
            Some(Bar { label: engine.to_owned(), length: p50, text, kind: Kind::Own })
        };
        let bars: Vec<_> = figures.engines(CASE).into_iter().filter_map(bar).collect();
        panels.push(Panel { title: format!("Among {processes} processes"), bars, notes: vec![] });
    }
    Chart { title: "From a release until the next has it: ms, p50 · p99 (less is better)".to_owned(), panels }
}

/// Reads a percentile of a cell such as `p50 12 µs, p99 34 µs`.
fn quantile(text: &str, name: &str) -> Option<f64> {
    text.split(", ").find_map(|part| part.strip_prefix(name))?.strip_suffix(" µs")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_a_bench_is_read() {
        let text = "\n| acquire + release | clients | each takes | cycles/s |\n| --- | ---: | ---: | ---: |\n\
            | lease | 1 | p50 12 µs, p99 34 µs | 567 |\n| floor | 1 | p50 1 µs, p99 2 µs | 890 |\n\n\
            | hand-off to a waiter | takes |\n| --- | ---: |\n| lease | p50 12 µs, p99 34 µs |\n";
        let engines = [Printed { engine: "x".to_owned(), tables: tables(text) }];
        let chart = cycles(&engines);
        assert_eq!(chart.panels[0].bars.iter().map(|bar| bar.length).collect::<Vec<_>>(), [567.0, 890.0]);
        let chart = hand_overs(&engines, &Figures::default());
        assert_eq!(chart.panels[0].bars[0].text, "0.012 · 0.034");
    }
}
