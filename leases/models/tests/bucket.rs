//! Explores the model of leases in a bucket, and checks that each fault of the protocol is found.

use keylatch_lease_models::bucket::{FAST, Fault, SLOW, Setup};
use stateright::{Checker, Expectation, HasDiscoveries, Model, Property};

/// A time of day that is far ahead, in microseconds.
const DAY: i64 = 1_000_000_000_000;

/// A slow client and a fast one, with right times of day, and a network without faults.
const CALM: Setup = Setup {
    clocks: &[(SLOW, 0), (FAST, 0)],
    ticks: 5,
    calls: &[2, 2],
    lost: 0,
    doubled: 0,
    given_up: 0,
    deaths: 0,
    fault: None,
};

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
fn the_promises_are_kept_by_clients_whose_times_of_day_are_wrong() {
    holds(Setup { clocks: &[(SLOW, DAY), (FAST, 0)], ..CALM }, &[]);
    holds(Setup { clocks: &[(SLOW, 0), (FAST, DAY)], ..CALM }, &[]);
}

#[test]
fn the_promises_are_kept_if_a_client_dies() {
    holds(Setup { deaths: 1, ..CALM }, &["a dead client's lease is taken over"]);
}

#[test]
fn the_promises_are_kept_if_a_message_is_lost_and_a_request_given_up() {
    holds(Setup { lost: 1, given_up: 1, ticks: 3, calls: &[2, 1], ..CALM }, &["a lost answer is cleared up"]);
}

#[test]
fn the_promises_are_kept_if_a_request_is_doubled_and_one_given_up() {
    holds(Setup { doubled: 1, given_up: 1, ticks: 2, calls: &[2, 1], ..CALM }, &["a late write is refused"]);
}

#[test]
fn each_fault_of_the_protocol_breaks_a_rule() {
    let at_once = Setup { ticks: 0, ..CALM };
    let setups = [
        (Fault::Unconditional, at_once),
        (Fault::ForgottenToken, at_once),
        (Fault::SameVersion, Setup { calls: &[3, 2], ..CALM }),
        (Fault::DeadlineFromAnswer, CALM),
        (Fault::SeenWhenAsked, CALM),
        (Fault::NoMargin, CALM),
    ];
    for (fault, setup) in setups {
        let violated = violated(fault, setup);
        println!("{fault:?}: {violated:?}");
        assert!(!violated.is_empty(), "{fault:?} breaks no rule");
    }
}
