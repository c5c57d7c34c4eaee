//! The terminal from which this program was started, and which process group has it.

use std::{
    ffi::OsString,
    fs::{File, OpenOptions},
    process::{self, Command},
};

use rustix::{
    process::{Pid, getpgrp},
    termios::{tcgetpgrp, tcsetpgrp},
};

use crate::failure::{Failure, USAGE};

/// The first argument of the process that takes the terminal back.
pub(crate) const FOREGROUND: &str = "--internal-foreground";

/// The controlling terminal, if there is one.
#[derive(Debug)]
pub(crate) struct Terminal(Option<File>);

impl Terminal {
    pub(crate) fn open() -> Self {
        Terminal(OpenOptions::new().read(true).write(true).open("/dev/tty").ok())
    }

    /// Returns whether this process group has the terminal.
    pub(crate) fn is_of(&self, group: Pid) -> bool {
        self.0.as_ref().is_some_and(|terminal| tcgetpgrp(terminal).is_ok_and(|found| found == group))
    }

    /// Returns whether the group of this process has the terminal.
    pub(crate) fn is_ours(&self) -> bool {
        self.is_of(getpgrp())
    }

    /// Gives the terminal to a group, if the group of this process has it.
    pub(crate) fn give(&self, group: Pid) {
        if let Some(terminal) = self.0.as_ref().filter(|_| self.is_ours()) {
            let _ = tcsetpgrp(terminal, group);
        }
    }

    /// Takes the terminal back from a group, if that group has it. A process in the background may do that only if it
    /// ignores SIGTTOU. A shell arranges that, because this program could not without unsafe code.
    pub(crate) fn take(&self, group: Pid) {
        if !self.is_of(group) {
            return;
        }
        // The program's file may have been replaced meanwhile.
        let this = format!("/proc/{}/exe", process::id());
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' TTOU; exec \"$0\" \"$@\"", &this, FOREGROUND]);
        let _ = shell.arg(getpgrp().as_raw_nonzero().to_string()).status();
    }
}

/// Gives the terminal to a process group. The caller must ignore SIGTTOU.
pub(crate) fn foreground(mut words: impl Iterator<Item = OsString>) -> Result<u8, Failure> {
    let group = words.next().and_then(|word| Pid::from_raw(word.to_str()?.parse().ok()?));
    let group = group.ok_or_else(|| Failure::new(USAGE, "this process is started by keylatch itself"))?;
    if let Some(terminal) = Terminal::open().0 {
        let _ = tcsetpgrp(terminal, group);
    }
    Ok(0)
}
