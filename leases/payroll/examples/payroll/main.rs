//! A payroll: several worker processes must pay each account exactly once. One worker is killed in the middle of a
//! payment. Another is stopped in the middle of a payment, and resumes after another worker has made that payment.
//!
//! ```text
//! cargo run --release --example payroll                  # needs no server: serves the engine in memory to the workers over TCP
//! cargo run --release --example payroll -- --engine sqlite    # needs no server: a file
//! cargo run --release --example payroll -- --no-fence    # the ledger admits any write: one account is paid twice
//! cargo run --release --example payroll -- --lock none   # no leases: many accounts are paid twice
//! cargo run --release --example payroll --features etcd -- --engine etcd
//! cargo run --release --example payroll --features postgres -- --engine postgres
//! cargo run --release --example payroll --features postgres -- --engine postgres --lock advisory
//! cargo run --release --example payroll --features nats -- --engine nats
//! cargo run --release --example payroll --features redis -- --engine redis
//! cargo run --release --example payroll --features object -- --engine object
//! ```
//!
//! Where to look: `worker.rs`, above all [`worker::pay`], shows how a program uses leases. [`ledger::Ledger::read`] and
//! [`ledger::Ledger::pay`] show the fence at work, next to the data. [`script::run`] kills and stops the workers.

mod args;
#[cfg(feature = "etcd")]
mod etcd;
mod ledger;
mod lock;
#[cfg(feature = "nats")]
mod nats;
#[cfg(feature = "object")]
mod object;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(any(feature = "etcd", feature = "nats", feature = "object", feature = "postgres", feature = "redis"))]
mod private;
#[cfg(feature = "redis")]
mod redis;
mod script;
mod sqlite;
mod worker;

use std::{env, process::ExitCode};

use args::{Args, HELP};

fn main() -> ExitCode {
    let args = match Args::parse(env::args().skip(1)) {
        Ok(Some(args)) => args,
        Ok(None) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(complaint) => {
            eprintln!("payroll: {complaint} (see --help)");
            return ExitCode::from(2);
        }
    };
    let outcome = match &args.worker {
        Some(worker) => worker::run(&args, worker).map(|()| true).map_err(|error| (format!(" {}", worker.name), error)),
        None => script::run(&args).map_err(|error| (String::new(), error)),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err((who, error)) => {
            eprintln!("payroll{who}: {error}");
            ExitCode::from(2)
        }
    }
}
