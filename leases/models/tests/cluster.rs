//! Explores the model of leases in etcd, and checks that each fault of the protocol is found.

mod common;

use common::{breaks, holds, is_whole};
use keylatch_lease_models::{
    FAST, SLOW,
    cluster::{
        Call::{self, Acquire, Release, Renew},
        Fault, Setup,
    },
};

/// A slow client and a fast one, etcd leases that are no longer than tenures, and a network without faults.
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

/// The calls of a client that uses its etcd lease again, and of another client.
const AGAIN: &[&[Call]] = &[&[Acquire, Release, Acquire], &[Acquire]];

/// Returns the setup with one more tick, if more is to be explored.
fn long(setup: Setup) -> Setup {
    if is_whole() { Setup { ticks: setup.ticks + 1, ..setup } } else { setup }
}

/// Explores all states of the setup, which is made [`long`] first.
fn hold(setup: Setup, possible: &[&'static str]) {
    holds(long(setup), possible);
}

#[test]
fn the_promises_are_kept_if_a_client_dies_and_a_leader_is_elected() {
    hold(Setup { deaths: 1, elections: 1, ..CALM }, &["a dead client's lease is taken over"]);
}

#[test]
fn the_promises_are_kept_if_an_etcd_lease_is_used_again() {
    hold(Setup { calls: AGAIN, ..CALM }, &["an etcd lease is restarted"]);
    hold(Setup { calls: AGAIN, slack: 600, ..CALM }, &["an etcd lease is used again"]);
}

#[test]
fn the_promises_are_kept_if_requests_are_late() {
    hold(Setup { late: 1, ..CALM }, &["a lease is resumed", "an etcd lease in doubt is in use"]);
    hold(Setup { late: 1, calls: AGAIN, ticks: 1, ..CALM }, &["a lease is resumed"]);
}

#[test]
fn the_promises_are_kept_if_a_request_is_duplicated() {
    hold(Setup { doubled: 1, calls: AGAIN, ticks: 2, ..CALM }, &[]);
}

#[test]
fn the_promises_are_kept_if_all_keys_are_deleted() {
    hold(Setup { wipes: 1, ..CALM }, &["a quarantine refuses"]);
    hold(Setup { wipes: 1, late: 1, calls: &[&[Acquire], &[Acquire]], ticks: 0, ..CALM }, &[]);
}

#[test]
fn the_promises_are_kept_if_a_snapshot_is_restored() {
    hold(Setup { restores: 1, calls: &[&[Acquire], &[Acquire]], ticks: 2, ..CALM }, &["a quarantine refuses"]);
    hold(Setup { restores: 1, calls: AGAIN, ticks: 0, ..CALM }, &["a quarantine refuses"]);
    hold(Setup { restores: 1, late: 1, calls: &[&[Acquire], &[Acquire]], ticks: 0, ..CALM }, &[]);
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
        breaks(Setup { fault: Some(fault), ..setup }, fault, rule);
    }
}
