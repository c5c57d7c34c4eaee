//! A second process that ends the command when the first one cannot: because it was killed, or is stopped while the
//! lease runs out.
//!
//! The first process writes a line to the guard's standard input whenever the lease has a new end (`never` if it has
//! none), when it has asked the command to end (`asked`), and when the command has ended (`done`). If the input ends
//! without `done`, the first process is dead.

use std::{
    env,
    ffi::OsString,
    io::{BufRead, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::Duration,
};

use keylatch_lease::{Clock, StdClock, Token};
use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::{consts, iterator::Signals};

use crate::{
    descendants,
    failure::{Failure, USAGE},
};

/// The first argument of a guard.
pub(crate) const GUARD: &str = "--internal-guard";

/// The variable with the tokens of this run and of the runs around it. It is in the environment of the command and of
/// the processes that the command starts.
const CHAIN: &str = "KEYLATCH_CHAIN";

/// Returns the variable by which the guard finds the command's processes.
pub(crate) fn chain(token: Token) -> (&'static str, String) {
    let outer = env::var(CHAIN).map(|outer| format!("{outer}:")).unwrap_or_default();
    (CHAIN, format!("{outer}{token}"))
}

const ASKED: &str = "asked";
const DONE: &str = "done";
const NEVER: &str = "never";

/// The longest pause between two looks at the clock, unless the command may run for ever.
const LONGEST: Duration = Duration::from_secs(1);

/// Returns the part of the grace that is left for SIGKILL.
pub(crate) fn margin(grace: Duration) -> Duration {
    (grace / 4).min(Duration::from_millis(200))
}

/// The first process's handle of the guard. If it is dropped without [`end`](Self::end), the guard kills the command,
/// and ends.
#[derive(Debug)]
pub(crate) struct Guard {
    child: Child,
    input: Option<ChildStdin>,
    told: Option<Option<Duration>>,
}

impl Guard {
    /// Starts a guard of this process group, and of the other processes with this token, all of which must have ended
    /// by this time of [`StdClock`]; `None`: never.
    pub(crate) fn start(group: Pid, token: Token, grace: Duration, end: Option<Duration>) -> std::io::Result<Self> {
        use std::os::unix::process::CommandExt;

        let mut command = Command::new("/proc/self/exe");
        command
            .arg(GUARD)
            .arg(group.as_raw_nonzero().to_string())
            .arg(token.to_string())
            .arg(grace.as_micros().to_string());
        command.arg(end.map_or_else(|| NEVER.to_owned(), |end| end.as_micros().to_string()));
        // The guard has its own group, so that the terminal's signals do not reach it.
        let mut child = command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        let input = child.stdin.take();
        if let Some(input) = &input {
            rustix::io::ioctl_fionbio(input, true)?; // a guard that is stopped must not stop this process
        }
        Ok(Guard { child, input, told: Some(end) })
    }

    pub(crate) fn id(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Tells the guard the time, by [`StdClock`], at which the command must have ended, unless a later call names
    /// another; `None`: never.
    pub(crate) fn tell(&mut self, end: Option<Duration>) {
        if self.told == Some(end) {
            return;
        }
        self.told = Some(end);
        self.write(&end.map_or_else(|| NEVER.to_owned(), |end| end.as_micros().to_string()));
    }

    /// Tells the guard that the command was asked to end, so that it is not asked twice.
    pub(crate) fn tell_asked(&mut self) {
        self.write(ASKED);
    }

    fn write(&mut self, line: &str) {
        // If the guard is dead, this process carries on alone.
        if let Some(input) = &mut self.input {
            let _ = writeln!(input, "{line}").and_then(|()| input.flush());
        }
    }

    /// Ends the guard, because the command has ended. `is_alive` says whether the guard is known to be alive.
    pub(crate) fn end(mut self, is_alive: bool) {
        self.write(DONE);
        self.input = None;
        if is_alive {
            // The guard may have been stopped, and then does not end by itself.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Runs as the guard.
pub(crate) fn guard(mut words: impl Iterator<Item = OsString>) -> Result<u8, Failure> {
    let mut number = || words.next()?.to_str()?.parse::<u64>().ok();
    let usage = || Failure::new(USAGE, "this process is started by keylatch itself");
    let group = number().and_then(|raw| Pid::from_raw(i32::try_from(raw).ok()?)).ok_or_else(usage)?;
    let token = number().ok_or_else(usage)?.to_string();
    let grace = number().map(Duration::from_micros).ok_or_else(usage)?;
    let mut end = number().map(Duration::from_micros);
    let kill = || {
        // The group may have ended just now.
        let _ = kill_process_group(group, Signal::KILL);
        descendants::kill_all_of(CHAIN, &token);
    };
    // Only the first process ends the guard. Signals that arrive are dropped.
    let _signals = Signals::new([consts::SIGHUP, consts::SIGINT, consts::SIGQUIT, consts::SIGTERM])
        .map_err(|error| Failure::system("signals cannot be handled", error))?;
    let (sender, lines) = channel();
    thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let clock = StdClock::new();
    let mut has_asked = false;
    loop {
        let now = clock.now();
        let due = |before: Duration| end.map(|end: Duration| end.saturating_sub(before));
        // The first process asks a little earlier, if it can.
        let next = if has_asked { due(margin(grace)) } else { due(grace - margin(grace)) };
        if next.is_some_and(|next| next <= now) {
            if has_asked {
                kill();
                return Ok(0);
            }
            let _ = kill_process_group(group, Signal::TERM);
            has_asked = true;
            continue;
        }
        let line = match next {
            // Timers stand still while the machine is suspended, so the clock is read again now and then.
            Some(next) => lines.recv_timeout((next - now).min(LONGEST)),
            None => lines.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match line.as_deref() {
            Ok(DONE) => return Ok(0),
            Ok(ASKED) => has_asked = true,
            Ok(NEVER) => (end, has_asked) = (None, false),
            Ok(line) => {
                let new = line.parse().ok().map(Duration::from_micros);
                // A command that was asked to end is not asked again.
                end = new.or(end);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                kill();
                return Ok(0);
            }
        }
    }
}
