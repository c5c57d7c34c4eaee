//! Guarantee 12 (memory follows use), measured by the memory of the process: it depends on how many leases and waiters
//! there are at a time, not on how many there have been. The parts run one after another, because memory is measured
//! for the whole process.
#![cfg(target_os = "linux")]

mod common;

use std::time::Duration;

use common::{HOUR, owners, ready, secs, table, take, waiting};
use keylatch_lease::{Expiry, Owner};

/// The number of repetitions. A leak of a few bytes per repetition exceeds the limit; in a debug build, a leak of a
/// hundred bytes does.
const MANY: u64 = if cfg!(debug_assertions) { 100_000 } else { 10_000_000 };
/// The number of repetitions of slower cases.
const FEWER: u64 = if cfg!(debug_assertions) { 100_000 } else { 2_000_000 };

/// Returns the resident bytes of the process.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Repeats a step to warm up, and then again, and checks that the memory has not grown, except for the allocator's
/// slack.
fn stays_flat(what: &str, many: u64, mut round: impl FnMut(u64)) {
    let warm = many / 4;
    (0..warm).for_each(&mut round);
    let before = resident();
    (warm..warm + many).for_each(&mut round);
    let grown = resident().saturating_sub(before);
    assert!(grown < 6 << 20, "{what}: {grown} bytes more after {many} rounds");
}

#[test]
fn guarantee_12_memory_stays_flat() {
    one_shot_leases_that_are_released();
    one_shot_leases_that_are_left_to_expire_without_a_sweep();
    a_lease_that_is_renewed_again_and_again();
    ends_that_are_far_and_never_come();
    tenures_of_one_resource();
    waiters_that_give_up_and_others_that_are_served();
    leases_of_owners_that_are_used_once();
    held_leases();
}

fn one_shot_leases_that_are_released() {
    let (table, clock) = table();
    let [ann] = owners();
    stays_flat("released", MANY, |n| {
        let grant = take(&table, n.to_string(), &ann, secs(10));
        table.release_now(&grant).unwrap();
        clock.advance(Duration::from_micros(1));
    });
    assert_eq!(table.len(), 0);
}

/// At most a thousand leases exist at one time. The test only acquires; it calls no tick.
fn one_shot_leases_that_are_left_to_expire_without_a_sweep() {
    for (ttl, step) in [(secs(1), Duration::from_millis(1)), (secs(10), Duration::from_millis(10)), (HOUR, secs(4))] {
        let (table, clock) = table();
        let [ann] = owners();
        stays_flat("left to expire", FEWER, |n| {
            take(&table, n.to_string(), &ann, ttl);
            clock.advance(step);
        });
        assert!(table.len() <= 1000);
    }
}

fn a_lease_that_is_renewed_again_and_again() {
    let (table, clock) = table();
    let [ann] = owners();
    let mut grant = take(&table, "a", &ann, HOUR);
    stays_flat("renewed", MANY, |n| {
        clock.advance(Duration::from_millis(1 + n % 1000));
        grant = table.renew_now(&grant).unwrap();
    });
}

fn ends_that_are_far_and_never_come() {
    let (table, clock) = table();
    let [ann] = owners();
    stays_flat("far ends", FEWER, |n| {
        let expiry = if n % 3 == 0 { Expiry::Never } else { Expiry::Fixed(HOUR * 24 * (1 + n as u32 % 1000)) };
        let grant = take(&table, (n % 1000).to_string(), &ann, expiry);
        clock.advance(Duration::from_micros(1));
        table.release_now(&grant).unwrap();
    });
}

fn tenures_of_one_resource() {
    let (table, clock) = table();
    let [ann] = owners();
    stays_flat("tenures", FEWER, |_| {
        ready(table.acquire("a", &ann, HOUR).fresh_token()).unwrap();
        clock.advance(Duration::from_micros(1));
    });
    assert_eq!(table.len(), 1);
}

fn waiters_that_give_up_and_others_that_are_served() {
    let (table, _clock) = table();
    let [ann, bob] = owners();
    stays_flat("waiters", FEWER, |n| {
        let key = n.to_string();
        let grant = take(&table, &key, &ann, HOUR);
        let gone = waiting(table.acquire(&key, &bob, HOUR));
        let mut served = waiting(table.acquire(&key, &bob, HOUR));
        drop(gone);
        table.release_now(&grant).unwrap();
        table.release_now(&ready(&mut served).unwrap()).unwrap();
    });
    assert_eq!(table.len(), 0);
}

fn leases_of_owners_that_are_used_once() {
    let (table, clock) = table();
    stays_flat("owners", FEWER, |n| {
        let owner = Owner::named(format!("session {n}"));
        take(&table, (n % 2000).to_string(), &owner, secs(1));
        if n % 2 == 0 {
            table.release_all_now(&owner).unwrap();
        }
        clock.advance(Duration::from_millis(1));
    });
}

fn held_leases() {
    let (table, clock) = table();
    let [ann] = owners();
    stays_flat("held", FEWER, |n| {
        let held = ready(table.hold(n.to_string(), &ann, secs(1))).unwrap();
        drop(waiting(held.lost()));
        drop(waiting(held.renewal()));
        clock.advance(Duration::from_millis(1));
        if n % 2 == 0 {
            drop(held.into_grant());
        }
    });
}
