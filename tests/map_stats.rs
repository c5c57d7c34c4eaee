//! `record_stats` and `stats`: which events are counted, and which are not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use futures_lite::future::block_on;
use keylatch::{Evicted, Fairness, LockMap, Stats};

mod common;
use common::{Random, pending, ready};

type Map<V = u64> = LockMap<u64, V>;

fn recording<V>() -> Map<V> {
    LockMap::builder().record_stats().build()
}

/// Returns the numbers of hits, misses, insertions, evictions and waits.
fn numbers<V>(map: &Map<V>) -> [u64; 5] {
    let stats = map.stats().unwrap();
    [stats.hits(), stats.misses(), stats.insertions(), stats.evictions(Evicted::Size), stats.waits()]
}

/// Returns what `f` adds to the numbers.
fn added<V, R>(map: &Map<V>, f: impl FnOnce(&Map<V>) -> R) -> [u64; 5] {
    let before = numbers(map);
    f(map);
    let after = numbers(map);
    std::array::from_fn(|at| after[at] - before[at])
}

const NOTHING: [u64; 5] = [0; 5];
const HIT: [u64; 5] = [1, 0, 0, 0, 0];
const MISS: [u64; 5] = [0, 1, 0, 0, 0];
const INSERTION: [u64; 5] = [0, 0, 1, 0, 0];
const EVICTION: [u64; 5] = [0, 0, 0, 1, 0];
const WAIT: [u64; 5] = [0, 0, 0, 0, 1];

fn sum<const N: usize>(numbers: [[u64; 5]; N]) -> [u64; 5] {
    std::array::from_fn(|at| numbers.iter().map(|numbers| numbers[at]).sum())
}

#[test]
fn nothing_is_recorded_unless_it_was_asked_for() {
    let map: Map = LockMap::builder().max_values(2).build();
    map.insert_blocking(&1, 1);
    assert!(map.stats().is_none());
    assert!(Map::<u64>::new().stats().is_none());
    assert!(format!("{:?}", Map::<u64>::builder().record_stats()).contains("record_stats: true"));
}

/// Calls that are a hit if the key has a value, and otherwise a miss.
macro_rules! look_ups {
    ($map:ident, $key:ident) => {
        [
            ("get", added(&$map, |map| block_on(map.get(&$key)))),
            ("get_blocking", added(&$map, |map| map.get_blocking(&$key))),
            ("read", added(&$map, |map| drop(block_on(map.read(&$key))))),
            ("read_blocking", added(&$map, |map| drop(map.read_blocking(&$key)))),
            ("try_read", added(&$map, |map| drop(map.try_read(&$key)))),
            ("read_recursive", added(&$map, |map| drop(block_on(map.read_recursive(&$key))))),
            ("read_many", added(&$map, |map| drop(map.read_many_blocking([&$key])))),
            ("handle", added(&$map, |map| drop(map.handle(&$key).read_blocking()))),
        ]
    };
}

#[test]
fn reads_are_hits_or_misses() {
    // Values that own nothing are read under an internal lock, others under a guard.
    let (plain, owned) = (recording::<u64>(), recording::<String>());
    for key in 0..20_u64 {
        for (name, added) in look_ups!(plain, key) {
            assert_eq!(added, MISS, "{name}");
        }
        for (name, added) in look_ups!(owned, key) {
            assert_eq!(added, MISS, "{name}");
        }
        assert_eq!(added(&plain, |map| map.insert_blocking(&key, 1)), INSERTION);
        assert_eq!(added(&owned, |map| map.insert_blocking(&key, "a".into())), INSERTION);
        for _ in 0..2 {
            for (name, added) in look_ups!(plain, key) {
                assert_eq!(added, HIT, "{name}");
            }
            for (name, added) in look_ups!(owned, key) {
                assert_eq!(added, HIT, "{name}");
            }
        }
    }
}

#[test]
fn a_read_of_an_entry_without_a_value_is_a_miss() {
    let map = recording::<u64>();
    let (key, _handle) = (1, map.handle(&1)); // the handle keeps the entry
    for (name, added) in look_ups!(map, key) {
        assert_eq!(added, MISS, "{name}");
    }
}

#[test]
fn get_or_insert_with_is_one_look_up() {
    let map = recording::<String>();
    let make = || "a".to_string();
    assert_eq!(added(&map, |map| drop(map.get_or_insert_with_blocking(&1, make))), sum([MISS, INSERTION]));
    assert_eq!(added(&map, |map| drop(map.get_or_insert_with_blocking(&1, make))), HIT);
    assert_eq!(added(&map, |map| drop(block_on(map.get_or_insert_with(&2, async || make())))), sum([MISS, INSERTION]));
    assert_eq!(added(&map, |map| drop(block_on(map.get_or_insert_with(&2, async || make())))), HIT);
    // A call that finds no value is a miss even if it makes none, and even if the entry exists.
    let handle = map.handle(&3);
    assert_eq!(added(&map, |map| map.get_or_try_insert_with_blocking(&3, || Err(())).is_err()), MISS);
    drop(handle);
    assert_eq!(added(&map, |map| block_on(map.get_or_try_insert_with(&3, async || Err(()))).is_err()), MISS);
    // A call that waits for another caller's `init` is counted as a hit or a miss only when it has the key. Here that
    // is a miss, because the other caller was dropped before it had made a value.
    let mut first = Box::pin(map.get_or_insert_with(&4, || async { std::future::pending().await }));
    let mut second = Box::pin(map.get_or_insert_with(&4, async || make()));
    assert_eq!(added(&map, |_| pending(&mut first)), MISS);
    assert_eq!(added(&map, |_| pending(&mut second)), WAIT);
    drop(first);
    assert_eq!(added(&map, |_| drop(ready(second))), sum([MISS, INSERTION]));
}

#[test]
fn changes_are_not_look_ups() {
    let map = recording::<u64>();
    assert_eq!(added(&map, |map| map.remove_blocking(&1)), NOTHING);
    assert_eq!(added(&map, |map| drop(map.write_blocking(&1))), NOTHING);
    assert_eq!(added(&map, |map| drop(map.upgradable_read_blocking(&1))), NOTHING);
    assert_eq!(added(&map, |map| block_on(map.peek(&1))), NOTHING);
    assert_eq!(added(&map, |map| map.peek_blocking(&1)), NOTHING);
    assert_eq!(added(&map, |map| map.write_blocking(&1).insert(1)), INSERTION);
    let version = map.try_write(&1).unwrap().version().unwrap();
    assert_eq!(added(&map, |map| map.add_or_update_blocking(&1, 2)), NOTHING);
    assert_eq!(added(&map, |map| map.update_if_blocking(&1, version, 3).is_err()), NOTHING);
    assert_eq!(added(&map, |map| map.batch().insert(&1, 4).check_absent(&9).commit_blocking().is_ok()), NOTHING);
    assert_eq!(added(&map, |map| drop(map.read_write_many_blocking([&1], [&2]))), NOTHING);
    assert_eq!(added(&map, |map| map.peek_blocking(&1)), NOTHING);
    assert_eq!(added(&map, |map| map.for_each_value(|_, _, _| {})), NOTHING);
    assert_eq!(added(&map, |map| (map.contains_key(&1), map.status(&1), map.len())), NOTHING);
    assert_eq!(added(&map, |map| drop(map.handle(&1))), NOTHING);
    assert_eq!(added(&map, |map| map.try_read(&1).unwrap().key() == &1), HIT);
    assert_eq!(added(&map, |map| drop(map.write_blocking(&1).downgrade())), NOTHING);
    assert_eq!(added(&map, |map| map.clear()), NOTHING);
}

#[test]
fn reads_that_fail_or_are_dropped_are_neither_hits_nor_misses() {
    let map = recording::<u64>();
    map.insert_blocking(&1, 1);
    let writer = map.write_blocking(&1);
    assert_eq!(added(&map, |map| map.try_read(&1).is_none()), NOTHING);
    assert_eq!(added(&map, |map| drop(map.read(&1))), NOTHING);
    assert_eq!(added(&map, |map| pending(&mut Box::pin(map.read(&1)))), WAIT);
    drop(writer);
}

#[test]
fn an_insertion_is_a_value_for_a_key_that_had_none() {
    let mut map = recording::<u64>();
    assert_eq!(added(&map, |map| map.insert_blocking(&1, 1)), INSERTION);
    assert_eq!(added(&map, |map| map.insert_blocking(&1, 2)), NOTHING);
    assert_eq!(added(&map, |map| block_on(map.insert(&2, 2))), INSERTION);
    assert_eq!(added(&map, |map| map.add_or_update_blocking(&3, 3)), INSERTION);
    assert_eq!(added(&map, |map| *map.write_blocking(&4).get_or_insert_with(|| 4)), INSERTION);
    assert_eq!(added(&map, |map| *map.write_blocking(&4).value_mut().unwrap() = 5), NOTHING);
    assert_eq!(
        added(&map, |map| map.batch().insert(&5, 5).insert(&5, 6).insert(&1, 7).commit_blocking().is_ok()),
        INSERTION
    );
    // Dropping a slot puts the value back, or stores the first one.
    assert_eq!(added(&map, |map| *map.write_blocking(&1).value_slot() = Some(8)), NOTHING);
    assert_eq!(added(&map, |map| drop(map.write_blocking(&1).value_slot())), NOTHING);
    assert_eq!(added(&map, |map| *map.write_blocking(&6).value_slot() = Some(6)), INSERTION);
    let before = numbers(&map);
    map.extend([(1, 9), (7, 7), (8, 8)]);
    assert_eq!(numbers(&map)[2] - before[2], 2);
    assert_eq!(map.stats().unwrap().insertions(), map.len() as u64);
}

#[test]
fn evictions_are_counted_and_removals_are_not() {
    let map: Map = LockMap::builder().max_values(2).shards(1).record_stats().build();
    for key in 0..2 {
        assert_eq!(added(&map, |map| map.insert_blocking(&key, key)), INSERTION);
    }
    assert_eq!(added(&map, |map| map.insert_blocking(&2, 2)), sum([INSERTION, EVICTION]));
    assert_eq!(added(&map, |map| map.write_blocking(&3).insert(3)), sum([INSERTION, EVICTION]));
    assert_eq!(added(&map, |map| map.set_max_values(1)), EVICTION);
    assert_eq!(added(&map, |map| map.pop()), NOTHING);
    assert!(map.is_empty());

    let map: Map = LockMap::builder().max_values(1).shards(1).record_stats().evict_by_hand().build();
    map.insert_blocking(&1, 1);
    map.insert_blocking(&2, 2);
    assert_eq!(added(&map, |map| map.try_next_eviction().unwrap().remove()), NOTHING);
}

/// The order of eviction is the same as in a map that does not count.
#[test]
fn counting_does_not_change_which_value_is_evicted() {
    // The keys of evicted values are remembered by their hashes, so both maps have the same hasher.
    let hasher = std::hash::RandomState::new();
    let builder = || LockMap::builder().max_values(8).shards(1).hasher(hasher.clone());
    type Map = LockMap<u64, u64, std::hash::RandomState>;
    let (plain, counting): (Map, Map) = (builder().build(), builder().record_stats().build());
    let mut random = Random(7);
    for _ in 0..5000 {
        let (key, what) = (random.next(24), random.next(4));
        for map in [&plain, &counting] {
            match what {
                0 => drop(map.get_blocking(&key)),
                1 => drop(map.read_blocking(&key)),
                2 => drop(map.write_blocking(&key).value_mut()),
                _ => drop(map.insert_blocking(&key, key)),
            }
        }
        for key in 0..24 {
            assert_eq!(plain.contains_key(&key), counting.contains_key(&key));
        }
    }
    assert!(counting.stats().unwrap().evictions(Evicted::Size) > 500);
}

#[test]
fn requests_and_upgrades_that_queue_are_waits() {
    let map: Map = LockMap::builder().fairness(Fairness::Fifo).record_stats().build();
    let reader = map.upgradable_read_blocking(&1);
    let other = map.try_read(&1).unwrap();
    let before = numbers(&map);
    let mut upgrade = Box::pin(reader.upgrade());
    pending(&mut upgrade);
    pending(&mut upgrade); // still the same wait
    let mut many = Box::pin(map.write_many([&1, &2]));
    pending(&mut many);
    let mut get = Box::pin(map.get(&1));
    pending(&mut get);
    assert!(map.try_write(&1).is_none());
    assert_eq!(numbers(&map)[4] - before[4], 3);
    drop(other);
    drop(ready(upgrade));
    drop(many);
    assert_eq!(added(&map, |_| assert_eq!(ready(get), None)), MISS);

    // A handle, and a key that is free: no wait.
    let handle = map.handle(&2);
    assert_eq!(added(&map, |_| drop(handle.write_blocking())), NOTHING);
}

#[test]
fn versions_and_handles_are_independent_of_the_marks_of_uses() {
    let map: Map = LockMap::builder().max_values(1).shards(1).record_stats().build();
    map.insert_blocking(&1, 0);
    let handles: Vec<_> = (0..100).map(|_| map.handle(&1)).collect();
    let mut last = None;
    for n in 1..100 {
        map.insert_blocking(&1, n);
        let version = map.read_blocking(&1).version();
        assert!(version > last);
        last = version;
        map.insert_blocking(&2, n);
        assert!(map.contains_key(&1), "it has handles");
        map.remove_blocking(&2);
    }
    drop(handles);
    map.get_blocking(&1);
    map.insert_blocking(&2, 0);
    map.insert_blocking(&3, 0);
    assert!(!map.contains_key(&1), "after one round it can be evicted");
}

/// The numbers never shrink while several threads count, and add up in the end.
#[test]
fn numbers_only_grow_and_add_up() {
    const THREADS: u64 = 3;
    const EACH: u64 = 4000;
    let map: Map = LockMap::builder().max_values(32).shards(4).record_stats().build();
    let (done, removed) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let (map, done, removed) = (&map, &done, &removed);
        let watcher = scope.spawn(move || {
            let mut last = numbers(map);
            while !done.load(Relaxed) {
                let now = numbers(map);
                assert!(now.iter().zip(last).all(|(now, last)| *now >= last), "{now:?} after {last:?}");
                last = now;
            }
        });
        let threads: Vec<_> = (1..=THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    let mut random = Random(thread);
                    for round in 0..EACH {
                        let key = random.next(64);
                        match round % 4 {
                            0 => drop(map.get_blocking(&key)),
                            1 => drop(map.read_blocking(&key)),
                            2 => drop(map.get_or_insert_with_blocking(&key, || key)),
                            _ => _ = removed.fetch_add(map.remove_blocking(&key).is_some().into(), Relaxed),
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        done.store(true, Relaxed);
        watcher.join().unwrap();
    });
    let stats: Stats = map.stats().unwrap();
    assert_eq!(stats.hits() + stats.misses(), THREADS * EACH / 4 * 3);
    let gone = removed.into_inner() + stats.evictions(Evicted::Size);
    assert_eq!(stats.insertions(), gone + map.len() as u64);
}

/// A function that is called for an evicted value sees that eviction counted.
#[test]
fn on_evict_sees_its_eviction_counted() {
    let map = Arc::new_cyclic(|map: &std::sync::Weak<Map>| {
        let map = map.clone();
        LockMap::builder()
            .max_values(1)
            .shards(1)
            .record_stats()
            .on_evict(move |key, _, cause| {
                assert_eq!(map.upgrade().unwrap().stats().unwrap().evictions(cause), key + 1)
            })
            .build()
    });
    for key in 0..10 {
        map.insert_blocking(&key, key);
    }
    assert_eq!(map.stats().unwrap().evictions(Evicted::Size), 9);
}
