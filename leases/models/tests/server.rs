//! Explores the model of leases on a server that decides, and checks that each fault of the protocol is found.

mod common;

use common::{breaks, holds, is_whole};
use keylatch_lease_models::{
    FAST, SLOW,
    server::{Fault, Memory, Setup},
};

/// Postgres, a slow client and a fast one, and a network without faults.
const POSTGRES: Setup = Setup {
    memory: Memory::Row,
    resumes_in_quarantine: true,
    clocks: &[SLOW, FAST],
    ticks: 5,
    calls: &[3, 3],
    lost: 0,
    doubled: 0,
    given_up: 0,
    deaths: 0,
    restores: 0,
    set_back: 0,
    fault: None,
};

const REDIS: Setup = Setup { memory: Memory::Counter, resumes_in_quarantine: false, ..POSTGRES };

/// Postgres, with fewer ticks and calls.
const SHORT: Setup = Setup { ticks: 3, calls: &[2, 1], ..POSTGRES };

const BOTH: [(Memory, bool); 2] =
    [(POSTGRES.memory, POSTGRES.resumes_in_quarantine), (REDIS.memory, REDIS.resumes_in_quarantine)];

/// Returns the setup with two calls for each client, if more is to be explored.
fn long(setup: Setup) -> Setup {
    if is_whole() { Setup { calls: &[2, 2], ..setup } } else { setup }
}

/// Explores all states on both kinds of server.
fn hold(setup: Setup, possible: &[&'static str]) {
    for (memory, resumes_in_quarantine) in BOTH {
        holds(Setup { memory, resumes_in_quarantine, ..long(setup) }, possible);
    }
}

#[test]
fn the_promises_are_kept_if_a_client_dies() {
    hold(Setup { deaths: 1, ticks: 5, ..SHORT }, &["a dead client's lease is taken over", "a lease is resumed"]);
}

#[test]
fn the_promises_are_kept_if_a_message_is_lost_and_a_request_given_up() {
    hold(Setup { lost: 1, given_up: 1, ..SHORT }, &["a lease is resumed"]);
}

#[test]
fn the_promises_are_kept_if_a_request_is_duplicated_and_one_given_up() {
    hold(Setup { doubled: 1, given_up: 1, ..SHORT }, &["a lease is resumed"]);
}

#[test]
fn the_promises_are_kept_if_the_clock_is_set_back() {
    hold(Setup { set_back: 1, ticks: 4, ..SHORT }, &[]);
}

#[test]
fn the_promises_are_kept_if_an_older_copy_replaces_the_server() {
    hold(Setup { restores: 1, ticks: 5, ..SHORT }, &["a quarantine refuses"]);
    hold(Setup { restores: 1, doubled: 1, ..SHORT }, &["a quarantine refuses"]);
}

#[test]
fn each_fault_of_the_protocol_breaks_a_rule() {
    let setups = [
        (Fault::RenewsWhatEnded, POSTGRES, "no revival"),
        (Fault::ForgottenToken, Setup { set_back: 1, ..POSTGRES }, "tokens grow"),
        (Fault::ForgottenToken, Setup { set_back: 1, ..REDIS }, "tokens grow"),
        (Fault::DeadlineFromAnswer, POSTGRES, "conservative holder"),
        (Fault::NoMargin, POSTGRES, "conservative holder"),
        (Fault::NoQuarantine, Setup { restores: 1, ..SHORT }, "exclusion"),
        (Fault::NoDoubt, Setup { restores: 1, calls: &[3, 1], ..POSTGRES }, "tokens grow"),
        (Fault::ReleasesAnything, Setup { doubled: 1, ..SHORT }, "conservative holder"),
        (Fault::RefusesItsOwner, SHORT, "idempotent acquire"),
        (Fault::EndsWhenSwept, SHORT, "bounded take-over"),
    ];
    for (fault, setup, rule) in setups {
        breaks(Setup { fault: Some(fault), ..setup }, fault, rule);
    }
}
