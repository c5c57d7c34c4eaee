//! The wait for a lease, and the line that says who has it.

use std::{
    fmt,
    future::Future,
    io::{self, IsTerminal, Write},
    time::{Duration, Instant},
};

use async_io::Timer;
use futures_lite::future::or;
use keylatch_lease::{Leases, engine::Engine};
use rustix::termios::tcgetwinsize;

use crate::output::plain;

/// The interval at which the line is rewritten.
const EVERY: Duration = Duration::from_secs(1);

/// Waits for a future, and meanwhile, unless `quiet`, says who has the lease: on a terminal once a second, elsewhere
/// once.
pub(crate) async fn telling<E: Engine, T>(
    leases: &Leases<E>,
    name: &str,
    quiet: bool,
    acquiring: impl Future<Output = T>,
) -> T {
    let mut line = Line { is_rewritten: io::stderr().is_terminal(), has_text: false };
    let start = Instant::now();
    let telling = async {
        // A lease that is free is acquired before anything is said.
        Timer::after(Duration::from_millis(200)).await;
        loop {
            if let (false, Ok(Some(status))) = (quiet, leases.status(name).await) {
                let waited = Seconds(start.elapsed());
                let left = status.remaining().map_or_else(|| "no end".into(), |left| Seconds(left).to_string());
                let owner = status.owner();
                line.say(&plain(&format!(
                    "keylatch: waiting for {name}: {owner} has it for another {left} unless it is renewed; waited {waited}"
                )));
                if !line.is_rewritten {
                    return std::future::pending().await;
                }
            }
            Timer::after(EVERY).await;
        }
    };
    let acquired = or(acquiring, telling).await;
    line.clear();
    acquired
}

/// A line on the standard error output.
struct Line {
    is_rewritten: bool,
    has_text: bool,
}

impl Line {
    fn say(&mut self, text: &str) {
        // A line that is longer than the terminal is wide could not be rewritten.
        let width = tcgetwinsize(io::stderr()).ok().filter(|size| self.is_rewritten && size.ws_col > 1);
        let width = width.map_or(usize::MAX, |size| usize::from(size.ws_col) - 1);
        let text: String = text.chars().take(width).collect();
        // Nobody may be reading.
        let _ =
            if self.is_rewritten { write!(io::stderr(), "\r\x1b[K{text}") } else { writeln!(io::stderr(), "{text}") };
        self.has_text = self.is_rewritten;
    }

    fn clear(&mut self) {
        if self.has_text {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// A time in whole seconds, for people.
pub(crate) struct Seconds(pub(crate) Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(Duration::from_secs(self.0.as_secs())).fmt(f)
    }
}
