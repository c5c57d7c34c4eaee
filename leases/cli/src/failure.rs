//! Failures: a message for people, and an exit code.

use std::fmt;

use crate::output::{plain, tell};

/// The codes are those of `sysexits.h` where it has one.
pub(crate) const USAGE: u8 = 64;
pub(crate) const UNAVAILABLE: u8 = 69;
pub(crate) const OS_ERROR: u8 = 71;
pub(crate) const BUSY: u8 = 75;
/// The lease was lost before the command ended, perhaps before it began.
pub(crate) const LOST: u8 = 76;

/// A message, and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    /// Empty if the code says enough.
    message: String,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl fmt::Display) -> Self {
        Failure { code, message: plain(&message.to_string()).into_owned() }
    }

    /// Returns a failure without a message.
    pub(crate) fn quiet(code: u8) -> Self {
        Failure::new(code, "")
    }

    /// Returns the failure of an engine that did not answer, or refused.
    pub(crate) fn engine(error: impl fmt::Display) -> Self {
        Failure::new(UNAVAILABLE, error)
    }

    /// Puts a hint before the message, if the message contains this sign.
    #[cfg(feature = "server")]
    pub(crate) fn with_hint(mut self, sign: &str, hint: &str) -> Self {
        if self.message.contains(sign) {
            self.message = format!("{hint}: {}", self.message);
        }
        self
    }

    pub(crate) fn tell(&self) {
        if !self.message.is_empty() {
            tell(&self.message);
        }
    }

    /// Returns the failure for something that the command needs, and that the system refused.
    pub(crate) fn system(what: &str, error: impl fmt::Display) -> Self {
        Failure::new(OS_ERROR, format_args!("{what}: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
