//! The man pages and the completions in `share`, which must match the command line.

use std::{fs, path::PathBuf};

use clap::CommandFactory as _;
use clap_complete::{Shell, generate};

use crate::args::Args;

/// If this environment variable is set, the test writes the files anew.
const WRITE: &str = "KEYLATCH_WRITE_PAGES";

fn is_written(name: &str, content: &[u8]) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("share").join(name);
    if std::env::var_os(WRITE).is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
    }
    let is_same = fs::read(&path).is_ok_and(|found| found == content);
    assert!(is_same, "{} is out of date: run the tests with {WRITE}=1", path.display());
}

/// The sections of the man pages that clap cannot write.
const MORE: &str = r#".SH "EXIT STATUS"
.TP
.B the command's
or 128 and the number of the signal that killed it; 126 or 127 if it could not be started
.TP
.B 1
\fBwho\fR: nobody has the lease; \fBrelease\fR: nothing was released
.TP
.B 64
a wrong argument
.TP
.B 69
the engine does not answer, or refuses
.TP
.B 71
the system refused something
.TP
.B 75
somebody else has the lease; \fB\-\-busy\-code\fR sets another code
.TP
.B 76
the lease was lost, and the command was ended
.SH ENVIRONMENT
.TP
.B KEYLATCH_ENGINE, KEYLATCH_PASSWORD_FILE, KEYLATCH_CA, KEYLATCH_CERT, KEYLATCH_KEY
stand for the options of the same names
.TP
.B KEYLATCH_RESOURCE, KEYLATCH_OWNER, KEYLATCH_TOKEN
are set for the command. The token is greater than those of all earlier runs of this name: data that remember the greatest one refuse the writes of a run that is over.
.TP
.B KEYLATCH_CHAIN
is set for the command, and must be left as it is: if keylatch is killed, it is used to find the command and the processes that the command started
.SH FILES
.TP
.I the password and the certificates
are read at the start, and again whenever a connection to the server was lost and is made anew. So a process that runs for long goes on when they have been replaced: put the new file into the place of the old one, and then change the password on the server. If a file cannot be read then, a line says so, and keylatch tries again. What is not a regular file is read once.
.TP
.I $XDG_STATE_HOME/keylatch/leases.db, ~/.local/state/keylatch/leases.db
the leases of this user, if no engine is named
.TP
.I /var/lib/keylatch/leases.db
those of root
"#;

#[test]
fn the_man_pages_are_up_to_date() {
    let mut command = Args::command();
    command.build(); // with the options that all actions have
    let page = |command: clap::Command| {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page).unwrap();
        // These sections go before the version, which comes last.
        let text = String::from_utf8(page).unwrap();
        match text.split_once(".SH VERSION") {
            Some((before, version)) => format!("{before}{MORE}.SH VERSION{version}"),
            None => text + MORE,
        }
    };
    is_written("keylatch.1", page(command.clone()).as_bytes());
    for action in command.get_subcommands() {
        let name = format!("keylatch-{}", action.get_name());
        is_written(&format!("{name}.1"), page(action.clone().name(name.clone())).as_bytes());
    }
}

#[test]
fn the_completions_are_up_to_date() {
    for (shell, name) in [(Shell::Bash, "keylatch.bash"), (Shell::Zsh, "_keylatch"), (Shell::Fish, "keylatch.fish")] {
        let mut script = Vec::new();
        generate(shell, &mut Args::command(), "keylatch", &mut script);
        is_written(name, &script);
    }
}

#[test]
fn each_help_fits_a_screen() {
    let lines = |command: clap::Command| command.term_width(80).render_help().to_string().lines().count();
    let command = Args::command();
    assert!(lines(command.clone()) <= 40);
    for action in command.get_subcommands() {
        assert!(lines(action.clone()) <= 40, "the help of {} does not fit a screen", action.get_name());
    }
}

#[test]
fn the_command_line_is_consistent() {
    Args::command().debug_assert();
}
