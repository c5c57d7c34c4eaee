//! The man page and the completions in `share`, which must be those of the command line.

use std::{fs, path::PathBuf};

use clap::CommandFactory as _;
use clap_complete::{Shell, generate};

use crate::args::Args;

/// Set this variable to write the files anew.
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

#[test]
fn the_man_pages_are_up_to_date() {
    let command = Args::command();
    let page = |command: clap::Command| {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page).unwrap();
        page
    };
    is_written("keylatch.1", &page(command.clone()));
    for action in command.get_subcommands() {
        let name = format!("keylatch-{}", action.get_name());
        is_written(&format!("{name}.1"), &page(action.clone().name(name.clone())));
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
