//! The behaviour of leases on engines when many owners want one resource, when holders are killed, and when very many
//! leases are held.
//!
//! `cargo bench --bench crowds` takes a minute and a half for each engine. `-- postgres` measures only that engine, and
//! `-- --case renewals` only the cases whose names contain that word. `-- --csv FILE` also writes the figures to that
//! file, where they replace those of the same engine and case. `-- --list` prints the names of the engines. Private
//! servers are started, and stopped at the end. `cargo test` runs every case once, quickly.
//!
//! Other processes run this same program. An environment variable tells them the engine and its address; they read
//! commands from their standard input, and end when it is closed. Times that are compared among processes are those of
//! `StdClock`, which on Linux counts from the boot of the machine in every process.

mod case;
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

use keylatch_lease_benches::figures::Figures;

use crate::case::{Case, Error, FULL, SMOKE};
use crate::engines::{InEtcd, InNats, InPostgres, InRedis, InSqlite, Memory, Subject};

/// The engines that are measured, in this order.
const ENGINES: [Entry; 6] = [
    entry::<Memory>(),
    entry::<InSqlite>(),
    entry::<InPostgres>(),
    entry::<InRedis>(),
    entry::<InEtcd>(),
    entry::<InNats>(),
];

/// The functions of an engine, with its type erased.
struct Entry {
    name: &'static str,
    run: fn(&Case<'_>) -> Result<(), Error>,
    work: fn(&str, &str) -> Result<(), Error>,
}

const fn entry<S: Subject>() -> Entry {
    Entry { name: S::NAME, run: cases::run::<S>, work: worker::serve::<S> }
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
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
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
