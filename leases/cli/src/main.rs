//! `keylatch`: runs a command under a lease.
//!
//! - [`args`]: the command line. [`engine`]: the engine behind a URL.
//! - [`run`]: `run` and `lead`: acquires, runs the command, renews, and ends the command if the lease is lost.
//!   [`command`] is the command's process group, [`descendants`] are the processes that have left it, [`terminal`]
//!   knows which group has the terminal, and [`wait`] writes the line that says for whom this program waits.
//! - [`guard`]: a second process, which ends the command if this one is killed or stopped.
//! - [`show`]: `ls`, `who`, `watch`, `release`, `release-all`, `engines`.
#![forbid(unsafe_code)]

mod args;
mod command;
mod descendants;
mod engine;
mod failure;
mod guard;
mod output;
#[cfg(test)]
mod pages;
mod run;
mod show;
mod terminal;
mod wait;

use std::{env, process::ExitCode};

use clap::Parser as _;

use args::{Action, Args};
use failure::Failure;

fn main() -> ExitCode {
    // The program starts itself with one of these words, to run as one of its other processes.
    let mut words = env::args_os().skip(1);
    let done = match words.next().as_deref().and_then(|word| word.to_str()) {
        Some(command::LAUNCH) => command::launch(words),
        Some(terminal::FOREGROUND) => terminal::foreground(words),
        Some(guard::GUARD) => guard::guard(words),
        _ => match Args::try_parse() {
            Ok(args) => act(args),
            Err(error) => {
                let _ = error.print();
                Ok(if error.use_stderr() { failure::USAGE } else { 0 })
            }
        },
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            failure.tell();
            ExitCode::from(failure.code)
        }
    }
}

fn act(args: Args) -> Result<u8, Failure> {
    let Args { place, action } = args;
    match action {
        Action::Run(options) => engine::with(&place, run::Run { options, leads: false }),
        Action::Lead(options) => engine::with(&place, run::Run { options, leads: true }),
        Action::Init => engine::init(&place),
        Action::Engines => show::engines(&place),
        other => engine::with(&place, show::Show(other)),
    }
}
