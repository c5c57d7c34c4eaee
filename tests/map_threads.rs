//! A map used by several threads: for example, calls under an internal lock, beside users of a handle of the key.

mod common;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use common::Random;
use keylatch::{LockMap, ManualClock};

const ROUNDS: u64 = if cfg!(debug_assertions) { 20_000 } else { 400_000 };

/// A value is torn if its parts differ. It has no destructor, so it is copied under an internal lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Wide([u64; 16]);

impl Wide {
    fn new(n: u64) -> Self {
        Wide([n; 16])
    }

    fn check(&self) {
        assert!(self.0.iter().all(|&part| part == self.0[0]), "a value was torn: {:?}", self.0);
    }
}

#[test]
fn a_value_copied_without_waiting_is_never_torn() {
    let map = LockMap::<u64, Wide>::builder().shards(1).build();
    let start = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let handle = map.handle(&7);
            start.wait();
            for round in 0..ROUNDS {
                let mut guard = handle.write_blocking();
                guard.insert(Wide::new(round));
                for part in &mut guard.value_mut().unwrap().0 {
                    *part += 1;
                }
                guard.remove().unwrap().check();
            }
        });
        start.wait();
        for _ in 0..ROUNDS {
            if let Some(value) = map.get_blocking(&7) {
                value.check();
            }
        }
    });
    assert_eq!((map.len(), map.entries()), (0, 0));
}

#[test]
fn a_value_stored_or_removed_without_waiting_is_dropped_once() {
    static LIVE: AtomicUsize = AtomicUsize::new(0);
    struct Counted(Box<u64>);
    impl Counted {
        fn new(n: u64) -> Self {
            LIVE.fetch_add(1, SeqCst);
            Counted(Box::new(n))
        }
    }
    impl Drop for Counted {
        fn drop(&mut self) {
            assert!(*self.0 < 2 * ROUNDS);
            LIVE.fetch_sub(1, SeqCst);
        }
    }
    let map = LockMap::<u64, Counted>::builder().shards(1).build();
    let start = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let handle = map.handle(&7);
            start.wait();
            for round in 0..ROUNDS {
                if round % 3 == 0 {
                    drop(handle.write_blocking().remove());
                } else {
                    drop(handle.write_blocking().insert(Counted::new(round)));
                }
            }
        });
        start.wait();
        for round in 0..ROUNDS {
            if round % 2 == 0 {
                drop(map.insert_blocking(&7, Counted::new(round)));
            } else {
                drop(map.remove_blocking(&7));
            }
        }
    });
    assert_eq!(map.len(), LIVE.load(SeqCst));
    drop(map.remove_blocking(&7));
    assert_eq!((map.len(), map.entries(), LIVE.load(SeqCst)), (0, 0, 0));
}

/// A reader of both keys always finds the same value at both.
#[test]
fn a_reader_of_several_keys_sees_all_of_a_batch_or_none_of_it() {
    let map = LockMap::<u64, u64>::new();
    map.batch().insert(&1, 0).insert(&2, 0).commit_blocking().unwrap();
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for swap in [false, true] {
            let (map, done) = (&map, &done);
            scope.spawn(move || {
                for round in 0..ROUNDS / 4 {
                    let n = 2 * round + u64::from(swap);
                    let (a, b) = if swap { (&2, &1) } else { (&1, &2) };
                    match round % 3 {
                        0 => drop(map.batch().remove(a).remove(b).commit_blocking().unwrap()),
                        _ => drop(map.batch().insert(a, n).insert(b, n).commit_blocking().unwrap()),
                    }
                }
                done.fetch_add(1, SeqCst);
            });
        }
        while done.load(SeqCst) < 2 {
            let guards = map.read_many_blocking([&1, &2]);
            assert_eq!(guards.get(&1).unwrap().value(), guards.get(&2).unwrap().value());
        }
    });
    drop(map.batch().remove(&1).remove(&2).commit_blocking());
    assert_eq!((map.len(), map.entries()), (0, 0));
}

#[test]
fn no_conditional_update_is_lost() {
    let map = LockMap::<u64, u64>::builder().shards(1).build();
    map.insert_blocking(&7, 0);
    const EACH: u64 = ROUNDS / 20;
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let map = &map;
            scope.spawn(move || {
                for round in 0..EACH {
                    loop {
                        let seen = map.read_blocking(&7);
                        let (value, version) = (*seen.value().unwrap(), seen.version().unwrap());
                        drop(seen);
                        let done = if (thread + round) % 2 == 0 {
                            map.update_if_blocking(&7, version, value + 1).is_ok()
                        } else {
                            map.batch().update_if(&7, version, value + 1).commit_blocking().is_ok()
                        };
                        if done {
                            break;
                        }
                    }
                }
            });
        }
    });
    assert_eq!(map.get_blocking(&7), Some(3 * EACH));
}

#[test]
fn one_of_many_threads_computes_the_value() {
    let map = LockMap::<u64, u64>::builder().shards(1).build();
    let made = Mutex::new(vec![0; 200]);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (map, made) = (&map, &made);
            scope.spawn(move || {
                for key in 0..200 {
                    let init = || {
                        made.lock().unwrap()[key as usize] += 1;
                        thread
                    };
                    let guard = map.get_or_insert_with_blocking(&key, init);
                    assert!(guard.value().is_some());
                }
            });
        }
    });
    assert!(made.into_inner().unwrap().iter().all(|&made| made == 1));
    assert_eq!(map.len(), 200);
}

/// After all kinds of use at the same time, the bound is met in the end.
#[test]
fn the_bound_is_restored_after_any_last_user() {
    let map = LockMap::<u64, Box<u64>>::builder().shards(1).max_values(8).build();
    std::thread::scope(|scope| {
        for seed in 1..=3 {
            let map = &map;
            scope.spawn(move || {
                let mut random = Random(seed);
                for _ in 0..ROUNDS / 10 {
                    let key = random.next(24);
                    match random.next(9) {
                        0 => drop(map.insert_blocking(&key, Box::new(key))),
                        1 => drop(map.get_blocking(&key)),
                        2 => drop(map.handle(&key)),
                        3 => drop(map.write_blocking(&key).insert(Box::new(key))),
                        4 => drop(map.get_or_insert_with_blocking(&key, || Box::new(key))),
                        5 => drop(map.remove_blocking(&key)),
                        6 => drop(map.read(&key)),
                        7 => drop(map.try_write_many([&key, &(key + 1)])),
                        _ => assert!(map.for_each_value(|key, value, _| assert_eq!(*key, **value)) < 25),
                    }
                }
            });
        }
    });
    assert_eq!(map.entries(), map.len());
    assert!(map.len() <= 8, "{} values remain", map.len());
    assert_eq!(map.clear(), 0);
    assert_eq!(map.entries(), 0);
}

/// The writer tells the map of each change of the source, by a new value or by a removal. A look that begins later
/// never finds an older value, although other callers read the source while they refresh.
#[test]
fn a_refresh_never_undoes_a_change() {
    let clock = Arc::new(ManualClock::new());
    let map: LockMap<u64, u64> = LockMap::builder().record_ages().clock(Arc::clone(&clock)).shards(1).build();
    let (source, told) = (AtomicU64::new(0), AtomicU64::new(0));
    let (map, source, told) = (&map, &source, &told);
    std::thread::scope(|scope| {
        for seed in 1..=3 {
            let clock = &clock;
            scope.spawn(move || {
                let mut random = Random(seed);
                while source.load(SeqCst) < ROUNDS / 10 {
                    let (told, fresh_for) = (told.load(SeqCst), Duration::from_nanos(random.next(3)));
                    let read = || {
                        let value = source.load(SeqCst);
                        std::thread::yield_now();
                        if random.next(4) == 0 { Err(()) } else { Ok(value) }
                    };
                    if let Ok(value) = map.get_or_try_refresh_with_blocking(&7, fresh_for, read) {
                        assert!(value >= told, "{value} was found after {told}");
                    }
                    clock.advance(Duration::from_nanos(1));
                }
            });
        }
        scope.spawn(move || {
            for change in 1..=ROUNDS / 10 {
                source.store(change, SeqCst);
                match change % 3 {
                    0 => drop(map.remove_blocking(&7)),
                    1 => drop(map.insert_blocking(&7, change)),
                    _ => drop(map.update_blocking(&7, |value| *value = change)),
                }
                told.store(change, SeqCst);
            }
        });
    });
    assert_eq!(map.get_or_refresh_with_blocking(&7, Duration::ZERO, || 0), 0, "no caller refreshes any more");
    assert_eq!((map.len(), map.entries(), map.is_locked(&7)), (1, 1, false));
}
