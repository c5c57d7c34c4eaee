//! Explores the model of leases in a bucket, and checks that each fault of the protocol is found.

mod common;

use common::{breaks, holds};
use keylatch_lease_models::{
    FAST, SLOW,
    bucket::{Fault, Setup},
};

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
fn the_promises_are_kept_if_a_request_is_duplicated_and_one_given_up() {
    holds(Setup { doubled: 1, given_up: 1, ticks: 2, calls: &[2, 1], ..CALM }, &["a late write is refused"]);
}

#[test]
fn each_fault_of_the_protocol_breaks_a_rule() {
    let at_once = Setup { ticks: 0, ..CALM };
    let setups = [
        (Fault::Unconditional, at_once, "conservative holder"),
        (Fault::ForgottenToken, at_once, "tokens grow"),
        (Fault::SameVersion, Setup { calls: &[3, 2], ..CALM }, "conservative holder"),
        (Fault::DeadlineFromAnswer, CALM, "conservative holder"),
        (Fault::SeenWhenAsked, CALM, "conservative holder"),
        (Fault::NoMargin, CALM, "conservative holder"),
    ];
    for (fault, setup, rule) in setups {
        breaks(Setup { fault: Some(fault), ..setup }, fault, rule);
    }
}
