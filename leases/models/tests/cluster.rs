//! Explores the model of leases in etcd, and checks that each fault of the protocol is found.

use keylatch_lease_models::cluster::{
    Call::{self, Acquire, Release, Renew},
    Fault, Setup,
};
use stateright::{Checker, Expectation, HasDiscoveries, Model, Property};

const SLOW: u64 = 496;
const FAST: u64 = 504;

/// A slow client and a fast one, short leases, and a network without faults.
const CALM: Setup = Setup {
    slack: 0,
    clocks: &[SLOW, FAST],
    ticks: 3,
    calls: &[&[Acquire, Renew], &[Acquire]],
    late: 0,
    doubled: 0,
    deaths: 0,
    elections: 0,
    restores: 0,
    wipes: 0,
    fault: None,
};

/// The calls of a client that uses its etcd lease again.
const AGAIN: &[&[Call]] = &[&[Acquire, Release, Acquire], &[Acquire]];

/// Returns the setup with one more tick, if all is to be explored that a few minutes allow.
fn long(setup: Setup) -> Setup {
    match std::env::var_os("KEYLATCH_WHOLE_MODELS") {
        Some(_) => Setup { ticks: setup.ticks + 1, ..setup },
        None => setup,
    }
}

/// Explores all states, and checks all rules, and that these things are possible.
fn holds(setup: Setup, possible: &[&'static str]) {
    let setup = long(setup);
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
fn the_promises_are_kept_if_a_client_dies_and_a_leader_is_elected() {
    holds(Setup { deaths: 1, elections: 1, ..CALM }, &["a dead client's lease is taken over"]);
}

#[test]
fn the_promises_are_kept_if_an_etcd_lease_is_used_again() {
    holds(Setup { calls: AGAIN, ..CALM }, &["an etcd lease is restarted"]);
    holds(Setup { calls: AGAIN, slack: 600, ..CALM }, &["an etcd lease is used again"]);
}

#[test]
fn the_promises_are_kept_if_requests_are_late() {
    holds(Setup { late: 1, ..CALM }, &["a lease is resumed", "an etcd lease in doubt is in use"]);
    holds(Setup { late: 1, calls: AGAIN, ticks: 1, ..CALM }, &["a lease is resumed"]);
}

#[test]
fn the_promises_are_kept_if_a_request_is_doubled() {
    holds(Setup { doubled: 1, calls: AGAIN, ticks: 2, ..CALM }, &[]);
}

#[test]
fn the_promises_are_kept_if_all_keys_are_deleted() {
    holds(Setup { wipes: 1, ..CALM }, &["a quarantine refuses"]);
    holds(Setup { wipes: 1, late: 1, calls: &[&[Acquire], &[Acquire]], ticks: 0, ..CALM }, &[]);
}

#[test]
fn the_promises_are_kept_if_a_snapshot_is_restored() {
    holds(Setup { restores: 1, calls: &[&[Acquire], &[Acquire]], ticks: 2, ..CALM }, &["a quarantine refuses"]);
    holds(Setup { restores: 1, calls: AGAIN, ticks: 0, ..CALM }, &["a quarantine refuses"]);
    holds(Setup { restores: 1, late: 1, calls: &[&[Acquire], &[Acquire]], ticks: 0, ..CALM }, &[]);
}

#[test]
fn each_fault_of_the_protocol_breaks_a_rule() {
    let again = Setup { calls: AGAIN, ..CALM };
    let resumes = Setup { calls: &[&[Acquire, Acquire], &[]], ..CALM };
    let late = Setup { late: 1, ..CALM };
    let restored = Setup { restores: 1, calls: AGAIN, ..CALM };
    let setups = [
        (Fault::LockNotCompared, CALM, "exclusion"),
        (Fault::MarkNotCompared, Setup { wipes: 1, ..CALM }, "exclusion"),
        (Fault::NoQuarantine, Setup { wipes: 1, ..CALM }, "exclusion"),
        (Fault::NoQuarantine, restored, "exclusion"),
        (Fault::RevokesTheQuarantine, Setup { restores: 1, ticks: 0, ..late }, "exclusion"),
        (Fault::AlwaysQuarantine, late, "bounded take-over"),
        (
            Fault::BaseNotRaised,
            Setup { restores: 1, calls: &[&[Acquire, Release, Acquire, Acquire], &[]], ..CALM },
            "tokens grow",
        ),
        (Fault::NoDoubt, Setup { ticks: 0, ..restored }, "exclusion"),
        (Fault::RevokesWhatIsKept, again, "conservative holder"),
        (Fault::RevokesInDoubt, late, "conservative holder"),
        (Fault::NoMarkOfRevoked, late, "conservative holder"),
        (Fault::NoRestart, again, "conservative holder"),
        (Fault::RestartIgnored, again, "conservative holder"),
        (Fault::DeadlineFromAnswer, CALM, "conservative holder"),
        (Fault::ReleasesAnything, Setup { doubled: 1, ..again }, "conservative holder"),
        (Fault::RefusesItsOwner, resumes, "idempotent acquire"),
        (Fault::KeepAliveRevives, resumes, "no revival"),
        (Fault::NotConfirmed, Setup { late: 1, calls: AGAIN, ..CALM }, "conservative holder"),
        (Fault::NotAttached, CALM, "bounded take-over"),
        (
            Fault::Repeats,
            Setup { doubled: 1, calls: &[&[Acquire, Release, Acquire], &[]], ..CALM },
            "conservative holder",
        ),
    ];
    for (fault, setup, rule) in setups {
        let violated = violated(fault, setup);
        println!("{fault:?}: {violated:?}");
        assert!(violated.contains(&rule), "{fault:?} does not break the rule of {rule}, but {violated:?}");
    }
}
