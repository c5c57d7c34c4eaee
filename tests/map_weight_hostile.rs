//! Values that are weighed, by functions that panic, answer at random, or use the map.

#![allow(dropping_copy_types, clippy::type_complexity)] // many calls are made only for their effect

mod common;
#[path = "common/panics.rs"]
mod panics;

use std::cell::Cell;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use common::Random;
use keylatch::{LockMap, ManualClock};
use panics::{Expected, Operation, panics};

type Map = LockMap<String, u64>;

fn operations() -> impl Iterator<Item = (&'static str, Operation)> {
    let more: [(_, Operation); 2] = [
        ("refresh", |map| drop(map.get_or_refresh_with_blocking("a", Duration::ZERO, || 3))),
        ("set the bound", |map| map.set_max_weight(1)),
    ];
    panics::operations().into_iter().chain(more)
}

#[test]
fn a_function_that_panics_leaves_the_value_its_weight_and_no_key_locked() {
    for (name, operation) in operations() {
        for after in 1.. {
            let calls = Arc::new(AtomicUsize::new(usize::MAX));
            let counted = Arc::clone(&calls);
            let weigh = move |_: &String, _: &u64| {
                if counted.fetch_sub(1, Relaxed) == 1 {
                    resume_unwind(Box::new(Expected));
                }
                1
            };
            let map: Map = LockMap::builder().max_weight(100, weigh).record_ages().build();
            map.insert_blocking("a", 1);
            map.insert_blocking("b", 2);
            calls.store(after, Relaxed);
            let panicked = panics(|| operation(&map));
            calls.store(usize::MAX, Relaxed);
            // Whether the function has panicked for a value or not, the value weighs 1.
            assert_eq!(map.weight(), map.len() as u64, "{name}, with a panic of call {after}");
            for key in ["a", "b", "c", "d"] {
                assert!(!map.is_locked(key), "{name} has left a key locked");
                map.insert_blocking(key, 70);
                assert_eq!(map.get_blocking(key), Some(70));
            }
            map.set_max_weight(3);
            assert!(map.len() <= 3 && map.weight() == map.len() as u64);
            assert_eq!((map.clear(), map.weight(), map.entries()), (0, 0, 0));
            if !panicked {
                break;
            }
        }
    }
}

#[test]
fn a_panic_of_the_function_reaches_the_caller_once_and_the_value_stays() {
    let weigh = |_: &String, &value: &u64| {
        if value == 0 {
            resume_unwind(Box::new(Expected));
        }
        value as u32
    };
    let map: Map = LockMap::builder().max_weight(10, weigh).build();
    assert!(panics(|| drop(map.insert_blocking("a", 0))));
    assert_eq!((map.get_blocking("a"), map.weight()), (Some(0), 1), "a new value weighs 1");
    map.insert_blocking("a", 7);
    let mut writer = map.write_blocking("a");
    *writer.value_mut().unwrap() = 0;
    assert!(panics(|| drop(writer.downgrade())));
    assert_eq!((map.get_blocking("a"), map.weight()), (Some(0), 7), "a changed value keeps its weight");
    drop(map.write_blocking("a")); // has not changed since
    let mut map = map;
    std::mem::forget(map.write_blocking("b"));
    assert!(panics(|| map.extend([("b".to_owned(), 0)])));
    assert_eq!((map.weight(), map.len()), (8, 2));
}

/// Returns a random weight: the largest and the smallest weights more often than others.
fn at_random(random: &Mutex<Random>) -> u32 {
    let mut random = random.lock().unwrap();
    match random.next(8) {
        0 => 0,
        1 => u32::MAX,
        2 => u32::MAX - 1,
        _ => random.next(40) as u32,
    }
}

#[test]
fn answers_that_differ_each_time_harm_nobody() {
    for (most, shards) in [(1, 1), (100, 1), (100, 4), (u64::from(u32::MAX) * 3, 1), (u64::MAX, 2)] {
        let random = Arc::new(Mutex::new(Random(most)));
        let weigher = Arc::clone(&random);
        let map: Map = LockMap::builder()
            .max_weight(most, move |_, _| at_random(&weigher))
            .shards(shards)
            .record_ages()
            .clock(Arc::new(ManualClock::new()))
            .build();
        for round in 0..300 {
            let held = map.get_or_insert_with_blocking("held", || 1);
            for (name, operation) in operations() {
                operation(&map);
                map.insert_blocking(&format!("{round}"), round);
                map.set_max_weight(most);
                let used = map.weight() > most;
                assert!(!used || map.contains_key("held"), "after {name}");
            }
            drop(held);
            assert!(map.weight() <= most);
        }
        assert_eq!((map.clear(), map.weight(), map.entries()), (0, 0, 0));
    }
}

/// A function that uses the map that it belongs to.
type Use = fn(&Map);

thread_local! {
    static MEDDLES: Cell<bool> = const { Cell::new(false) };
}

/// Uses the map, but not from within such a use.
fn meddle(map: &OnceLock<Weak<Map>>, uses: Use) {
    if !MEDDLES.replace(true) {
        map.get().and_then(Weak::upgrade).iter().for_each(|map| uses(map));
        MEDDLES.set(false);
    }
}

#[test]
fn the_function_may_use_the_map() {
    let uses: [Use; 9] = [
        |map| drop(map.insert_blocking("other", 1)),
        |map| drop(map.get_blocking("other")),
        |map| drop(map.weight()),
        |map| drop(map.len()),
        |map| drop(map.pop()),
        |map| map.set_max_weight(5),
        |map| drop(map.clear()),
        |map| drop(map.for_each_value(|_, _, _| {})),
        |map| drop(map.try_write("a")),
    ];
    for uses in uses {
        for (name, operation) in operations() {
            let cell = Arc::new(OnceLock::new());
            let (one, two) = (Arc::clone(&cell), Arc::clone(&cell));
            let map: Arc<Map> = Arc::new(
                LockMap::builder()
                    .max_weight(24, move |_, &value| {
                        // The values that a call holds fit beside those that `uses` stores.
                        meddle(&one, uses);
                        value as u32
                    })
                    .on_evict(move |_, _, _| meddle(&two, uses))
                    .record_ages()
                    .build(),
            );
            assert!(cell.set(Arc::downgrade(&map)).is_ok());
            for n in 0..5 {
                map.insert_blocking(&format!("{n}"), 10 + n);
                operation(&map);
            }
            assert!(["a", "b", "c", "d", "other"].iter().all(|key| !map.is_locked(*key)));
            let mut sum = 0;
            assert_eq!(map.for_each_value(|_, value, _| sum += value), 0);
            assert!(map.weight() == sum && Some(sum) <= map.max_weight(), "{name}");
        }
    }
}

/// A value that panics when it is dropped.
struct Bomb(Arc<AtomicUsize>);

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
        resume_unwind(Box::new(Expected));
    }
}

#[test]
fn a_drop_that_panics_does_not_keep_the_others_from_being_evicted() {
    let drops = Arc::new(AtomicUsize::new(0));
    let map: LockMap<u64, Bomb> = LockMap::builder().max_weight(100, |&key, _| key as u32).build();
    for key in 1..=10 {
        map.insert_blocking(&key, Bomb(Arc::clone(&drops)));
    }
    assert!(panics(|| map.set_max_weight(10)));
    assert_eq!((drops.load(Relaxed), map.len(), map.weight()), (9, 1, 10));
    assert!(panics(|| drop(map.insert_blocking(&20, Bomb(Arc::clone(&drops)))))); // too heavy
    assert!(panics(|| drop(map.insert_blocking(&9, Bomb(Arc::clone(&drops))))));
    assert_eq!((drops.load(Relaxed), map.len(), map.weight()), (11, 1, 9));
    map.into_iter().for_each(|(_, bomb)| std::mem::forget(bomb));
}
