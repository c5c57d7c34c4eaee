//! Values that end, with a clock, functions, keys and values that panic, go backward, or use the map.

#![allow(dropping_copy_types, clippy::type_complexity)] // many calls are made only for their effect

#[path = "common/panics.rs"]
mod panics;

use std::cell::Cell;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use keylatch::{Clock, Evicted, LockMap, ManualClock};
use panics::{Expected, operations, panics};

type Map = LockMap<String, u64>;

const SECOND: Duration = Duration::from_secs(1);

/// A clock that panics when it is read for the `after`-th time, and whenever the thread that reads it is panicking.
struct Panicking {
    time: ManualClock,
    after: AtomicUsize,
}

impl Clock for Panicking {
    fn now(&self) -> Duration {
        if std::thread::panicking() || self.after.fetch_sub(1, Relaxed) == 1 {
            resume_unwind(Box::new(Expected));
        }
        self.time.now()
    }
}

/// Checks that a map works, and that no key is locked.
fn assert_sound(map: &Map, what: &str) {
    for key in ["a", "b", "c", "d"] {
        assert!(!map.is_locked(key), "{what} has left a key locked");
        map.insert_blocking(key, 70);
        assert_eq!(map.get_blocking(key), Some(70));
    }
    assert!(map.len() <= 4);
}

#[test]
fn a_clock_that_panics_leaves_no_key_locked() {
    for (name, operation) in operations() {
        for passes in [false, true] {
            for after in 1.. {
                let clock = Arc::new(Panicking { time: ManualClock::new(), after: AtomicUsize::new(0) });
                let map: Map = LockMap::builder()
                    .time_to_live(10 * SECOND)
                    .max_values(100)
                    .shards(1)
                    .clock(Arc::clone(&clock))
                    .build();
                map.insert_blocking("a", 1);
                map.insert_blocking("b", 2);
                if passes {
                    clock.time.advance(10 * SECOND);
                }
                clock.after.store(after, Relaxed);
                let panicked = panics(|| operation(&map));
                clock.after.store(0, Relaxed);
                let what = format!("{name}, with a panic at the clock's reading {after}");
                assert_sound(&map, &what);
                clock.time.advance(10 * SECOND);
                assert_eq!(map.tick(), None);
                assert_eq!((map.len(), map.entries()), (0, 0), "{what}");
                if !panicked {
                    assert!(after > 1 || name == "pop", "{name} does not read the clock");
                    break;
                }
            }
        }
    }
}

#[test]
fn a_clock_that_panics_while_a_map_is_extended_leaves_no_key_locked() {
    let clock = Arc::new(Panicking { time: ManualClock::new(), after: AtomicUsize::new(0) });
    let mut map: Map = LockMap::builder().time_to_live(10 * SECOND).clock(Arc::clone(&clock)).build();
    for after in 1.. {
        clock.after.store(after, Relaxed);
        let panicked = panics(|| map.extend([("a".to_owned(), 1)]));
        clock.after.store(0, Relaxed);
        assert!(!map.is_locked("a"));
        if !panicked {
            return assert_eq!((after > 1, map.get_blocking("a")), (true, Some(1)));
        }
    }
}

#[test]
fn a_clock_that_panics_for_one_reader_does_not_end_the_value_of_another() {
    let clock = Arc::new(Panicking { time: ManualClock::new(), after: AtomicUsize::new(0) });
    let map: Map = LockMap::builder().time_to_live(10 * SECOND).clock(Arc::clone(&clock)).build();
    map.insert_blocking("a", 1);
    let reader = map.read_blocking("a");
    clock.after.store(1, Relaxed);
    assert!(panics(|| drop(map.read_blocking("a"))));
    clock.time.advance(10 * SECOND);
    assert_eq!((map.peek_blocking("a"), reader.value()), (Some(1), Some(&1)));
    drop(reader);
    assert_eq!(map.peek_blocking("a"), None);
}

#[test]
fn a_function_that_panics_leaves_the_value_and_no_key_locked() {
    for (name, operation) in operations() {
        for after in 1.. {
            let clock = Arc::new(ManualClock::new());
            let calls = Arc::new(AtomicUsize::new(usize::MAX));
            let counted = Arc::clone(&calls);
            let map: Map = LockMap::builder()
                .expire_with(move |_, _| {
                    if counted.fetch_sub(1, Relaxed) == 1 {
                        resume_unwind(Box::new(Expected));
                    }
                    Some(10 * SECOND)
                })
                .clock(Arc::clone(&clock))
                .build();
            map.insert_blocking("a", 1);
            map.insert_blocking("b", 2);
            calls.store(after, Relaxed);
            let panicked = panics(|| operation(&map));
            calls.store(usize::MAX, Relaxed);
            assert_sound(&map, &format!("{name}, with a panic of call {after}"));
            clock.advance(10 * SECOND);
            assert!(map.is_empty());
            if !panicked {
                break;
            }
        }
    }
    // The panic reaches the caller, and the value stays.
    let map: Map = LockMap::builder().expire_with(|_, _| resume_unwind(Box::new(Expected))).build();
    assert!(panics(|| drop(map.insert_blocking("a", 1))));
    assert_eq!((map.get_blocking("a"), map.tick()), (Some(1), None));
}

#[test]
fn a_clock_that_goes_backward_brings_no_value_back() {
    let clock = Arc::new(ManualClock::new());
    let map: Map = LockMap::builder().time_to_live(10 * SECOND).clock(Arc::clone(&clock)).shards(1).build();
    map.insert_blocking("a", 1);
    clock.advance(10 * SECOND);
    assert!(!map.contains_key("a")); // a look, which disposes of nothing
    clock.set(Duration::ZERO);
    assert_eq!((map.len(), map.get_blocking("a")), (0, None));
    map.insert_blocking("a", 2); // at the latest time that the map knows
    clock.set(19 * SECOND);
    assert_eq!(map.get_blocking("a"), Some(2));
    clock.set(SECOND);
    assert_eq!(map.get_blocking("a"), Some(2));
    clock.set(20 * SECOND);
    assert_eq!(map.get_blocking("a"), None);

    map.insert_blocking("a", 3);
    clock.set(Duration::MAX);
    assert_eq!(map.get_blocking("a"), None);
    map.insert_blocking("a", 4); // lives for ever: there is no later time
    assert_eq!((map.get_blocking("a"), map.len()), (Some(4), 1));
}

/// A function that uses the map that it belongs to.
type Use = fn(&Map);

/// A clock that uses its map when it is read, except when it is read from within such a use.
struct Meddling {
    map: Arc<OnceLock<Weak<Map>>>,
    uses: Use,
}

thread_local! {
    static MEDDLES: Cell<bool> = const { Cell::new(false) };
}

fn meddle(map: &OnceLock<Weak<Map>>, uses: Use) {
    if !MEDDLES.replace(true) {
        map.get().and_then(Weak::upgrade).iter().for_each(|map| uses(map));
        MEDDLES.set(false);
    }
}

impl Clock for Meddling {
    fn now(&self) -> Duration {
        meddle(&self.map, self.uses);
        Duration::from_secs(1)
    }
}

#[test]
fn a_clock_and_functions_may_use_the_map() {
    let uses: [Use; 6] = [
        |map| drop(map.insert_blocking("other", 1)),
        |map| drop(map.get_blocking("other")),
        |map| drop(map.tick()),
        |map| drop(map.len()),
        |map| drop(map.for_each_value(|_, _, _| {})),
        |map| drop(map.try_write("a")),
    ];
    for uses in uses {
        for (_, operation) in operations() {
            let cell = Arc::new(OnceLock::new());
            let (one, two, three) = (Arc::clone(&cell), Arc::clone(&cell), Arc::clone(&cell));
            let map: Arc<Map> = Arc::new(
                LockMap::builder()
                    .shards(1)
                    .max_values(2)
                    .expire_with(move |_, value| {
                        meddle(&one, uses);
                        (value % 3 > 0).then_some(Duration::ZERO)
                    })
                    .on_evict(move |_, _, _| meddle(&two, uses))
                    .clock(Meddling { map: three, uses })
                    .build(),
            );
            assert!(cell.set(Arc::downgrade(&map)).is_ok());
            for n in 0..5 {
                map.insert_blocking(&format!("{n}"), n);
                operation(&map);
            }
            assert!(["a", "b", "c", "d", "other"].iter().all(|key| !map.is_locked(*key)));
        }
    }
}

/// A value that uses its own key when it is dropped.
struct Meets(Weak<LockMap<String, Meets>>, Arc<AtomicUsize>);

impl Drop for Meets {
    fn drop(&mut self) {
        let Some(map) = self.0.upgrade() else { return };
        assert!(map.try_write("a").is_some(), "an ended value is dropped while its key is held");
        self.1.fetch_add(1, Relaxed);
    }
}

#[test]
fn ended_values_are_dropped_with_no_lock_held() {
    let dispose: [fn(&LockMap<String, Meets>); 5] = [
        |map| drop(map.tick()),
        |map| drop(map.read_blocking("a")),
        |map| drop(map.write_blocking("a")),
        |map| drop(map.remove_blocking("a")),
        |map| drop(map.read_many_blocking(["a", "b"])),
    ];
    for (number, dispose) in dispose.into_iter().enumerate() {
        let (clock, drops) = (Arc::new(ManualClock::new()), Arc::new(AtomicUsize::new(0)));
        let map: Arc<LockMap<String, Meets>> =
            Arc::new(LockMap::builder().time_to_live(SECOND).clock(Arc::clone(&clock)).build());
        map.insert_blocking("a", Meets(Arc::downgrade(&map), Arc::clone(&drops)));
        clock.advance(SECOND);
        dispose(&map);
        assert_eq!((drops.load(Relaxed), map.entries()), (1, 0), "way {number}");

        // A writer's value takes the place of the one that has ended.
        map.insert_blocking("a", Meets(Arc::downgrade(&map), Arc::clone(&drops)));
        clock.advance(SECOND);
        let mut writer = map.write_blocking("a");
        assert!(writer.insert(Meets(Weak::new(), Arc::clone(&drops))).is_none());
        assert_eq!(drops.load(Relaxed), 1);
        drop(writer);
        assert_eq!(drops.load(Relaxed), 2);
    }
}

#[test]
fn a_panic_of_on_evict_loses_one_value_only() {
    let (clock, told) = (Arc::new(ManualClock::new()), Arc::new(Mutex::new(Vec::new())));
    let tells = Arc::clone(&told);
    let map: Map = LockMap::builder()
        .time_to_live(SECOND)
        .shards(1)
        .clock(Arc::clone(&clock))
        .on_evict(move |key, value, cause| {
            assert_eq!(cause, Evicted::Expired);
            tells.lock().unwrap().push((key, value));
            if value == 2 {
                resume_unwind(Box::new(Expected));
            }
        })
        .build();
    for (key, value) in [("a", 1), ("b", 2), ("c", 3)] {
        map.insert_blocking(key, value);
    }
    clock.advance(SECOND);
    assert!(panics(|| drop(map.tick())));
    let mut told = std::mem::take(&mut *told.lock().unwrap());
    told.sort_unstable();
    assert_eq!(told, [("a".to_string(), 1), ("b".to_string(), 2), ("c".to_string(), 3)]);
    assert_eq!(map.entries(), 0);
    assert_sound(&map, "a panic of on_evict");
}

#[derive(PartialEq, Eq, Hash, Debug)]
struct Key(u64);

thread_local! {
    /// The number of clones of a key until this thread panics in one; 0 if it does not panic.
    static PANICS_AT: Cell<usize> = const { Cell::new(0) };
}

impl Clone for Key {
    fn clone(&self) -> Self {
        let left = PANICS_AT.get();
        PANICS_AT.set(left.saturating_sub(1));
        if left == 1 {
            resume_unwind(Box::new(Expected));
        }
        Key(self.0)
    }
}

#[test]
fn a_clone_of_a_key_that_panics_leaves_the_ended_value_to_be_handed_over() {
    let (clock, told) = (Arc::new(ManualClock::new()), Arc::new(AtomicUsize::new(0)));
    let tells = Arc::clone(&told);
    let map: LockMap<Key, Box<u64>> = LockMap::builder()
        .time_to_live(SECOND)
        .clock(Arc::clone(&clock))
        .on_evict(move |_, _, _| {
            tells.fetch_add(1, Relaxed);
        })
        .build();
    map.insert_blocking(&Key(1), Box::new(7));
    clock.advance(SECOND);
    let mut writer = map.write_blocking(&Key(1));
    PANICS_AT.set(1);
    assert!(panics(|| drop(writer.insert(Box::new(8)))));
    assert_eq!((writer.value(), told.load(Relaxed)), (None, 0));
    drop(writer);
    assert_eq!((map.entries(), told.load(Relaxed)), (0, 1));
}

#[test]
fn a_batch_changes_nothing_if_the_clone_of_a_key_panics() {
    let (clock, told) = (Arc::new(ManualClock::new()), Arc::new(AtomicUsize::new(0)));
    let tells = Arc::clone(&told);
    let map: LockMap<Key, u64> = LockMap::builder()
        .time_to_live(SECOND)
        .clock(Arc::clone(&clock))
        .on_evict(move |_, _, _| {
            tells.fetch_add(1, Relaxed);
        })
        .build();
    for key in 1..=3 {
        map.insert_blocking(&Key(key), 7);
    }
    clock.advance(SECOND);
    map.insert_blocking(&Key(4), 7);
    told.store(0, Relaxed);
    for key in 1..=3 {
        map.insert_blocking(&Key(key), 7);
    }
    clock.advance(SECOND);
    let mut batch = map.batch().insert(&Key(5), 8).remove(&Key(4));
    for key in 1..=3 {
        batch.push_insert(&Key(key), 8);
    }
    PANICS_AT.set(3);
    assert!(panics(|| drop(batch.commit_blocking())));
    assert_eq!(PANICS_AT.get(), 0);
    map.tick();
    assert_eq!((map.len(), map.entries()), (0, 0));
}

#[test]
fn values_that_have_ended_go_before_live_ones() {
    let uses: [fn(&LockMap<u64, u64>); 3] = [
        |map| {
            let mut batch = map.batch();
            (100..150).for_each(|key| batch.push_insert(&key, key));
            assert!(batch.commit_blocking().is_ok());
            assert_eq!(map.len(), 60);
        },
        |map| {
            map.set_max_values(50);
            assert_eq!(map.len(), 10);
        },
        |map| {
            (100..190).for_each(|key| drop(map.insert_blocking(&key, key)));
            assert_eq!(map.len(), 100);
        },
    ];
    for uses in uses {
        let clock = Arc::new(ManualClock::new());
        let map = LockMap::builder()
            .max_values(100)
            .shards(1)
            .clock(Arc::clone(&clock))
            .expire_with(|&key, _| (10..100).contains(&key).then_some(SECOND))
            .build();
        (0..100).for_each(|key| drop(map.insert_blocking(&key, key)));
        clock.advance(SECOND);
        uses(&map);
        assert!((0..10).all(|key| map.contains_key(&key)));
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
fn a_map_with_forgotten_guards_drops_its_ended_values_although_drops_panic() {
    for takes_apart in [false, true] {
        for stores in [false, true] {
            let (clock, drops) = (Arc::new(ManualClock::new()), Arc::new(AtomicUsize::new(0)));
            let map: LockMap<u64, Bomb> =
                LockMap::builder().time_to_live(SECOND).shards(1).clock(Arc::clone(&clock)).build();
            for key in 0..3 {
                map.insert_blocking(&key, Bomb(Arc::clone(&drops)));
            }
            clock.advance(SECOND);
            for key in 0..3 {
                let mut writer = map.write_blocking(&key);
                assert!(writer.value().is_none());
                if stores {
                    writer.insert(Bomb(Arc::clone(&drops)));
                }
                std::mem::forget(writer);
            }
            assert_eq!(drops.load(Relaxed), 0);
            assert!(panics(|| if takes_apart {
                map.into_iter().for_each(drop);
            } else {
                drop(map);
            }));
            assert_eq!(drops.load(Relaxed), if stores { 6 } else { 3 });
        }
    }
}
