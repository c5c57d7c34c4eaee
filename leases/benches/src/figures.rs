//! The measured figures of the engines, as a file and as tables.

use std::fmt::Write;
use std::path::Path;
use std::{fs, io, thread};

use keylatch_benches::report::figure;
use keylatch_benches::system::machine;

/// The case that describes the engines; its figures are not measured.
const ABOUT: &str = "about";

/// The figures of each engine in each case.
#[derive(Default)]
pub struct Figures {
    /// The machine on which the figures were measured.
    machine: String,
    rows: Vec<Row>,
}

struct Row {
    engine: String,
    case: String,
    measure: String,
    /// A number or a text.
    value: String,
}

impl Figures {
    /// Reads the file; returns no figures if it does not exist.
    pub fn read(path: &Path) -> io::Result<Self> {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Figures::default()),
            text => text?,
        };
        let machine = text.lines().next().and_then(|line| line.strip_prefix("# ")).unwrap_or_default().to_owned();
        let mut csv = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(text.as_bytes());
        let mut rows = vec![];
        for record in csv.records() {
            let record = record?;
            let column = |at: usize| record.get(at).unwrap_or_default().to_owned();
            rows.push(Row { engine: column(0), case: column(1), measure: column(2), value: column(3) });
        }
        Ok(Figures { machine, rows })
    }

    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut text = format!("# {}\n", self.machine).into_bytes();
        let mut csv = csv::Writer::from_writer(&mut text);
        csv.write_record(["engine", "case", "measure", "value"])?;
        for Row { engine, case, measure, value } in &self.rows {
            csv.write_record([engine, case, measure, value])?;
        }
        drop(csv);
        fs::write(path, text)
    }

    /// Replaces the figures of an engine in a case with new ones.
    pub fn replace(&mut self, engine: &str, case: &str, figures: &[(&str, String)]) {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        self.machine = format!("{cores} cores, {}", machine());
        let is_of_it = |row: &Row| row.engine == engine && row.case == case;
        let place = self.rows.iter().position(is_of_it).unwrap_or(self.rows.len());
        self.rows.retain(|row| !is_of_it(row));
        let new = figures.iter().map(|(measure, value)| Row {
            engine: engine.to_owned(),
            case: case.to_owned(),
            measure: (*measure).to_owned(),
            value: value.clone(),
        });
        self.rows.splice(place..place, new);
    }

    /// Sets the version of an engine.
    pub fn describe(&mut self, engine: &str, version: &str) {
        self.replace(engine, ABOUT, &[("version", version.to_owned())]);
    }

    /// Returns the machine and the versions of the engines, as a line of text.
    pub fn facts(&self) -> String {
        let about = self.rows.iter().filter(|row| row.case == ABOUT);
        let engines: Vec<_> = about.map(|row| format!("{} {}", row.engine, row.value)).collect();
        format!("{}. {}.", self.machine, engines.join(", "))
    }

    /// Returns the names of the measured cases.
    pub fn cases(&self) -> Vec<&str> {
        unique(self.rows.iter().map(|row| row.case.as_str()).filter(|case| *case != ABOUT))
    }

    pub fn engines(&self, case: &str) -> Vec<&str> {
        unique(self.rows.iter().filter(|row| row.case == case).map(|row| row.engine.as_str()))
    }

    pub fn value(&self, engine: &str, case: &str, measure: &str) -> Option<&str> {
        let is_it = |row: &&Row| row.engine == engine && row.case == case && row.measure == measure;
        self.rows.iter().find(is_it).map(|row| row.value.as_str())
    }

    /// Returns a table in Markdown, with a row for each engine.
    pub fn table(&self, case: &str) -> String {
        let measures = unique(self.rows.iter().filter(|row| row.case == case).map(|row| row.measure.as_str()));
        let mut table = format!("| engine | {} |\n| ---", measures.join(" | "));
        table += &" | ---:".repeat(measures.len());
        table += " |\n";
        for engine in self.engines(case) {
            write!(table, "| {engine} |").expect("strings take all");
            for measure in &measures {
                let value = self.value(engine, case, measure).unwrap_or("–");
                let is_measured = value.contains('.');
                let value = value.parse().ok().filter(|_| is_measured).map_or_else(|| value.to_owned(), figure);
                write!(table, " {value} |").expect("strings take all");
            }
            table.push('\n');
        }
        table
    }
}

fn unique<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut unique = vec![];
    for name in names {
        if !unique.contains(&name) {
            unique.push(name);
        }
    }
    unique
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_figures_replace_old_ones_of_the_same_engine_and_case() {
        let mut figures = Figures::default();
        figures.replace("a", "x", &[("p50, ms", "1.0".to_owned()), ("p99, ms", "2".to_owned())]);
        figures.replace("b", "x", &[("p50, ms", "3.0".to_owned())]);
        figures.replace("a", "x", &[("p50, ms", "4.0".to_owned())]);
        figures.replace("a", "y", &[("waiting", "2 × 3".to_owned())]);
        assert_eq!(figures.table("x"), "| engine | p50, ms |\n| --- | ---: |\n| a | 4.00 |\n| b | 3.00 |\n");
        assert_eq!(figures.cases(), ["x", "y"]);
    }
}
