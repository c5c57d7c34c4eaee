//! Failures: a message for people, and an exit code.

use std::fmt;

/// The codes are those of `sysexits.h` where it has one.
pub(crate) const USAGE: u8 = 64;
pub(crate) const UNAVAILABLE: u8 = 69;
pub(crate) const OS_ERROR: u8 = 71;
pub(crate) const BUSY: u8 = 75;
/// The lease was lost while the command ran.
pub(crate) const LOST: u8 = 76;

/// A message, and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    message: String,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl fmt::Display) -> Self {
        Failure { code, message: message.to_string() }
    }

    /// The engine did not answer, or refused.
    pub(crate) fn engine(error: impl fmt::Display) -> Self {
        Failure::new(UNAVAILABLE, error)
    }

    /// The system refused something that the command needs.
    pub(crate) fn system(what: &str, error: impl fmt::Display) -> Self {
        Failure::new(OS_ERROR, format_args!("{what}: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
