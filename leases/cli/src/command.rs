//! The command: a process group, which has the terminal if this program has it.

use std::{
    env,
    ffi::{OsStr, OsString},
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
        kill_process_group, test_kill_process_group, waitid, waitpid,
    },
    termios::{tcgetpgrp, tcsetpgrp},
};

use crate::failure::{Failure, LOST, USAGE};

/// The first argument of the process that becomes the command.
pub(crate) const LAUNCH: &str = "--internal-launch";

/// The first argument of the process that takes the terminal back.
pub(crate) const FOREGROUND: &str = "--internal-foreground";

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
    has_terminal: bool,
}

impl Group {
    /// Prepares a command with these variables in its environment. It begins with [`begin`](Self::begin), unless the
    /// time is `latest` by then.
    pub(crate) fn prepare(
        command: &[OsString],
        variables: &[(&str, String)],
        latest: Option<Duration>,
    ) -> io::Result<Self> {
        // Only a process in the foreground has a terminal to hand on.
        let has_terminal = io::stdin().is_terminal() && tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp());
        let mut launch = Command::new("/proc/self/exe");
        launch.arg(LAUNCH).arg(getpid().as_raw_nonzero().to_string()).arg(if has_terminal { "1" } else { "0" });
        launch.arg(latest.map_or_else(|| NEVER.to_owned(), |latest| latest.as_micros().to_string()));
        let variables = variables.iter().map(|(name, value)| (name, value));
        let child = launch.args(command).envs(variables).process_group(0).spawn()?;
        let pid = Pid::from_child(&child);
        // It stops itself, or has failed, which `ended` will find.
        let options = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
        retry_on_intr(|| waitid(WaitId::Pid(pid), options))?;
        Ok(Group { pid, has_terminal })
    }

    /// Lets the command begin.
    pub(crate) fn begin(&self) {
        self.give_terminal();
        self.signal(Signal::CONT);
    }

    pub(crate) fn id(&self) -> Pid {
        self.pid
    }

    fn give_terminal(&self) {
        if self.has_terminal {
            let _ = tcsetpgrp(io::stdin(), self.pid);
        }
    }

    /// Takes the terminal back. A process in the background may do that only if it ignores a signal, which only a shell
    /// can arrange for it.
    fn take_terminal(&self) {
        if !self.has_terminal {
            return;
        }
        let Ok(this) = env::current_exe() else { return };
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' TTOU; exec \"$0\" \"$@\""]).arg(this).arg(FOREGROUND);
        let _ = shell.arg(getpgrp().as_raw_nonzero().to_string()).status();
    }

    /// Sends a signal to all processes of the group.
    pub(crate) fn signal(&self, signal: Signal) {
        // The group may have ended just now.
        let _ = kill_process_group(self.pid, signal);
    }

    /// Returns the exit code, as shells have it, if the command has ended. If it was stopped at the terminal, this
    /// process stops too, and both go on together.
    pub(crate) fn ended(&self) -> Option<u8> {
        let status = match waitpid(Some(self.pid), WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            Ok(Some((_, status))) => status,
            Ok(None) | Err(Errno::INTR) => return None,
            Err(_) => return Some(NOT_FOUND),
        };
        if status.stopped() {
            if self.has_terminal {
                self.take_terminal();
                let _ = kill_process(getpid(), Signal::STOP);
                self.give_terminal();
                self.signal(Signal::CONT);
            }
            return None;
        }
        Some(code(status))
    }

    /// Ends what the command has left running in its group, and takes the terminal back.
    pub(crate) fn clean_up(&self, time: Duration) {
        self.signal(Signal::TERM);
        let (start, mut is_killed) = (Instant::now(), false);
        while test_kill_process_group(self.pid).is_ok() {
            if !is_killed && start.elapsed() >= time.min(LEFTOVERS) {
                self.signal(Signal::KILL);
                is_killed = true;
            }
            // In a container, nobody may take notice of processes that have died, and they stay in the group.
            if start.elapsed() >= 2 * LEFTOVERS {
                break;
            }
            thread::sleep(PAUSE);
        }
        self.take_terminal();
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
    let waits = words.next().ok_or_else(usage)? == OsStr::new("1");
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
    let start = Instant::now();
    while waits && tcgetpgrp(io::stdin()).is_ok_and(|group| group != getpgrp()) && start.elapsed() < LEFTOVERS {
        thread::sleep(Duration::from_micros(200));
    }
    // It may have been stopped for long, and the lease be somebody else's.
    if latest.is_some_and(|latest| StdClock::new().now() >= latest) {
        return Ok(LOST);
    }
    let error = Command::new(&program).args(words).exec();
    let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_EXECUTE };
    Err(Failure::new(code, format_args!("{} cannot be started: {error}", program.to_string_lossy())))
}

/// Gives the terminal to a process group. The caller must ignore SIGTTOU.
pub(crate) fn take_terminal(mut words: impl Iterator<Item = OsString>) -> Result<u8, Failure> {
    let group = words.next().and_then(|word| Pid::from_raw(word.to_str()?.parse().ok()?));
    let group = group.ok_or_else(|| Failure::new(USAGE, "this process is started by keylatch itself"))?;
    let _ = tcsetpgrp(io::stdin(), group);
    Ok(0)
}
