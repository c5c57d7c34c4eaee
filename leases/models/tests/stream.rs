//! Explores the model of leases in a stream of NATS, and checks that each fault of the protocol is found.

use keylatch_lease_models::stream::{
    Call::{Acquire, Release, Renew, Sweep},
    Fault, Setup,
};
use stateright::{Checker, Expectation, HasDiscoveries, Model, Property};

const SLOW: u64 = 496;
const FAST: u64 = 504;

/// A slow client and a fast one, and a network without faults.
const CALM: Setup = Setup {
    clocks: &[SLOW, FAST],
    ticks: 3,
    calls: &[&[Acquire, Renew], &[Acquire]],
    late: 0,
    doubled: 0,
    deaths: 0,
    created_again: 0,
    restores: 0,
    fault: None,
};

/// Returns whether all is to be explored that ten minutes allow.
fn is_whole() -> bool {
    std::env::var_os("KEYLATCH_WHOLE_MODELS").is_some()
}

/// Explores all states, and checks all rules, and that these things are possible.
fn holds(setup: Setup, possible: &[&'static str]) {
    let checker = setup.checker().threads(2).spawn_dfs().join();
    println!("{} states, {} of them different", checker.state_count(), checker.unique_state_count());
    for property in setup.properties() {
        match property.expectation {
            Expectation::Always => checker.assert_no_discovery(property.name),
            _ if possible.contains(&property.name) => drop(checker.assert_any_discovery(property.name)),
            _ => {}
        }
    }
}

/// Explores until a rule is violated, and returns the rules that are.
fn violated(fault: Fault, setup: Setup) -> Vec<&'static str> {
    let setup = Setup { fault: Some(fault), ..setup };
    let checker = setup.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let is_rule = |property: &Property<Setup>| property.expectation == Expectation::Always;
    let rules = setup.properties().into_iter().filter(is_rule).map(|property| property.name);
    rules.filter(|rule| checker.discovery(rule).is_some()).collect()
}

#[test]
fn the_promises_are_kept_if_a_client_dies() {
    holds(Setup { deaths: 1, ..CALM }, &["a dead client's lease is taken over"]);
}

#[test]
fn the_promises_are_kept_if_a_write_is_late() {
    let ticks = if is_whole() { 3 } else { 2 };
    holds(Setup { late: 1, ticks, ..CALM }, &["a lease is resumed"]);
    holds(
        Setup { late: 1, calls: &[&[Acquire, Release, Acquire], &[Acquire]], ticks: 3, ..CALM },
        &["a lease is resumed"],
    );
}

#[test]
fn the_promises_are_kept_if_a_write_is_doubled() {
    holds(Setup { doubled: 1, calls: &[&[Acquire, Release, Acquire], &[Acquire]], ticks: 2, ..CALM }, &[]);
}

#[test]
fn the_promises_are_kept_while_another_program_sweeps() {
    let calls: &[&[_]] = &[&[Acquire, Release], &[Acquire], &[Sweep]];
    holds(
        Setup { clocks: &[SLOW, FAST, FAST], calls, ticks: if is_whole() { 2 } else { 1 }, ..CALM },
        &["a grant is void"],
    );
}

#[test]
fn the_promises_are_kept_if_the_stream_is_created_again() {
    let ticks = if is_whole() { 3 } else { 2 };
    holds(Setup { created_again: 1, ticks, ..CALM }, &["a quarantine refuses"]);
}

#[test]
fn the_promises_are_kept_if_an_older_copy_replaces_the_server() {
    let calls: &[&[_]] =
        if is_whole() { &[&[Acquire, Release, Acquire], &[Acquire]] } else { &[&[Acquire], &[Acquire]] };
    holds(Setup { restores: 1, calls, ticks: 2, ..CALM }, &["a quarantine refuses"]);
}

#[test]
fn each_fault_of_the_protocol_breaks_a_rule() {
    let three: &[u64] = &[SLOW, FAST, FAST];
    let swept: &[&[_]] = &[&[Acquire, Release], &[Acquire], &[Sweep]];
    let setups = [
        (Fault::Unconditional, CALM, "conservative holder"),
        (Fault::NoSecondLook, Setup { created_again: 1, ticks: 1, ..CALM }, "exclusion"),
        (Fault::NoSecondLook, Setup { clocks: three, calls: swept, ticks: 1, ..CALM }, "tokens grow"),
        (Fault::NotesAfterDeletion, Setup { clocks: three, calls: swept, ticks: 1, ..CALM }, "tokens grow"),
        (Fault::NoQuarantine, Setup { created_again: 1, ticks: 1, ..CALM }, "exclusion"),
        (Fault::LateRenewal, CALM, "no revival"),
        (Fault::DeadlineFromAnswer, CALM, "conservative holder"),
        (Fault::EndsWhenSwept, CALM, "bounded take-over"),
        (Fault::RefusesItsOwner, Setup { calls: &[&[Acquire, Acquire], &[]], ..CALM }, "idempotent acquire"),
    ];
    for (fault, setup, rule) in setups {
        let violated = violated(fault, setup);
        println!("{fault:?}: {violated:?}");
        assert!(violated.contains(&rule), "{fault:?} does not break the rule of {rule}, but {violated:?}");
    }
}
