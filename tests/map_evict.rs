//! `on_evict`: what it is handed, when, and what happens if it panics or uses the map.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread;

use futures_lite::future::block_on;
use keylatch::{Builder, Evicted, LockMap, table::MapKind};

mod common;
use common::{Bell, poll, poll_with};

type Map = LockMap<u64, String>;
type Log = Arc<Mutex<Vec<(u64, String)>>>;

/// Builds a map of one shard, which logs the values that it evicts.
fn logged(most: usize) -> (Map, Log) {
    let log = Log::default();
    let evicted = Arc::clone(&log);
    let map = LockMap::builder().shards(1).max_values(most).on_evict(move |key, value, cause| {
        assert_eq!(cause, Evicted::Size);
        evicted.lock().unwrap().push((key, value));
    });
    (map.build(), log)
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

    // Nothing is evicted without a bound.
    let map = LockMap::builder().on_evict(|_, _, _| panic!("no value is evicted")).build();
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
            fill(&map, 100..110); // the walk keeps the entries of the ten first values
        }
        assert_eq!(value, &key.to_string());
    });
    assert_eq!((map.len(), map.entries()), (10, 10));
    assert_eq!(keys(&log).len(), 10);
}

// ---- panics -------------------------------------------------------------------------------------------------------

/// A map that panics for odd keys, and logs the others.
fn panicking(most: usize) -> (Map, Log) {
    let log = Log::default();
    let evicted = Arc::clone(&log);
    let map = LockMap::builder().shards(1).max_values(most).on_evict(move |key, value, _| {
        if key % 2 == 1 {
            resume_unwind(Box::new(key));
        }
        evicted.lock().unwrap().push((key, value));
    });
    (map.build(), log)
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
