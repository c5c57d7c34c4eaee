//! Histories of walks under shuttle's schedules, checked for linearizability: see the library's
//! `tests/linearizability`. Shuttle cuts every call into its steps, so calls overlap in ways that hardly ever happen
//! with real threads.

use std::sync::Arc;

use shuttle::future::block_on;
use shuttle::thread;

use crate::map_calls::{self, Caller};
use crate::spec::{self, Clock, Log};
use crate::walk::{self, Kind, Table, Walk};
use crate::{any_policy, explore, random};

fn histories(kind: Kind, keys: u64) {
    let fairness = any_policy();
    let (table, rules) = Table::new(kind, fairness);
    let clock = Arc::new(Clock::default());
    let has_priorities = random(4) == 0;
    let changes_permits = random(2) == 0;
    let walks: Vec<_> = (0..3)
        .map(|by| {
            let mut walk = Walk::new(table.clone(), keys, Log::new(&clock, by));
            walk.has_priorities = has_priorities;
            walk.changes_permits = changes_permits;
            thread::spawn(move || {
                (0..8).for_each(|_| walk.step(&mut random));
                walk
            })
        })
        .collect();
    let walks = walks.into_iter().map(|walk| walk.join().unwrap()).collect();
    let (records, _) = walk::finish(walks, fairness);
    spec::check(rules, records);
}

/// Checks calls on a map with or without a bound.
fn maps(most: Option<usize>) {
    let map = map_calls::map(any_policy(), most, false);
    let clock = Arc::default();
    let callers: Vec<_> = (0..3)
        .map(|by| {
            let mut caller = Caller::new(&map, &clock, by, false);
            thread::spawn(move || {
                (0..5).for_each(|_| block_on(caller.step(&mut random)));
                caller.records
            })
        })
        .collect();
    let records = callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect();
    map_calls::finish(&map, most);
    map_calls::check(most.is_some(), records);
}

pub fn walks() {
    match random(5) {
        3 => maps(None),
        4 => maps(Some(1)),
        0 => histories(Kind::Mutex, 2),
        1 => histories(Kind::RwLock, 1),
        _ => histories(Kind::Semaphore(1 + random(3) as usize), 1),
    }
}

#[test]
fn of_a_mutex_are_linearizable() {
    explore(|| histories(Kind::Mutex, 2));
}

#[test]
fn of_a_reader_writer_lock_are_linearizable() {
    explore(|| histories(Kind::RwLock, 1));
}

#[test]
fn of_a_semaphore_are_linearizable() {
    explore(|| histories(Kind::Semaphore(1 + random(3) as usize), 1));
}

#[test]
fn of_a_map_are_linearizable() {
    explore(|| maps(None));
}

#[test]
fn of_a_map_with_room_for_one_value_are_linearizable() {
    explore(|| maps(Some(1)));
}
