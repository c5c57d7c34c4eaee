//! Runs the demonstration on a small scale, and checks its output and exit code.
#![cfg(unix)]

use std::{
    env,
    process::{Command, Output, Stdio},
};

/// Runs the demonstration with thirty accounts and shorter leases, unless the arguments say otherwise. The slack is
/// large, because the time of a take-over depends on the machine.
fn payroll(args: &[&str]) -> Output {
    // Cargo names only a package's binaries to its tests. `cargo test` builds the examples; with `--test` it does not.
    let program = env::current_exe().unwrap().parent().unwrap().join("../examples/payroll");
    assert!(program.exists(), "the example is not built: run cargo build --example payroll");
    let small = ["--accounts", "30", "--ttl", "1500", "--slack", "60000"];
    Command::new(program).args(small).args(args).stdin(Stdio::null()).output().unwrap()
}

fn row<'a>(table: &'a str, label: &str) -> &'a str {
    let row = table.lines().find_map(|line| line.strip_prefix(label));
    row.unwrap_or_else(|| panic!("no {label:?} in:\n{table}")).trim()
}

fn table(output: &Output, code: i32) -> String {
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(code), "{table}{}", String::from_utf8_lossy(&output.stderr));
    table
}

#[test]
fn each_account_is_paid_once() {
    let table = table(&payroll(&[]), 0);
    assert_eq!(row(&table, "payments"), "30  must be 30");
    assert_eq!(row(&table, "accounts paid more than once"), "0  must be 0");
    assert_eq!(row(&table, "accounts not paid"), "0  must be 0");
    assert_eq!(row(&table, "  its late write"), "refused  must be refused");
    assert_eq!(row(&table, "locks left"), "0  must be 0");
}

#[test]
fn a_file_serves_as_well() {
    let table = table(&payroll(&["--engine", "sqlite"]), 0);
    assert_eq!(row(&table, "payments"), "30  must be 30");
    assert_eq!(row(&table, "accounts paid more than once"), "0  must be 0");
    assert_eq!(row(&table, "locks left"), "0  must be 0");
}

#[test]
fn without_the_fence_one_account_is_paid_twice() {
    let table = table(&payroll(&["--no-fence"]), 1);
    assert_eq!(row(&table, "accounts paid more than once"), "1  must be 0: FAILED");
    assert_eq!(row(&table, "  its late write"), "admitted  must be refused: FAILED");
}

#[test]
fn without_leases_many_accounts_are_paid_twice() {
    let table = table(&payroll(&["--lock", "none"]), 1);
    let twice = row(&table, "accounts paid more than once").split(' ').next().unwrap();
    assert!(twice.parse::<u32>().unwrap() > 1, "{table}");
}

#[test]
fn three_workers_and_ten_accounts_are_enough() {
    table(&payroll(&["--workers", "3", "--accounts", "10"]), 0);
}

#[test]
fn an_invalid_argument_is_reported_by_name() {
    for args in [
        &["--workers", "2"][..],
        &["--accounts", "many"],
        &["--ttl"],
        &["--lock", "hope"],
        &["--lock", "advisory"],
        &["--no-lunch"],
    ] {
        let output = payroll(args);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {complaint}");
        assert!(complaint.starts_with(&format!("payroll: {}", args[0])), "{args:?}: {complaint}");
    }
    assert_eq!(payroll(&["--help"]).status.code(), Some(0));
}
