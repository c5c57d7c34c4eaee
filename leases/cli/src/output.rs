//! Output that may go to a terminal, or to a pipe which somebody closes.

use std::{
    borrow::Cow,
    io::{self, Write},
    process, thread,
};

use rustix::event::{PollFd, PollFlags, poll};

/// Writes a line to the standard output. Returns whether that succeeded: it fails if nobody reads the output any more.
pub(crate) fn line(text: &str) -> bool {
    writeln!(io::stdout(), "{text}").and_then(|()| io::stdout().flush()).is_ok()
}

/// Writes a message about this program's own work.
pub(crate) fn tell(text: &str) {
    let _ = writeln!(io::stderr(), "keylatch: {text}"); // nobody may be reading
}

/// Ends the process as soon as nobody can read its output any more, even if it has nothing to write at the moment.
pub(crate) fn end_without_reader() {
    thread::spawn(|| {
        let output = io::stdout();
        let mut watched = [PollFd::new(&output, PollFlags::empty())];
        if poll(&mut watched, None).is_ok() && watched[0].revents().intersects(PollFlags::ERR | PollFlags::HUP) {
            process::exit(0);
        }
    });
}

/// Returns a name as it may be shown on a terminal: others have chosen it, and it may contain a terminal's commands.
pub(crate) fn plain(name: &str) -> Cow<'_, str> {
    if !name.contains(char::is_control) {
        return name.into();
    }
    let escaped = |character: char| match character.is_control() {
        true => character.escape_default().to_string(),
        false => character.to_string(),
    };
    name.chars().map(escaped).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminals_commands_are_shown_and_not_obeyed() {
        assert_eq!(plain("night ly–report"), "night ly–report");
        assert_eq!(plain("\u{1b}[31mred\n\u{9b}"), "\\u{1b}[31mred\\n\\u{9b}");
    }
}
