//! How leases on engines behave where many want one, holders are killed, or very many are held.
//!
//! `cargo bench --bench crowds`, a minute and a half for each engine; `-- postgres` measures that one alone, `-- --case renewals` the cases
//! whose names contain that. With `-- --csv FILE` the figures go to that file as well, instead of those that it has of the same
//! engine and case. `-- --list` names the engines. Private servers are started for it, and stopped in the end. `cargo test` runs every case once, quickly.
//!
//! Other processes are this program once more, told by an environment variable what they are; they obey their standard input, and end with
//! it. Times that are compared among processes are those of `StdClock`, which on Linux counts from the boot of the machine: for all alike.

mod cases;
mod counted;
mod crowd;
mod engines;
mod server;
mod worker;

use std::cell::RefCell;
use std::env;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use keylatch_lease_benches::figures::Figures;

use crate::engines::ENGINES;

pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// How much of everything is done.
pub struct Scale {
    /// Who wait in one process.
    pub crowd: usize,
    /// Processes, and who wait in each of them.
    pub crowds: (usize, usize),
    /// For how long nothing happens.
    pub idle: Duration,
    /// How many processes hand over among each other.
    pub pairs: &'static [usize],
    pub hand_overs: usize,
    pub kills: usize,
    /// How much sooner than after a renewal or two a holder is killed.
    pub haste: u32,
    pub leases: usize,
    pub lease: Duration,
    pub renewing: Duration,
}

const FULL: Scale = Scale {
    crowd: 1_000,
    crowds: (50, 20),
    idle: Duration::from_secs(10),
    pairs: &[2, 64],
    hand_overs: 300,
    kills: 10,
    haste: 1,
    leases: 10_000,
    lease: Duration::from_secs(30),
    renewing: Duration::from_secs(25),
};
const SMOKE: Scale = Scale {
    crowd: 5,
    crowds: (2, 2),
    idle: Duration::from_millis(50),
    pairs: &[2],
    hand_overs: 3,
    kills: 1,
    haste: 20,
    leases: 20,
    lease: Duration::from_secs(30),
    renewing: Duration::from_millis(50),
};

/// What is to be done with an engine.
pub struct Case<'a> {
    pub scale: &'a Scale,
    only: Option<String>,
    figures: RefCell<Figures>,
}

impl Case<'_> {
    pub fn is_asked_for(&self, case: &str) -> bool {
        self.only.as_ref().is_none_or(|only| case.contains(only.as_str()))
    }

    /// What the server is.
    pub fn describe(&self, engine: &str, version: &str) {
        self.figures.borrow_mut().describe(engine, version);
    }

    /// Notes figures of an engine, instead of those that there are of this case.
    pub fn note(&self, engine: &str, case: &str, figures: &[(&str, String)]) {
        self.figures.borrow_mut().replace(engine, case, figures);
    }
}

struct Args {
    engines: Vec<String>,
    only: Option<String>,
    csv: Option<PathBuf>,
    is_full: bool,
    is_list: bool,
}

fn args() -> Result<Args, Error> {
    let mut parsed = Args { engines: vec![], only: None, csv: None, is_full: false, is_list: false };
    let mut words = env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word}: of what?"));
        match word.as_str() {
            "--list" => parsed.is_list = true,
            "--bench" => parsed.is_full = true,
            "--csv" => parsed.csv = Some(value()?.into()),
            "--case" => parsed.only = Some(value()?),
            name if ENGINES.iter().any(|engine| engine.name == name) => parsed.engines.push(word),
            _ => {
                let names: Vec<_> = ENGINES.iter().map(|engine| engine.name).collect();
                return Err(
                    format!("{word}: must be --csv FILE, --case NAME, --list, or one of {}", names.join(", ")).into()
                );
            }
        }
    }
    Ok(parsed)
}

fn run() -> Result<(), Error> {
    if let Some(order) = worker::order() {
        let engine = ENGINES.iter().find(|engine| engine.name == order.engine).ok_or("no such engine")?;
        return (engine.work)(&order.address, &order.namespace);
    }
    let args = args()?;
    if args.is_list {
        ENGINES.iter().for_each(|engine| println!("{}", engine.name));
        return Ok(());
    }
    let scale = if args.is_full { &FULL } else { &SMOKE };
    let before = args.csv.as_deref().map(Figures::read).transpose()?;
    let case = Case { scale, only: args.only, figures: RefCell::new(before.unwrap_or_default()) };
    for engine in &ENGINES {
        if args.engines.is_empty() || args.engines.iter().any(|name| name == engine.name) {
            (engine.run)(&case).map_err(|error| format!("{}: {error}", engine.name))?;
            if let Some(csv) = &args.csv {
                case.figures.borrow().write(csv)?;
            }
        }
    }
    let figures = case.figures.into_inner();
    println!("{}", figures.facts());
    for case in figures.cases() {
        println!("\n{case}\n\n{}", figures.table(case).trim_end());
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("crowds: {error}");
            ExitCode::FAILURE
        }
    }
}
