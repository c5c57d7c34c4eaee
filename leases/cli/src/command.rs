//! The command: a process group, which has the terminal if this program has it, and the processes that it leaves
//! running.

use std::{
    cell::Cell,
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
        Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpgrp, getpid, getppid, getsid, kill_process,
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

/// The longest time between SIGTERM and SIGKILL for the processes that a command leaves behind.
const LEFTOVERS: Duration = Duration::from_secs(1);

const PAUSE: Duration = Duration::from_millis(5);

const LONGEST_CLEAN_UP: Duration = Duration::from_secs(10);

const NEVER: &str = "never";

/// A running command.
#[derive(Debug)]
pub(crate) struct Group {
    pid: Pid,
    terminal: Terminal,
    /// The children that this process had before, which are not the command's.
    strangers: Vec<Pid>,
    /// The guard, while it is alive.
    guard: Cell<Option<Pid>>,
    /// Whether the command was told to stop.
    was_told_to_stop: Cell<bool>,
}

/// The way in which a command has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// The exit code, as shells report it.
    pub(crate) code: u8,
    /// Whether the command died of an interrupt.
    is_interrupted: bool,
    /// Whether its group had the terminal.
    had_terminal: bool,
}

impl Group {
    /// Prepares a command with these variables in its environment. [`begin`](Self::begin) lets it begin, unless the
    /// time `latest` has come by then.
    pub(crate) fn prepare(
        command: &[OsString],
        variables: &[(&str, String)],
        latest: Option<Duration>,
    ) -> io::Result<Self> {
        descendants::adopt()?;
        let strangers = descendants::children();
        let mut launch = Command::new("/proc/self/exe");
        launch.arg(LAUNCH).arg(getpid().as_raw_nonzero().to_string());
        launch.arg(latest.map_or_else(|| NEVER.to_owned(), |latest| latest.as_micros().to_string()));
        let variables = variables.iter().map(|(name, value)| (name, value));
        let child = launch.args(command).envs(variables).process_group(0).spawn()?;
        let pid = Pid::from_child(&child);
        // The process stops itself, or has failed, which `ended` will find.
        let options = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
        retry_on_intr(|| waitid(WaitId::Pid(pid), options))?;
        let (guard, was_told_to_stop) = (Cell::new(None), Cell::new(false));
        Ok(Group { pid, terminal: Terminal::open(), strangers, guard, was_told_to_stop })
    }

    /// Lets the command begin.
    pub(crate) fn begin(&self) {
        // A pipeline is a single group, and its other commands may need the terminal. In a pipeline the command
        // therefore gets the terminal only when it asks.
        if io::stdin().is_terminal() && io::stdout().is_terminal() {
            self.terminal.give(self.pid);
        }
        self.signal(Signal::CONT);
    }

    pub(crate) fn id(&self) -> Pid {
        self.pid
    }

    /// Notes the process that guards the group.
    pub(crate) fn guarded_by(&self, guard: Pid) {
        self.guard.set(Some(guard));
    }

    /// Returns whether the guard has died.
    pub(crate) fn is_unguarded(&self) -> bool {
        self.guard.get().is_none()
    }

    /// Sends a signal to all processes of the group.
    pub(crate) fn signal(&self, signal: Signal) {
        if signal == Signal::TSTP {
            self.was_told_to_stop.set(true);
        }
        // The group may have ended just now.
        let _ = kill_process_group(self.pid, signal);
    }

    /// Returns how the command has ended, if it has. Also handles a stop of the command, and reaps adopted processes
    /// that have ended.
    pub(crate) fn ended(&self) -> Option<Outcome> {
        let had_terminal = self.terminal.is_of(self.pid);
        let outcome = |code, is_interrupted| Some(Outcome { code, is_interrupted, had_terminal });
        loop {
            match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((pid, status))) if pid == self.pid => match status.stopping_signal() {
                    Some(signal) => self.stopped(signal),
                    None => return outcome(code(status), status.terminating_signal() == Some(Signal::INT.as_raw())),
                },
                Ok(Some((pid, status))) => self.note_end(pid, status),
                Err(Errno::INTR) => {}
                Ok(None) => return None,
                Err(_) => return outcome(NOT_FOUND, false),
            }
        }
    }

    fn note_end(&self, pid: Pid, status: WaitStatus) {
        if !status.stopped() && self.guard.get() == Some(pid) {
            self.guard.set(None);
        }
    }

    /// Handles a stop of the command. If the command needs the terminal, it gets the terminal. If it was stopped at the
    /// terminal, this process's group stops, too, as if the terminal had stopped it, so that the shell notices. Later
    /// all of them continue together.
    fn stopped(&self, signal: i32) {
        let asks = signal == Signal::TTIN.as_raw() || signal == Signal::TTOU.as_raw();
        let has_terminal = self.terminal.is_of(self.pid);
        let was_told = self.was_told_to_stop.take() || signal == Signal::TSTP.as_raw();
        if !asks && !has_terminal && !was_told {
            return; // somebody has stopped the command alone
        }
        if !(asks && self.terminal.is_ours()) {
            self.terminal.take(self.pid);
            if is_orphaned() {
                // No shell would let this process's group continue. A command that needs a terminal has lost it.
                if asks {
                    self.signal(Signal::HUP);
                }
            } else {
                let stop = Signal::from_named_raw(signal).filter(|_| asks).unwrap_or(Signal::STOP);
                let _ = kill_process_group(getpgrp(), stop);
            }
        }
        if asks || has_terminal {
            self.terminal.give(self.pid);
        }
        self.signal(Signal::CONT);
    }

    /// Ends the processes that the command has left running, and takes the terminal back. Returns whether all of them
    /// have ended. They get SIGTERM at once, and SIGKILL after `time`, or after a second if that is earlier. This call
    /// waits for them for `time`, but for at least two and at most ten seconds.
    pub(crate) fn clean_up(&self, time: Duration) -> bool {
        let left = || {
            let is_left = |child: &Pid| Some(*child) != self.guard.get() && !self.strangers.contains(child);
            descendants::children().into_iter().filter(is_left).collect::<Vec<_>>()
        };
        let all = |signal, left: &[Pid]| {
            self.signal(signal);
            for child in left {
                let _ = kill_process(*child, signal); // it may have ended just now
            }
        };
        let (start, mut told) = (Instant::now(), left());
        all(Signal::TERM, &told);
        let has_ended = loop {
            while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
                self.note_end(pid, status);
            }
            let found = left();
            if found.is_empty() && test_kill_process_group(self.pid).is_err() {
                break true;
            }
            let is_over = start.elapsed() >= time.min(LEFTOVERS);
            if is_over {
                all(Signal::KILL, &found);
            }
            // These are processes whose parents have ended meanwhile.
            let new: Vec<_> = found.iter().filter(|child| !told.contains(child)).collect();
            for child in &new {
                let _ = kill_process(**child, Signal::TERM);
            }
            // A process that cannot be killed is another user's, or waits for a disk that does not answer.
            if start.elapsed() >= time.max(2 * LEFTOVERS).min(LONGEST_CLEAN_UP) {
                break false;
            }
            if new.is_empty() || !is_over {
                thread::sleep(PAUSE);
            }
            told = found;
        };
        self.terminal.take(self.pid);
        has_ended
    }
}

/// Returns whether no shell in this session controls the group of this process, so that nobody would let it continue if
/// it stopped.
fn is_orphaned() -> bool {
    getppid().is_none_or(|parent| getsid(Some(parent)).ok() != getsid(None).ok())
}

impl Group {
    /// If the command died of the terminal's interrupt, ends this process by the interrupt, too. If the group of this
    /// process did not receive it, because it had given the terminal away, sends it to the group first. So a shell's
    /// loop that runs this program ends.
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

/// Becomes the command, which Linux kills if the process that started it dies.
pub(crate) fn launch(mut words: impl Iterator<Item = OsString>) -> Result<u8, Failure> {
    let usage = || Failure::new(USAGE, "this process is started by keylatch itself");
    let parent = words.next().and_then(|word| word.to_str()?.parse::<i32>().ok()).ok_or_else(usage)?;
    let latest = words.next().ok_or_else(usage)?;
    let latest = latest.to_str().and_then(|word| word.parse().ok()).map(Duration::from_micros);
    let program = words.next().ok_or_else(usage)?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| Failure::system("the command cannot be bound to keylatch", error))?;
    // The parent may have died before that call.
    if getppid().map(Pid::as_raw_nonzero).map(std::num::NonZero::get) != Some(parent) {
        return Err(Failure::new(CANNOT_EXECUTE, "keylatch has been killed"));
    }
    // This process stays stopped until the guard knows the end of the lease: if `keylatch` is stopped before that,
    // there is no command to end.
    kill_process(getpid(), Signal::STOP).map_err(|error| Failure::system("the command cannot be prepared", error))?;
    // This process may have been stopped for a long time, and the lease may now be somebody else's.
    if latest.is_some_and(|latest| StdClock::new().now() >= latest) {
        return Ok(LOST);
    }
    let error = Command::new(&program).args(words).exec();
    let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_EXECUTE };
    Err(Failure::new(code, format_args!("{} cannot be started: {error}", program.to_string_lossy())))
}
