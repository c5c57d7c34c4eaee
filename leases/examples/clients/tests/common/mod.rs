//! The page that shows these clients, and the commands on it.

#![allow(dead_code, reason = "each test binary uses some of it")]

use std::{
    io::Write,
    process::{Command, Output, Stdio},
};

/// The script that starts private servers.
pub(crate) const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../servers/run");

const PAGE: &str = include_str!("../../../../../docs/leases-guide.md");

/// Returns the blocks of code in this language, from the page's section "Your own client".
pub(crate) fn page_blocks(language: &str) -> Vec<String> {
    let (_, section) = PAGE.split_once("\n## Your own client\n").expect("the section");
    let section = section.split_once("\n## ").map_or(section, |(section, _)| section);
    let fence = format!("```{language}\n");
    section
        .split(&fence)
        .skip(1)
        .map(|rest| rest.split_once("```").expect("the end of the block").0.to_owned())
        .collect()
}

/// Runs a command with this input.
pub(crate) fn output(mut command: Command, input: &str) -> Output {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}
