//! Walks over all values of a map, which wait for locked values.

#![allow(unsafe_code)] // a waker made by hand

mod common;

use std::collections::BTreeMap;
use std::future::{pending as never, ready as at_once};
use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::task::{Poll, RawWaker, RawWakerVTable, Waker};

use common::hostile::{Hostile, Value, disarm, panic_in};
use common::{Bell, Fixed, Random, pending, poll, poll_with, ready, until};
use futures_lite::future::block_on;
use keylatch::{LockMap, MapWriteGuard, Walk};
use proptest::prelude::*;

type Map = LockMap<u64, u64, Fixed>;

/// Creates a map with `n` values and this many shards. Each value is ten times its key.
fn map(n: u64, shards: usize) -> Map {
    let map = LockMap::builder().shards(shards).hasher(Fixed::default()).build();
    for key in 0..n {
        map.insert_blocking(&key, 10 * key);
    }
    map
}

/// Walks to the end, and returns the visited keys in order of the keys.
fn visited(walk: &mut Walk<'_, u64, u64, Fixed>) -> Vec<u64> {
    let mut keys: Vec<_> = std::iter::from_fn(|| walk.next_read_blocking().map(|guard| *guard.key())).collect();
    keys.sort_unstable();
    keys
}

/// Visits the next key, which is free.
fn next(walk: &mut Walk<'_, u64, u64, Fixed>) -> Option<u64> {
    ready(walk.next_read()).map(|guard| *guard.key())
}

// ---- what is visited ------------------------------------------------------------------------------------------------

/// A walk unlocks its shard after it has looked at 256 slots in a row, and then continues.
#[test]
fn a_value_behind_many_free_slots_is_visited() {
    for free in (250..260).chain(506..518).chain([1000]) {
        let map = map(free + 2, 1);
        for key in 1..=free {
            map.remove_blocking(&key);
        }
        assert_eq!(visited(&mut map.walk()), [0, free + 1]);
        map.remove_blocking(&0);
        assert_eq!(visited(&mut map.walk()), [free + 1]);
    }
}

#[test]
fn every_value_is_visited_once_in_every_form() {
    for (n, shards) in [(0, 4), (1, 1), (1000, 1), (1000, 16)] {
        let map = map(n, shards);
        let handle = map.handle(&n); // an entry without a value
        let all: Vec<_> = (0..n).collect();
        assert_eq!(visited(&mut map.walk()), all);

        let (mut walk, mut keys) = (map.walk(), vec![]);
        while let Some(guard) = ready(walk.next_read()) {
            assert_eq!(guard.value(), Some(&(10 * guard.key())));
            keys.push(*guard.key());
        }
        keys.sort_unstable();
        assert_eq!(keys, all);

        let mut walk = map.walk();
        while let Some(mut guard) = block_on(walk.next_write()) {
            *guard.value_mut().unwrap() += 1;
        }
        let mut walk = map.walk();
        while let Some(mut guard) = walk.next_write_blocking() {
            *guard.value_mut().unwrap() += 1;
        }
        assert!((0..n).all(|key| map.get_blocking(&key) == Some(10 * key + 2)));
        assert!(walk.next_read_blocking().is_none() && walk.next_write_blocking().is_none(), "the end is the end");
        drop((walk, handle));
        assert_eq!(map.entries() as u64, n);
    }
}

#[test]
fn a_walk_that_removes_all_values_leaves_no_entries() {
    let map = map(1000, 4);
    let mut walk = map.walk();
    while let Some(mut guard) = walk.next_write_blocking() {
        assert!(guard.remove().is_some());
    }
    assert_eq!((map.len(), map.entries()), (0, 0));
}

#[test]
fn a_value_that_is_changed_before_and_after_its_visit_is_visited_once() {
    let map = map(100, 1);
    let (mut walk, mut keys) = (map.walk(), vec![]);
    while let Some(guard) = walk.next_read_blocking() {
        keys.push(*guard.key());
        drop(guard);
        for key in 0..100 {
            map.insert_blocking(&key, 7);
            map.update_blocking(&key, |value| *value += 1);
            map.compute_blocking(&key, |value| value);
        }
    }
    keys.sort_unstable();
    assert_eq!(keys, (0..100).collect::<Vec<_>>());
}

/// A walk visits the keys in the order of their slots. So a later walk shows whether a key has moved to a slot that
/// the earlier walk has not reached.
#[test]
fn a_key_that_is_removed_and_stored_again_in_another_slot_is_visited_at_most_once() {
    let mut moved = 0;
    for (removed, stored) in [([0, 1], [0, 1]), ([0, 1], [1, 0]), ([1, 0], [0, 1]), ([1, 0], [1, 0])] {
        let map = map(10, 1);
        let mut walk = map.walk();
        let first = next(&mut walk).unwrap();
        let other = (0..10).rfind(|&key| key != first).unwrap();
        removed.into_iter().for_each(|at| _ = map.remove_blocking(&[first, other][at]));
        stored.into_iter().for_each(|at| _ = map.insert_blocking(&[first, other][at], 1));
        moved += u32::from(next(&mut map.walk()) == Some(other));
        let rest = visited(&mut walk);
        assert!(!rest.contains(&first), "visited twice");
        assert!(rest.len() >= 8);
    }
    assert!(moved > 0, "no key has moved");
}

#[test]
fn a_walk_ends_although_each_visit_adds_values() {
    let map = map(100, 1);
    let (mut walk, mut visits) = (map.walk(), 0);
    while let Some(guard) = walk.next_read_blocking() {
        drop(guard);
        visits += 1;
        assert!(visits <= 100, "a value that came later was visited");
        for _ in 0..3 {
            map.insert_blocking(&(map.len() as u64), 1);
        }
    }
    assert_eq!((visits, map.len()), (100, 400));
}

#[test]
fn a_walk_that_begins_later_visits_what_is_new_for_an_earlier_one() {
    let map = map(10, 1);
    map.remove_blocking(&3);
    let mut early = map.walk();
    let first = next(&mut early).unwrap();
    map.insert_blocking(&3, 1);
    map.insert_blocking(&10, 1);
    let mut late = map.walk();
    assert_eq!(visited(&mut late), (0..11).collect::<Vec<_>>());
    let rest = visited(&mut early);
    assert_eq!(rest, (0..10).filter(|&key| key != first && key != 3).collect::<Vec<_>>());
}

#[test]
fn walks_do_not_disturb_each_other() {
    let map = map(50, 1);
    let mut walks: Vec<_> = (0..4).map(|_| map.walk()).collect();
    for walk in &mut walks {
        next(walk);
    }
    drop(walks.remove(1)); // in the middle of the list
    map.remove_blocking(&49);
    map.insert_blocking(&49, 1);
    drop(walks.remove(0));
    for mut walk in walks {
        assert!(visited(&mut walk).len() >= 48);
    }
    let mut walk = map.walk();
    next(&mut walk);
    forget(walk);
    map.remove_blocking(&49);
    map.insert_blocking(&49, 1);
    assert_eq!(visited(&mut map.walk()).len(), 50);
}

// A value that counts as used would survive this many insertions.
#[test]
fn a_visit_is_not_a_use() {
    for writes in [false, true] {
        let map = LockMap::<u64, u64>::builder().max_values(3).shards(1).build();
        for key in 0..3 {
            map.insert_blocking(&key, 1);
        }
        let mut walk = map.walk();
        let visited = if writes { walk.next_write_blocking().is_some() } else { walk.next_read_blocking().is_some() };
        assert!(visited);
        drop(walk);
        for key in 3..6 {
            map.insert_blocking(&key, 1);
        }
        assert!((0..3).all(|key| !map.contains_key(&key)));
    }
}

// ---- waiting --------------------------------------------------------------------------------------------------------

#[test]
fn a_walk_waits_for_a_writer_and_sees_its_change() {
    let map = map(3, 1);
    let mut walk = map.walk();
    let mut writers: Vec<_> = (0..3).map(|key| map.write_blocking(&key)).collect();
    let mut keys = vec![];
    while !writers.is_empty() {
        let (bell, waker) = Bell::new();
        let mut step = walk.next_read();
        assert!(poll_with(&mut step, &waker).is_pending());
        // Only the key that the step waits for has a waiter.
        let waits: Vec<_> = (0..3).filter(|key| map.status(key).unwrap().waiters() == 1).collect();
        assert_eq!(waits.len(), 1);
        let at = writers.iter().position(|writer| *writer.key() == waits[0]).unwrap();
        let mut writer = writers.swap_remove(at);
        *writer.value_mut().unwrap() += 1;
        drop(writer);
        assert_eq!(bell.take(), 1);
        let guard = ready(step).unwrap();
        assert_eq!((*guard.key(), *guard.value().unwrap()), (waits[0], 10 * waits[0] + 1));
        keys.push(waits[0]);
    }
    keys.sort_unstable();
    assert_eq!(keys, [0, 1, 2]);
    assert!(ready(walk.next_read()).is_none());
}

#[test]
fn a_walk_that_writes_waits_for_readers_and_one_that_reads_does_not() {
    let map = map(1, 1);
    let reader = map.read_blocking(&0);
    let mut writes = map.walk();
    let mut step = writes.next_write();
    pending(&mut step);
    drop(step);
    assert_eq!(next(&mut map.walk()), Some(0));
    drop(reader);
    assert!(ready(writes.next_write()).is_some());
}

#[test]
fn a_dropped_step_leaves_nothing_locked_and_the_walk_goes_on_with_the_same_key() {
    let map = map(2, 1);
    let mut walk = map.walk();
    let first = next(&mut walk).unwrap();
    let mut writer = map.write_blocking(&(1 - first));
    for _ in 0..3 {
        let mut step = walk.next_write();
        pending(&mut step);
        drop(step);
        assert_eq!(map.status(writer.key()).unwrap().waiters(), 0);
        assert!(block_on(walk.next_read().until(at_once(()))).is_err());
        assert_eq!(map.status(writer.key()).unwrap().waiters(), 0);
    }
    *writer.value_mut().unwrap() = 7;
    drop(writer);
    let guard = block_on(walk.next_read().until(never::<()>())).unwrap().unwrap();
    assert_eq!((*guard.key(), guard.value()), (1 - first, Some(&7)));
    drop(walk);
    assert!(map.is_locked(guard.key()), "a guard outlives its walk");
    drop(guard);
    assert!((0..2).all(|key| !map.is_locked(&key)));
}

#[test]
fn a_step_that_was_handed_the_key_and_is_dropped_passes_it_on() {
    let map = LockMap::<u64, u64>::builder().fairness(keylatch::Fairness::Fifo).shards(1).build();
    map.insert_blocking(&1, 1);
    let writer = map.write_blocking(&1);
    let mut walk = map.walk();
    let mut step = walk.next_write();
    pending(&mut step);
    let mut other = Box::pin(map.get(&1));
    pending(&mut other);
    writer.unlock_fair(); // hands the key to the step
    drop(step);
    assert_eq!(ready(other), Some(1));
    drop(walk);
    assert!(!map.is_locked(&1));
}

#[test]
fn a_value_that_is_removed_while_the_walk_waits_is_skipped() {
    let map = map(3, 1);
    let mut walk = map.walk();
    let first = next(&mut walk).unwrap();
    let mut writers: Vec<_> = (0..3).filter(|&key| key != first).map(|key| map.write_blocking(&key)).collect();
    let mut step = walk.next_read();
    pending(&mut step);
    let waits = writers.iter().position(|writer| map.status(writer.key()).unwrap().waiters() == 1).unwrap();
    let mut writer = writers.swap_remove(waits);
    writer.remove();
    drop(writer);
    pending(&mut step); // waits for the last key now
    let last = writers.pop().unwrap();
    let key = *last.key();
    drop(last);
    assert_eq!(ready(step).map(|guard| *guard.key()), Some(key));
    assert_eq!((next(&mut walk), map.entries()), (None, 2));
}

#[test]
fn a_value_that_its_writer_has_taken_out_for_a_moment_is_visited() {
    let map = map(1, 1);
    // The value is taken out before the walk looks at the key, and put back, changed, while the walk waits.
    let mut writer = map.write_blocking(&0);
    let value = writer.remove().unwrap();
    let mut walk = map.walk();
    let mut step = walk.next_read();
    pending(&mut step);
    writer.insert(value + 1);
    drop(writer);
    assert_eq!(ready(step).unwrap().value(), Some(&1));
    drop(walk);

    let change = async |value: Option<u64>| {
        let mut walk = map.walk();
        let mut step = walk.next_read();
        pending(&mut step);
        value
    };
    assert!(block_on(map.compute(&0, change)).is_some());
}

#[test]
fn blocking_walks_wait_for_a_writer_of_another_thread() {
    let map = &map(1, 1);
    let mut writer = map.write_blocking(&0);
    std::thread::scope(|scope| {
        let walker = scope.spawn(|| map.walk().next_write_blocking().map(|guard| *guard.value().unwrap()));
        until(|| map.status(&0).unwrap().waiters() == 1);
        *writer.value_mut().unwrap() = 7;
        drop(writer);
        assert_eq!(walker.join().unwrap(), Some(7));
    });
}

// ---- hostile callers and keys ---------------------------------------------------------------------------------------

#[test]
fn guards_may_be_kept_while_the_walk_continues() {
    let map = map(100, 4);
    let mut walk = map.walk();
    let guards: Vec<_> = std::iter::from_fn(|| ready(walk.next_write())).collect();
    assert_eq!(guards.len(), 100);
    assert!((0..100).all(|key| map.is_locked(&key)));
    drop((walk, guards));
    assert!((0..100).all(|key| !map.is_locked(&key)));
}

#[test]
fn the_map_may_be_used_while_a_visited_key_is_held() {
    let map = map(20, 2);
    let (mut walk, mut visits) = (map.walk(), 0);
    while let Some(mut guard) = walk.next_write_blocking() {
        visits += 1;
        let key = *guard.key();
        *guard.value_mut().unwrap() += 1;
        map.insert_blocking(&(20 + key), 1);
        map.remove_blocking(&(20 + key));
        assert_eq!((map.for_each_value(|_, _, _| {}), map.len()), (1, 20));
        assert!(map.try_read(&key).is_none());
        let mut inner = map.walk();
        let mut others = 0;
        while let Poll::Ready(next) = poll(&mut inner.next_read()) {
            assert_ne!(next.map(|guard| *guard.key()).expect("the end comes after the key that is held"), key);
            others += 1;
        }
        assert!(others < 20);
    }
    assert_eq!((visits, map.entries()), (20, 20));
}

#[test]
fn a_forgotten_walk_leaves_nothing_locked_and_the_map_usable() {
    let map = map(10, 1);
    for _ in 0..100_000 {
        let mut walk = map.walk();
        next(&mut walk);
        forget(walk);
    }
    map.remove_blocking(&3);
    map.insert_blocking(&3, 1);
    assert_eq!(visited(&mut map.walk()).len(), 10);
    assert!((0..10).all(|key| !map.is_locked(&key)));
    drop(map); // does not recurse
}

#[test]
fn a_forgotten_step_keeps_its_place_and_the_walk_goes_on_behind_it() {
    let map = LockMap::<u64, u64>::builder().fairness(keylatch::Fairness::Fifo).shards(1).build();
    map.insert_blocking(&1, 1);
    let mut walk = map.walk();
    forget(walk.next_write()); // not polled: nothing happens
    assert_eq!(map.status(&1).map(|status| status.waiters()), Some(0));
    let writer = map.write_blocking(&1);
    let mut step = Box::pin(walk.next_write());
    pending(&mut step);
    forget(step);
    let mut behind = walk.next_read();
    pending(&mut behind);
    drop(writer); // hands the key to the forgotten step
    pending(&mut behind);
    assert_eq!(map.status(&1).map(|status| status.waiters()), Some(1));
    drop(behind);
    drop(walk);
    map.insert_blocking(&2, 2); // no other key is affected
    assert_eq!(map.get_blocking(&2), Some(2));
}

#[test]
fn a_walk_calls_no_hash_eq_or_clone_of_a_key_or_a_value() {
    let map: LockMap<Hostile, Value> = (0..20).map(|n| (Hostile::new(n), Value::new(n))).collect();
    for place in ["hash", "eq", "clone", "clone_from", "value's clone", "value's eq", "value's drop", "drop"] {
        panic_in(place);
        let mut walk = map.walk();
        let visits = std::iter::from_fn(|| walk.next_write_blocking().map(drop)).count();
        assert!(disarm() && visits == 20, "{place}");
    }
}

/// The walk waits for a key whose value is removed meanwhile. So the walk is the last user of the entry, and drops the
/// key.
#[test]
fn a_key_whose_drop_panics_in_a_step_leaves_nothing_locked_and_is_passed() {
    let map: LockMap<Hostile, Value> = LockMap::builder().shards(1).pool_capacity(0).build();
    (0..3).for_each(|n| _ = map.insert_blocking(&Hostile::new(n), Value::new(n)));
    let mut walk = map.walk();
    drop(ready(walk.next_read()));
    let mut writers: Vec<_> = (0..3).filter_map(|n| map.try_write(&Hostile::new(n))).collect();
    let mut step = walk.next_read();
    pending(&mut step);
    let waits = writers.iter().position(|writer| map.status(writer.key()).unwrap().waiters() == 1).unwrap();
    let mut writer = writers.remove(waits);
    drop(writer.remove());
    drop((writer, writers));
    panic_in("drop");
    let mut step = Some(step);
    let polled = catch_unwind(AssertUnwindSafe(|| drop(ready(step.take().unwrap()))));
    assert!(polled.is_err() && !disarm());
    assert_eq!((map.len(), map.entries()), (2, 2));
    assert_eq!(std::iter::from_fn(|| walk.next_read_blocking().map(drop)).count(), 1);
    drop(walk);
    (0..3).for_each(|n| assert!(map.try_write(&Hostile::new(n)).is_some()));
}

/// Creates a waker whose clone panics.
fn bomb() -> Waker {
    const VTABLE: RawWakerVTable = RawWakerVTable::new(|_| resume_unwind(Box::new("clone")), |_| {}, |_| {}, |_| {});
    // SAFETY: the functions use no data.
    unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &VTABLE)) }
}

#[test]
fn a_waker_that_panics_leaves_no_waiter_and_the_walk_continues_with_the_same_key() {
    let map = map(1, 1);
    let writer = map.write_blocking(&0);
    let mut walk = map.walk();
    let mut step = walk.next_read();
    assert!(catch_unwind(AssertUnwindSafe(|| poll_with(&mut step, &bomb()).is_pending())).is_err());
    assert_eq!(map.status(&0).map(|status| status.waiters()), Some(0));
    pending(&mut step);
    drop(writer);
    assert_eq!(ready(step).map(|guard| *guard.key()), Some(0));
}

#[test]
fn a_panic_of_the_visitor_leaves_nothing_locked() {
    let map = map(5, 1);
    let mut walk = map.walk();
    let visit = || {
        let _guard = walk.next_write_blocking();
        resume_unwind(Box::new("visitor"))
    };
    assert!(catch_unwind(AssertUnwindSafe(visit)).is_err());
    assert!((0..5).all(|key| !map.is_locked(&key)));
    assert_eq!(visited(&mut walk).len(), 4);
}

// ---- maps that evict ------------------------------------------------------------------------------------------------

#[test]
fn a_walk_ends_when_all_values_are_evicted_meanwhile() {
    let map = LockMap::<u64, u64>::builder().max_values(50).shards(1).build();
    (0..50).for_each(|key| _ = map.insert_blocking(&key, 1));
    let mut walk = map.walk();
    assert!(walk.next_read_blocking().is_some());
    (50..150).for_each(|key| _ = map.insert_blocking(&key, 1));
    assert!((0..50).all(|key| !map.contains_key(&key)));
    assert!(walk.next_read_blocking().is_none());
    assert_eq!((map.len(), map.entries()), (50, 50));
}

#[test]
fn a_value_that_is_visited_is_not_evicted_and_the_walk_waits_for_an_eviction_by_hand() {
    let map = LockMap::<u64, u64>::builder().max_values(1).evict_by_hand().shards(1).build();
    (0..2).for_each(|key| _ = map.insert_blocking(&key, 1));
    let mut walk = map.walk();
    let guard = walk.next_read_blocking().unwrap();
    let mut evicted = map.try_next_eviction().unwrap();
    assert_ne!(evicted.key(), guard.key());
    let mut step = walk.next_read();
    pending(&mut step);
    evicted.remove();
    drop(evicted);
    assert!(ready(step).is_none());
    drop((walk, guard));
    assert_eq!((map.len(), map.entries(), map.excess()), (1, 1, 0));
}

#[test]
fn a_walk_that_reads_lets_the_map_evict_what_it_has_visited() {
    let map = LockMap::<u64, u64>::builder().max_values(20).shards(1).build();
    (0..20).for_each(|key| _ = map.insert_blocking(&key, 1));
    let (mut walk, mut visits, mut next) = (map.walk(), 0, 20);
    while let Some(guard) = walk.next_read_blocking() {
        visits += 1;
        map.insert_blocking(&next, 1);
        assert!(map.contains_key(guard.key()), "a value was evicted while in use");
        next += 1;
    }
    assert!((1..=20).contains(&visits));
    drop(walk);
    assert_eq!((map.len(), map.entries()), (20, 20));
}

#[test]
fn a_visit_is_not_a_look_up() {
    let map = LockMap::<u64, u64>::builder().max_values(4).record_stats().build();
    map.insert_blocking(&1, 1);
    let handle = map.handle(&2); // an entry without a value
    let before = map.stats();
    let mut walk = map.walk();
    while walk.next_read_blocking().is_some() {}
    let mut walk = map.walk();
    while walk.next_write_blocking().is_some() {}
    assert_eq!(map.stats(), before);
    drop(handle);
}

// ---- random schedules -----------------------------------------------------------------------------------------------

const KEYS: u64 = 40;

/// A walk, and the model's knowledge of it.
struct Walking<'m> {
    walk: Walk<'m, u64, u64, Fixed>,
    /// Whether each key has had a value all the time since the walk began, except while a writer had taken it out.
    there: Vec<bool>,
    visits: BTreeMap<u64, u32>,
}

struct World<'m> {
    map: &'m Map,
    /// The writers' guards, with the values that they have taken out.
    writers: Vec<(MapWriteGuard<'m, u64, u64, Fixed>, Option<u64>)>,
    walks: Vec<Walking<'m>>,
}

impl World<'_> {
    fn is_held(&self, key: u64) -> bool {
        self.writers.iter().any(|(writer, _)| *writer.key() == key)
    }

    /// Records that a key has no value.
    fn gone(&mut self, key: u64) {
        self.walks.iter_mut().for_each(|walking| walking.there[key as usize] = false);
    }

    fn begin(&mut self) {
        let there = |key| {
            self.map.contains_key(&key)
                || self.writers.iter().any(|(writer, taken)| *writer.key() == key && taken.is_some())
        };
        let there = (0..KEYS).map(there).collect();
        self.walks.push(Walking { walk: self.map.walk(), there, visits: BTreeMap::new() });
    }

    /// Returns whether the walk has ended.
    fn walk_on(&mut self, at: usize, writes: bool) -> bool {
        let Walking { walk, visits, .. } = &mut self.walks[at];
        let next = if writes {
            poll(&mut walk.next_write()).map(|next| next.map(|guard| *guard.key()))
        } else {
            poll(&mut walk.next_read()).map(|next| next.map(|guard| *guard.key()))
        };
        match next {
            Poll::Ready(Some(key)) => {
                *visits.entry(key).or_default() += 1;
                assert!(!self.is_held(key) && self.map.contains_key(&key));
                false
            }
            Poll::Ready(None) => {
                let Walking { there, visits, .. } = self.walks.swap_remove(at);
                for key in 0..KEYS {
                    let visits = visits.get(&key).copied().unwrap_or(0);
                    assert!(visits <= 1, "key {key} was visited {visits} times");
                    assert!(visits == 1 || !there[key as usize], "key {key} was not visited");
                }
                true
            }
            Poll::Pending => {
                assert!(!self.writers.is_empty(), "the walk waits for nobody");
                false
            }
        }
    }

    fn step(&mut self, (what, key, a): (u8, u64, u8)) {
        let pick = |n: usize| (n > 0).then(|| usize::from(a) % n.max(1));
        match what {
            0..=2 if !self.is_held(key) => _ = self.map.insert_blocking(&key, 1),
            3..=5 if !self.is_held(key) => {
                self.map.remove_blocking(&key);
                self.gone(key);
            }
            6 if !self.is_held(key) => _ = self.map.update_blocking(&key, |value| *value += 1),
            7 if !self.is_held(key) => {
                let mut writer = self.map.write_blocking(&key);
                let taken = if a % 2 == 0 { writer.remove() } else { None };
                self.writers.push((writer, taken));
            }
            8 | 9 => {
                let Some(at) = pick(self.writers.len()) else { return };
                let (mut writer, taken) = self.writers.swap_remove(at);
                match taken {
                    Some(value) => assert!(writer.insert(value).is_none()),
                    None if a % 3 == 0 => {
                        writer.remove();
                        let key = *writer.key();
                        drop(writer);
                        self.gone(key);
                    }
                    None => {}
                }
            }
            10 if self.walks.len() < 3 => self.begin(),
            11 => {
                let Some(at) = pick(self.walks.len()) else { return };
                drop(self.walks.swap_remove(at));
            }
            12.. => {
                let Some(at) = pick(self.walks.len()) else { return };
                self.walk_on(at, key % 2 == 0);
            }
            _ => {}
        }
    }
}

fn cases() -> ProptestConfig {
    let cases = std::env::var("KEYLATCH_CASES").map_or(2000, |cases| cases.parse().unwrap());
    ProptestConfig { cases: if cfg!(miri) { 4 } else { cases }, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn a_value_that_stays_is_visited_once_and_any_other_key_at_most_once(
        shards in prop_oneof![Just(1), Just(4)],
        values in 0..KEYS,
        steps in prop::collection::vec((0..24_u8, 0..KEYS, any::<u8>()), 1..300),
    ) {
        let map = map(values, shards);
        let mut world = World { map: &map, writers: vec![], walks: vec![] };
        for step in steps {
            world.step(step);
        }
        while let Some((mut writer, taken)) = world.writers.pop() {
            if let Some(value) = taken {
                writer.insert(value);
            }
        }
        while !world.walks.is_empty() {
            world.walk_on(0, false);
        }
        assert_eq!(map.entries(), map.len());
    }
}

// ---- threads --------------------------------------------------------------------------------------------------------

#[test]
fn walks_among_threads_visit_what_stays_once() {
    const STAY: u64 = 100;
    let rounds = if cfg!(miri) { 2 } else { 300 };
    let map = Arc::new(map(STAY, 2));
    let done = Arc::new(AtomicBool::new(false));
    let changes = Arc::new(AtomicU64::new(0));
    let workers: Vec<_> = (1..=2)
        .map(|seed| {
            let (map, done, changes) = (map.clone(), done.clone(), changes.clone());
            std::thread::spawn(move || {
                let mut random = Random(seed);
                while !done.load(SeqCst) {
                    let (stays, comes) = (random.next(STAY), STAY + random.next(STAY));
                    map.update_blocking(&stays, |value| *value += 1).expect("it stays");
                    map.compute_blocking(&random.next(STAY), |value| value).expect("it stays");
                    match random.next(3) {
                        0 => _ = map.insert_blocking(&comes, 1),
                        _ => _ = map.remove_blocking(&comes),
                    }
                    changes.fetch_add(1, SeqCst);
                }
            })
        })
        .collect();
    for round in 0..rounds {
        let (mut walk, mut visits) = (map.walk(), vec![0; 2 * STAY as usize]);
        loop {
            let key = match round % 2 {
                0 => walk.next_read_blocking().map(|guard| *guard.key()),
                _ => block_on(walk.next_write()).map(|guard| *guard.key()),
            };
            let Some(key) = key else { break };
            visits[key as usize] += 1;
        }
        let (stay, come) = visits.split_at(STAY as usize);
        assert!(stay.iter().all(|&visits| visits == 1) && come.iter().all(|&visits| visits <= 1));
    }
    until(|| changes.load(SeqCst) > 0);
    done.store(true, SeqCst);
    for worker in workers {
        worker.join().unwrap();
    }
}
