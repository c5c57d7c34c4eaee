//! Output that may go to a pipe which somebody closes.

use std::io::{self, Write};

/// Writes a line. Returns whether there may be more: not if nobody reads it.
pub(crate) fn line(text: &str) -> bool {
    writeln!(io::stdout(), "{text}").and_then(|()| io::stdout().flush()).is_ok()
}
