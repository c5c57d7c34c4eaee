//! The command: a process group, which has the terminal if this program has it, and what it leaves running.

use std::{
    ffi::OsString,
    io::{self, IsTerminal},
    os::unix::process::CommandExt,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use keylatch_lease::{Clock, StdClock};
use rustix::{
    io::{Errno, retry_on_intr},
    process::{
        Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpgrp, getpid, getppid, kill_process,
        kill_process_group, test_kill_process_group, wait, waitid,
    },
};

use signal_hook::low_level::emulate_default_handler;

use crate::{
    descendants,
    failure::{Failure, LOST, USAGE},
    terminal::Terminal,
};

/// The first argument of the process that becomes the command.
pub(crate) const LAUNCH: &str = "--internal-launch";

/// The exit codes of shells for a command that cannot be started.
const CANNOT_EXECUTE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// The time that what a command leaves behind has to end.
const LEFTOVERS: Duration = Duration::from_secs(1);

const PAUSE: Duration = Duration::from_millis(5);

const NEVER: &str = "never";

/// A running command.
#[derive(Debug)]
pub(crate) struct Group {
    pid: Pid,
    terminal: Terminal,
}

/// How a command has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// The exit code, as shells have it.
    pub(crate) code: u8,
    /// Whether it died of an interrupt.
    is_interrupted: bool,
    /// Whether its group had the terminal.
    had_terminal: bool,
}

impl Group {
    /// Prepares a command with these variables in its environment. It begins with [`begin`](Self::begin), unless the
    /// time is `latest` by then.
    pub(crate) fn prepare(
        command: &[OsString],
        variables: &[(&str, String)],
        latest: Option<Duration>,
    ) -> io::Result<Self> {
        descendants::adopt()?;
        let mut launch = Command::new("/proc/self/exe");
        launch.arg(LAUNCH).arg(getpid().as_raw_nonzero().to_string());
        launch.arg(latest.map_or_else(|| NEVER.to_owned(), |latest| latest.as_micros().to_string()));
        let variables = variables.iter().map(|(name, value)| (name, value));
        let child = launch.args(command).envs(variables).process_group(0).spawn()?;
        let pid = Pid::from_child(&child);
        // It stops itself, or has failed, which `ended` will find.
        let options = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
        retry_on_intr(|| waitid(WaitId::Pid(pid), options))?;
        Ok(Group { pid, terminal: Terminal::open() })
    }

    /// Lets the command begin.
    pub(crate) fn begin(&self) {
        // A pipeline is a single group, and its other commands may need the terminal: then this command gets it when it
        // asks.
        if io::stdin().is_terminal() && io::stdout().is_terminal() {
            self.terminal.give(self.pid);
        }
        self.signal(Signal::CONT);
    }

    pub(crate) fn id(&self) -> Pid {
        self.pid
    }

    /// Sends a signal to all processes of the group.
    pub(crate) fn signal(&self, signal: Signal) {
        // The group may have ended just now.
        let _ = kill_process_group(self.pid, signal);
    }

    /// Returns how the command has ended, if it has. Takes notice of it if the command was stopped, and of adopted
    /// processes that have ended.
    pub(crate) fn ended(&self) -> Option<Outcome> {
        let had_terminal = self.terminal.is_of(self.pid);
        let outcome = |code, is_interrupted| Some(Outcome { code, is_interrupted, had_terminal });
        loop {
            match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((pid, status))) if pid == self.pid => match status.stopping_signal() {
                    Some(signal) => self.stopped(signal),
                    None => return outcome(code(status), status.terminating_signal() == Some(Signal::INT.as_raw())),
                },
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return None,
                Err(_) => return outcome(NOT_FOUND, false),
            }
        }
    }

    /// The command was stopped. If it needs the terminal, it gets it; if it was stopped at the terminal, this process
    /// stops, too, so that the shell takes notice, and both go on together.
    fn stopped(&self, signal: i32) {
        let asks = signal == Signal::TTIN.as_raw() || signal == Signal::TTOU.as_raw();
        let has_terminal = self.terminal.is_of(self.pid);
        if !asks && !has_terminal && signal != Signal::TSTP.as_raw() {
            return; // somebody has stopped the command alone
        }
        if !(asks && self.terminal.is_ours()) {
            self.terminal.take(self.pid);
            let _ = kill_process(getpid(), Signal::STOP);
        }
        if asks || has_terminal {
            self.terminal.give(self.pid);
        }
        self.signal(Signal::CONT);
    }

    /// Ends what the command has left running, except for the guard, and takes the terminal back.
    pub(crate) fn clean_up(&self, time: Duration, guard: Pid) {
        let left = || descendants::children().into_iter().filter(|child| *child != guard).collect::<Vec<_>>();
        let all = |signal, left: &[Pid]| {
            self.signal(signal);
            for child in left {
                let _ = kill_process(*child, signal); // it may have ended just now
            }
        };
        let (start, mut told) = (Instant::now(), left());
        all(Signal::TERM, &told);
        loop {
            while wait(WaitOptions::NOHANG).is_ok_and(|ended| ended.is_some()) {}
            let found = left();
            if found.is_empty() && test_kill_process_group(self.pid).is_err() {
                break;
            }
            if start.elapsed() >= time.min(LEFTOVERS) {
                all(Signal::KILL, &found);
            }
            // Those whose parents have ended meanwhile.
            for child in found.iter().filter(|child| !told.contains(child)) {
                let _ = kill_process(*child, Signal::TERM);
            }
            told = found;
            // One that cannot be killed is waiting for a disk that does not answer.
            if start.elapsed() >= 2 * LEFTOVERS {
                break;
            }
            thread::sleep(PAUSE);
        }
        self.terminal.take(self.pid);
    }
}

impl Group {
    /// If the command died of the terminal's interrupt, does to this process, and to those beside which it was started,
    /// what the interrupt would have done to them, had they not given the terminal away: a shell's loop ends, too.
    pub(crate) fn pass_on_interrupt(&self, outcome: Outcome, was_told: bool) {
        if !outcome.is_interrupted || getpid().is_init() {
            return;
        }
        if outcome.had_terminal {
            let _ = kill_process_group(getpgrp(), Signal::INT);
        } else if !(was_told && self.terminal.is_ours()) {
            return; // it was somebody's signal
        }
        let _ = emulate_default_handler(Signal::INT.as_raw());
    }
}

fn code(status: WaitStatus) -> u8 {
    let signal = || status.terminating_signal().map_or(1, |signal| 128 + signal);
    u8::try_from(status.exit_status().unwrap_or_else(signal)).unwrap_or(u8::MAX)
}

/// Becomes the command, which the system kills if the process that started it dies.
pub(crate) fn launch(mut words: impl Iterator<Item = OsString>) -> Result<u8, Failure> {
    let usage = || Failure::new(USAGE, "this process is started by keylatch itself");
    let parent = words.next().and_then(|word| word.to_str()?.parse::<i32>().ok()).ok_or_else(usage)?;
    let latest = words.next().ok_or_else(usage)?;
    let latest = latest.to_str().and_then(|word| word.parse().ok()).map(Duration::from_micros);
    let program = words.next().ok_or_else(usage)?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| Failure::system("the command cannot be bound to keylatch", error))?;
    // It may have died before that.
    if getppid().map(Pid::as_raw_nonzero).map(std::num::NonZero::get) != Some(parent) {
        return Err(Failure::new(CANNOT_EXECUTE, "keylatch has been killed"));
    }
    // Until the guard knows the end of the lease: if `keylatch` is stopped before, there is no command to end.
    kill_process(getpid(), Signal::STOP).map_err(|error| Failure::system("the command cannot be prepared", error))?;
    // It may have been stopped for long, and the lease be somebody else's.
    if latest.is_some_and(|latest| StdClock::new().now() >= latest) {
        return Ok(LOST);
    }
    let error = Command::new(&program).args(words).exec();
    let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_EXECUTE };
    Err(Failure::new(code, format_args!("{} cannot be started: {error}", program.to_string_lossy())))
}
