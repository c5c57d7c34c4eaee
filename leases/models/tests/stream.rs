//! Explores the model of leases in a NATS stream, and checks that each fault of the protocol is found.

mod common;

use common::{breaks, holds, is_whole};
use keylatch_lease_models::{
    FAST, SLOW,
    stream::{
        Call::{Acquire, Release, Renew, Sweep},
        Fault, Setup,
    },
};

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

#[test]
fn the_promises_are_kept_if_a_client_dies() {
    holds(Setup { deaths: 1, ..CALM }, &["a dead client's lease is taken over"]);
}

#[test]
fn the_promises_are_kept_if_a_write_is_late() {
    let ticks = if is_whole() { 3 } else { 2 };
    holds(Setup { late: 1, ticks, ..CALM }, &["a lease is resumed"]);
    let calls: &[&[_]] =
        if is_whole() { &[&[Acquire, Release, Acquire], &[Acquire]] } else { &[&[Acquire, Release], &[Acquire]] };
    holds(Setup { late: 1, calls, ticks: 2, ..CALM }, &[]);
}

#[test]
fn the_promises_are_kept_if_a_write_is_duplicated() {
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
        breaks(Setup { fault: Some(fault), ..setup }, fault, rule);
    }
}
