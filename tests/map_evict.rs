//! `on_evict`: what it is handed, when, and what happens if it panics or uses the map. And `evict_by_hand`: which
//! values are returned to be evicted, and how others wait for them.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread;

use futures_lite::future::block_on;
use keylatch::{Builder, Evicted, LockMap, table::MapKind};

mod common;
use common::{Bell, Fixed, Random, pending, poll, poll_with, ready};

type Map = LockMap<u64, String, Fixed>;
type Log = Arc<Mutex<Vec<(u64, String)>>>;

/// Builds a map of one shard, which logs the values that it evicts.
fn logged(most: usize) -> (Map, Log) {
    let log = Log::default();
    let evicted = Arc::clone(&log);
    let map = LockMap::builder().shards(1).max_values(most).on_evict(move |key, value, cause| {
        assert_eq!(cause, Evicted::Size);
        evicted.lock().unwrap().push((key, value));
    });
    (map.hasher(Fixed::default()).build(), log)
}

fn fill(map: &Map, keys: impl IntoIterator<Item = u64>) {
    for key in keys {
        map.insert_blocking(&key, key.to_string());
    }
}

/// Returns the keys in the log, and clears it.
fn keys(log: &Log) -> Vec<u64> {
    let entries = std::mem::take(&mut *log.lock().unwrap());
    entries.into_iter().inspect(|(key, value)| assert_eq!(value, &key.to_string())).map(|(key, _)| key).collect()
}

// ---- what it is handed --------------------------------------------------------------------------------------------

#[test]
fn evicted_values_are_handed_over_with_their_keys_in_order() {
    let (map, log) = logged(2);
    fill(&map, 1..=3);
    assert_eq!(keys(&log), [1]);
    map.get_blocking(&2);
    block_on(map.insert(&4, "4".into()));
    assert_eq!(keys(&log), [3]);
    map.write_blocking(&5).insert("5".into());
    assert_eq!(keys(&log), [4], "the hand went past 2, and cleared its mark");
    map.batch().insert(&6, "6".into()).insert(&7, "7".into()).commit_blocking().unwrap();
    assert_eq!(keys(&log).len(), 2);
    assert_eq!(map.len(), 2);
}

#[test]
fn only_evictions_are_handed_over() {
    let (map, log) = logged(4);
    fill(&map, 1..=4);
    map.remove_blocking(&1);
    map.insert_blocking(&2, "overwritten".into());
    map.insert_blocking(&2, "2".into());
    assert!(map.pop().is_some());
    map.retain(|&key, _| key != 2);
    map.clear();
    assert_eq!(map.len(), 0);
    fill(&map, 1..=4);
    drop(map);
    assert_eq!(keys(&log), []);

    // Without a bound, nothing is evicted.
    let map = LockMap::builder().hasher(Fixed::default()).on_evict(|_, _, _| panic!("no value is evicted")).build();
    fill(&map, 0..1000);
    assert_eq!(map.len(), 1000);
}

#[test]
fn a_smaller_bound_hands_over_the_excess() {
    let (map, log) = logged(100);
    fill(&map, 0..100);
    map.set_max_values(40);
    assert_eq!(keys(&log), (0..60).collect::<Vec<_>>());
}

#[test]
fn a_map_that_is_extended_hands_over_the_excess() {
    let (mut map, log) = logged(2);
    map.extend((0..5).map(|key| (key, key.to_string())));
    assert_eq!(keys(&log), [0, 1, 2]);
}

#[test]
fn recycled_keys_are_handed_over() {
    for recycle in [false, true] {
        let log = Arc::new(Mutex::new(Vec::new()));
        let evicted = Arc::clone(&log);
        let map: LockMap<String, u64> = LockMap::builder()
            .shards(1)
            .max_values(1)
            .recycle_keys(recycle)
            .on_evict(move |key, value, _| evicted.lock().unwrap().push((key, value)))
            .build();
        for round in 0..20 {
            map.insert_blocking(&format!("key {round}"), round);
            drop(map.write_blocking("other")); // makes and frees an entry, whose key may be recycled
        }
        let expected: Vec<_> = (0..19).map(|round| (format!("key {round}"), round)).collect();
        assert_eq!(*log.lock().unwrap(), expected);
        assert_eq!((map.len(), map.entries()), (1, 1));
    }
}

#[test]
fn the_last_function_takes_effect_and_the_hasher_can_be_set_later() {
    let count = Arc::new(AtomicUsize::new(0));
    let count_in = Arc::clone(&count);
    let builder: Builder<MapKind<String>, u64> = LockMap::<u64, String>::builder();
    let builder = builder.max_values(1).shards(1).on_evict(|_, _, _| panic!("it was replaced"));
    let builder = builder.on_evict(move |_, _, _| {
        count_in.fetch_add(1, Relaxed);
    });
    assert!(format!("{builder:?}").contains("on_evict: true"));
    let map = builder.hasher(std::hash::RandomState::new()).build();
    for key in 0..5 {
        map.insert_blocking(&key, String::new());
    }
    assert_eq!(count.load(Relaxed), 4);
}

// ---- when it is called --------------------------------------------------------------------------------------------

#[test]
fn it_is_called_when_all_keys_are_free_and_all_waiters_have_been_woken() {
    let ((bell, waker), map) = (Bell::new(), Arc::new(OnceLock::<Weak<Map>>::new()));
    let (seen, inside) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&map));
    let counted = Arc::clone(&seen);
    let built: Map = LockMap::builder()
        .shards(1)
        .hasher(Fixed::default())
        .max_values(1)
        .on_evict(move |key, _, _| {
            let map = inside.get().unwrap().upgrade().unwrap();
            assert_eq!((key, bell.take()), (1, 1));
            assert!(map.try_write(&3).is_some(), "the other key of the call is free");
            assert!(map.try_write(&1).is_some(), "the evicted key is free");
            counted.fetch_add(1, Relaxed);
        })
        .build();
    let built = Arc::new(built);
    map.set(Arc::downgrade(&built)).unwrap();
    fill(&built, [1]);
    let mut guards = built.write_many_blocking([&2, &3]);
    let mut waiter = Box::pin(built.write(&2));
    assert!(poll_with(&mut waiter, &waker).is_pending());
    guards.iter_mut().find(|guard| guard.key() == &2).unwrap().insert("2".into());
    drop(guards);
    assert_eq!(seen.load(Relaxed), 1);
    drop(poll(&mut waiter));
    assert_eq!(built.len(), 1);
}

#[test]
fn it_may_use_the_map() {
    let map = Arc::new(OnceLock::<Weak<Map>>::new());
    let inside = Arc::clone(&map);
    let built: Map = LockMap::builder()
        .shards(1)
        .hasher(Fixed::default())
        .max_values(3)
        .on_evict(move |key, value, _| {
            let map = inside.get().unwrap().upgrade().unwrap();
            assert!(!map.contains_key(&key));
            // Each insertion evicts another value, until an even key is evicted.
            if key % 2 == 1 {
                map.insert_blocking(&(key + 1001), value);
            }
            assert_eq!(map.for_each_value(|_, _, _| {}), 0);
        })
        .build();
    let built = Arc::new(built);
    map.set(Arc::downgrade(&built)).unwrap();
    fill(&built, 0..100);
    assert_eq!((built.len(), built.entries()), (3, 3));
}

#[test]
fn it_may_drop_the_last_reference_to_the_map_but_one() {
    type Owner = Mutex<Option<Arc<Map>>>;
    let owner = Arc::new(Owner::default());
    let inside = Arc::clone(&owner);
    let dropped = Arc::new(());
    let witness = Arc::clone(&dropped);
    let map: Map = LockMap::builder()
        .shards(1)
        .hasher(Fixed::default())
        .max_values(1)
        .on_evict(move |_, _, _| {
            let _ = &witness;
            drop(inside.lock().unwrap().take());
        })
        .build();
    let map = Arc::new(map);
    *owner.lock().unwrap() = Some(Arc::clone(&map));
    fill(&map, [1]);
    let mut guard = map.write_arc_blocking(&2);
    guard.insert("2".into());
    drop(map);
    drop(guard); // evicts 1: the guard has the only other reference to the map
    assert_eq!(Arc::strong_count(&dropped), 1, "the map is gone, with its function");
}

#[test]
fn a_value_whose_entry_a_future_keeps_is_evicted_when_the_future_is_done() {
    for polls in [false, true] {
        let (map, log) = logged(1);
        fill(&map, [1]);
        let mut future = Box::pin(map.read(&1));
        fill(&map, [2, 3]);
        assert_eq!((keys(&log), map.len()), (vec![2], 2), "the future needs the key");
        if polls {
            drop(poll(&mut future));
        }
        drop(future);
        assert_eq!((keys(&log), map.len(), map.entries()), (vec![3], 1, 1), "1 is the newest now");
        fill(&map, [4]);
        assert_eq!(keys(&log), [1]);
    }
}

#[test]
fn a_value_that_a_walk_visits_is_not_handed_over() {
    let (map, log) = logged(10);
    fill(&map, 0..10);
    let mut first = true;
    map.for_each_value(|key, value, _| {
        if std::mem::take(&mut first) {
            fill(&map, 100..110); // the walk keeps the entries of the first ten values
        }
        assert_eq!(value, &key.to_string());
    });
    assert_eq!((map.len(), map.entries()), (10, 10));
    assert_eq!(keys(&log).len(), 10);
}

// ---- panics -------------------------------------------------------------------------------------------------------

/// Builds a map whose `on_evict` panics for odd keys, and logs the others.
fn panicking(most: usize) -> (Map, Log) {
    let log = Log::default();
    let evicted = Arc::clone(&log);
    let map = LockMap::builder().shards(1).max_values(most).on_evict(move |key, value, _| {
        if key % 2 == 1 {
            resume_unwind(Box::new(key));
        }
        evicted.lock().unwrap().push((key, value));
    });
    (map.hasher(Fixed::default()).build(), log)
}

#[test]
fn a_panic_loses_one_value_and_leaves_the_map_in_order() {
    let (map, log) = panicking(100);
    fill(&map, 0..100);
    let panic = catch_unwind(AssertUnwindSafe(|| map.set_max_values(10))).unwrap_err();
    assert_eq!(*panic.downcast::<u64>().unwrap(), 1, "the first panic resumes");
    assert_eq!(keys(&log), (0..90).step_by(2).collect::<Vec<_>>());
    assert_eq!((map.len(), map.entries()), (10, 10));
    // Each value is lost or handed over, and the insertions stand.
    for key in 100..200 {
        let _ = catch_unwind(AssertUnwindSafe(|| map.insert_blocking(&key, key.to_string())));
        assert_eq!((map.len(), map.entries(), map.contains_key(&key)), (10, 10, true));
    }
    assert_eq!(keys(&log), (90..190).step_by(2).collect::<Vec<_>>());
    assert_eq!(map.clear(), 0);
}

#[test]
fn a_panic_while_the_thread_is_panicking_is_contained() {
    let (map, _) = panicking(1);
    fill(&map, [1]);
    let panic = catch_unwind(AssertUnwindSafe(|| {
        let mut guard = map.write_blocking(&2);
        guard.insert("2".into());
        resume_unwind(Box::new("the first panic"));
    }));
    assert_eq!(*panic.unwrap_err().downcast::<&str>().unwrap(), "the first panic");
    assert_eq!((map.len(), map.entries()), (1, 1));
    assert!(map.try_write(&2).is_some());
}

#[test]
fn an_old_value_is_not_leaked_by_a_panic() {
    let value = Arc::new(());
    let map: LockMap<u64, Arc<()>> =
        LockMap::builder().shards(1).max_values(2).on_evict(|_, _, _| resume_unwind(Box::new(()))).build();
    for key in [1, 2] {
        map.insert_blocking(&key, Arc::clone(&value));
    }
    let reader = map.read_blocking(&1);
    // 1 is in use, so 2 is evicted.
    let panic = catch_unwind(AssertUnwindSafe(|| map.insert_blocking(&3, Arc::clone(&value))));
    assert!(panic.is_err());
    drop(reader);
    assert_eq!((map.len(), Arc::strong_count(&value)), (2, 3));
}

// ---- threads ------------------------------------------------------------------------------------------------------

#[test]
fn every_value_is_handed_over_once_or_taken_once() {
    struct Value(Arc<AtomicUsize>);
    impl Drop for Value {
        fn drop(&mut self) {
            self.0.fetch_add(1, Relaxed);
        }
    }
    const EACH: u64 = 3000;
    let (made, dropped, evicted) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&evicted);
    let map: LockMap<u64, Value> = LockMap::builder()
        .shards(2)
        .max_values(16)
        .on_evict(move |_, _, _| {
            counted.fetch_add(1, Relaxed);
        })
        .build();
    let taken = AtomicUsize::new(0);
    thread::scope(|scope| {
        for thread in 0..4 {
            let (map, made, dropped, taken) = (&map, &made, &dropped, &taken);
            scope.spawn(move || {
                for round in 0..EACH {
                    let key = (round * 7 + thread * 13) % 64;
                    let old = match round % 3 {
                        0 => map.remove_blocking(&key),
                        1 => {
                            made.fetch_add(1, Relaxed);
                            map.write_blocking(&key).insert(Value(Arc::clone(dropped)))
                        }
                        _ => {
                            made.fetch_add(1, Relaxed);
                            map.insert_blocking(&key, Value(Arc::clone(dropped)))
                        }
                    };
                    taken.fetch_add(usize::from(old.is_some()), Relaxed);
                }
            });
        }
    });
    let left = map.len();
    assert!(left <= 16 && evicted.load(Relaxed) > 0);
    assert_eq!(taken.load(Relaxed) + evicted.load(Relaxed) + left, made.load(Relaxed));
    drop(map);
    assert_eq!(dropped.load(Relaxed), made.load(Relaxed));
}

// ---- evict_by_hand ------------------------------------------------------------------------------------------------

type Numbers = LockMap<u64, u64, Fixed>;

/// Builds a map of one shard that is evicted by hand, with values for these keys.
fn by_hand(most: usize, keys: impl IntoIterator<Item = u64>) -> Numbers {
    let map = LockMap::builder().shards(1).max_values(most).evict_by_hand().hasher(Fixed::default()).build();
    for key in keys {
        map.insert_blocking(&key, 10 * key);
    }
    map
}

/// Returns the key of the next value to evict, and drops the guard.
fn next(map: &Numbers) -> Option<u64> {
    map.try_next_eviction().map(|guard| *guard.key())
}

#[test]
fn without_a_bound_building_fails_with_a_message_that_names_both_settings() {
    let refused = catch_unwind(|| LockMap::<u64, u64>::builder().evict_by_hand().build()).unwrap_err();
    let message = refused.downcast_ref::<&str>().copied().unwrap();
    assert!(message.contains("evict_by_hand") && message.contains("max_values"), "{message}");
}

#[test]
fn the_map_itself_evicts_nothing_and_counts_the_excess() {
    for shards in [1, 4] {
        let builder = LockMap::builder().shards(shards).max_values(10).evict_by_hand().hasher(Fixed::default());
        let mut map: Numbers = builder.on_evict(|_, _, _| panic!("the map evicts nothing")).build();
        let check = |map: &Numbers, len: usize| {
            assert_eq!((map.len(), map.excess()), (len, len.saturating_sub(map.max_values().unwrap())));
        };
        for key in 0..100 {
            match key % 5 {
                0 => _ = map.insert_blocking(&key, key),
                1 => _ = block_on(map.insert(&key, key)),
                2 => _ = map.write_blocking(&key).insert(key),
                3 => drop(map.get_or_insert_with_blocking(&key, || key)),
                _ => drop(map.batch().insert(&key, key).commit_blocking().unwrap()),
            }
            check(&map, key as usize + 1);
        }
        map.extend((100..110).map(|key| (key, key)));
        check(&map, 110);
        map.insert_blocking(&0, 7);
        *map.write_blocking(&0).value_slot() = Some(8);
        check(&map, 110);
        map.remove_blocking(&0);
        map.write_blocking(&1).remove();
        map.batch().remove(&2).commit_blocking().unwrap();
        assert!(map.pop().is_some());
        map.retain(|key, _| *key < 100);
        let left = map.len();
        check(&map, left);
        map.set_max_values(20);
        check(&map, left);
        assert_eq!(map.excess(), left - 20);
        map.clear();
        check(&map, 0);
    }
}

#[test]
fn a_map_that_evicts_by_itself_has_an_excess_of_values_in_use() {
    let map: Numbers = LockMap::builder().shards(1).max_values(2).hasher(Fixed::default()).build();
    assert_eq!(map.excess(), 0);
    let guards = map.write_many_blocking([&1, &2, &3, &4]);
    let guards = guards.into_iter().map(|mut guard| {
        guard.insert(7);
        guard
    });
    let guards: Vec<_> = guards.collect();
    assert_eq!((map.len(), map.excess()), (4, 2));
    assert!(map.try_next_eviction().is_none(), "all are in use");
    drop(guards);
    assert_eq!((map.len(), map.excess()), (2, 0));
    assert!(map.try_next_eviction().is_some());

    let unbounded: Numbers = (0..10).map(|key| (key, key)).collect();
    assert!((unbounded.excess(), unbounded.try_next_eviction().is_none()) == (0, true));
}

/// A pop takes the value that would be evicted next, as `map_pop.rs` shows.
#[test]
fn the_next_value_is_the_one_that_a_pop_would_take() {
    let mut random = Random(7);
    for _ in 0..200 {
        // The keys of evicted values are remembered by their hashes, so both maps have the same hasher.
        let hasher = std::hash::RandomState::new();
        let builder = || LockMap::<u64, u64>::builder().shards(1).max_values(8).evict_by_hand();
        let [popped, held] = [(); 2].map(|()| builder().hasher(hasher.clone()).build());
        for _ in 0..60 {
            let key = random.next(16);
            if random.next(2) == 0 {
                assert_eq!(popped.get_blocking(&key), held.get_blocking(&key));
                continue;
            }
            for map in [&popped, &held] {
                map.insert_blocking(&key, 10 * key);
            }
            if popped.excess() > 0 {
                let mut guard = held.try_next_eviction().unwrap();
                assert_eq!(Some((*guard.key(), guard.remove().unwrap())), popped.pop());
            }
        }
    }
}

#[test]
fn a_guard_that_is_dropped_unchanged_gives_the_value_another_round() {
    let map = by_hand(3, 1..=5);
    let rounds: Vec<_> = std::iter::from_fn(|| next(&map)).take(12).collect();
    assert_eq!(rounds, [1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1, 2]);
    map.try_next_eviction().unwrap().remove();
    assert_eq!((map.contains_key(&3), map.excess()), (false, 1));
    assert_eq!(next(&map), Some(4));
    map.insert_blocking(&6, 60);
    assert_eq!([next(&map), next(&map), next(&map)], [Some(5), Some(6), Some(1)]);
}

#[test]
fn a_used_value_is_passed_over_once() {
    let map = by_hand(3, 1..=3);
    for key in [1, 2] {
        map.get_blocking(&key);
    }
    assert_eq!([next(&map), next(&map), next(&map)], [Some(3), Some(1), Some(2)]);
    for key in 1..=3 {
        map.get_blocking(&key);
    }
    assert_eq!(next(&map), Some(3), "all were used: it goes round, and back to where it began");
    // The guards did not count as uses of their values. 1 and 2 were used for the second time, so they have a pass.
    assert_eq!([next(&map), next(&map), next(&map)], [Some(3), Some(1), Some(2)]);
}

#[test]
fn a_value_in_use_is_not_returned() {
    let map = Arc::new(by_hand(1, 1..=6));
    let reader = map.read_blocking(&1);
    let handle = map.handle_arc(&2);
    let writer = map.write_blocking(&3);
    let mut waiter = Box::pin(map.read(&3));
    pending(&mut waiter);
    let mut unpolled = map.read(&4);
    let guards: Vec<_> = std::iter::from_fn(|| map.try_next_eviction()).collect();
    let mut keys: Vec<_> = guards.iter().map(|guard| *guard.key()).collect();
    keys.sort_unstable();
    assert_eq!(keys, [4, 5, 6], "a future that was not polled does not use the value");
    pending(&mut unpolled);
    drop(guards);
    drop((ready(unpolled), reader, handle, waiter, writer));
    let guards: Vec<_> = std::iter::from_fn(|| map.try_next_eviction()).collect();
    assert_eq!(guards.len(), 6);
}

#[test]
fn others_wait_for_a_value_that_is_being_evicted() {
    for removes in [false, true] {
        let map = by_hand(1, [1]);
        let mut guard = map.try_next_eviction().unwrap();
        let (mut get, mut read) = (Box::pin(map.get(&1)), Box::pin(map.read(&1)));
        let mut make = Box::pin(map.get_or_insert_with(&1, async || 7));
        pending(&mut get);
        pending(&mut read);
        pending(&mut make);
        assert!(map.contains_key(&1) && map.try_next_eviction().is_none() && map.pop().is_none());
        assert_eq!((map.retain(|_, _| false), map.len()), (1, 1));
        if removes {
            assert_eq!(guard.remove(), Some(10));
        }
        drop(guard);
        let expected = (!removes).then_some(10);
        assert_eq!(ready(get), expected);
        assert_eq!(ready(read).value().copied(), expected);
        assert_eq!(*ready(make).value().unwrap(), expected.unwrap_or(7));
    }
}

#[test]
fn the_guard_has_all_the_methods_of_a_writer() {
    let map = Arc::new(by_hand(1, 1..=2));
    let mut before = None;
    map.for_each_value(|key, _, version| before = (*key == 1).then_some(version).or(before));
    let mut guard = map.try_next_eviction_arc().unwrap();
    assert_eq!((*guard.key(), guard.version()), (1, before));
    *guard.value_mut().unwrap() += 1;
    assert!(guard.version() > before);
    let reader = guard.downgrade();
    assert_eq!(map.get_blocking(&1), Some(11));
    let other = thread::spawn({
        let map = Arc::clone(&map);
        move || map.try_next_eviction_arc().map(|mut guard| (*guard.key(), guard.remove()))
    });
    assert_eq!(other.join().unwrap(), Some((2, Some(20))));
    drop(reader);
    assert_eq!((map.len(), map.entries(), map.excess()), (1, 1, 0));
}

#[test]
fn shards_take_turns() {
    let map: Numbers = LockMap::builder().shards(4).max_values(4).evict_by_hand().hasher(Fixed::default()).build();
    for key in 0..400 {
        map.insert_blocking(&key, key);
    }
    let mut evicted = 0;
    while map.excess() > 0 {
        map.try_next_eviction().unwrap().remove();
        evicted += 1;
    }
    assert_eq!((evicted, map.len()), (396, 4));
    while map.try_next_eviction().is_some_and(|mut guard| guard.remove().is_some()) {}
    assert_eq!((map.len(), map.entries()), (0, 0));
}

/// The map is a cache of counters in front of a store. If a value were lost, or read from the store while a newer one
/// is in the cache, counts would be missing.
#[test]
fn a_cache_in_front_of_a_store_loses_nothing() {
    const THREADS: u64 = 4;
    const EACH: u64 = 3000;
    let map: Numbers = LockMap::builder().shards(2).max_values(8).evict_by_hand().hasher(Fixed::default()).build();
    let store = Mutex::new(HashMap::<u64, u64>::new());
    let evict = |goal: usize| {
        while map.excess() > goal {
            let Some(mut guard) = map.try_next_eviction() else { return };
            let key = *guard.key();
            if key % 5 == 0 && guard.value().is_some_and(|value| value % 7 == 0) {
                return; // as if the store had failed
            }
            store.lock().unwrap().insert(key, *guard.value().unwrap());
            thread::yield_now();
            guard.remove();
        }
    };
    thread::scope(|scope| {
        for thread in 1..=THREADS {
            let (map, store, evict) = (&map, &store, &evict);
            scope.spawn(move || {
                let mut random = Random(thread);
                for _ in 0..EACH {
                    let key = random.next(40);
                    let mut guard = map.write_blocking(&key);
                    *guard.get_or_insert_with(|| store.lock().unwrap().get(&key).copied().unwrap_or(0)) += 1;
                    drop(guard);
                    evict(0);
                }
            });
        }
    });
    assert!(!store.lock().unwrap().is_empty());
    let mut store = store.into_inner().unwrap();
    store.extend(map);
    assert_eq!(store.values().sum::<u64>(), THREADS * EACH);
}
