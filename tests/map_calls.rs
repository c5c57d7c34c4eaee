//! The calls that read, insert, change or compute a value in one step.

mod common;

use std::cell::{Cell, RefCell};
use std::future::pending as never;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;

use common::hostile::{Hostile, panic_in};
use common::{Bell, pending, poll_with, ready, until};
use futures_lite::future::block_on;
use keylatch::{LockMap, Version};

type Map = LockMap<String, Vec<u32>>;

fn version<V>(map: &LockMap<String, V>, key: &str) -> Option<Version> {
    map.try_read(key).expect("no writer holds the key").version()
}

/// Returns whether `f` panics. User code panics by `resume_unwind`, without the panic hook's message.
fn panics(f: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(f)).is_err()
}

/// Runs a test once with the async form of a call, and once with the blocking form.
macro_rules! both {
    ($map:ident, |$call:ident| $test:block, $async:expr, $blocking:expr) => {{
        {
            let $map = &Map::new();
            let $call = $async;
            $test
        }
        {
            let $map = &Map::new();
            let $call = $blocking;
            $test
        }
    }};
}

// ---- get_versioned --------------------------------------------------------------------------------------------------

#[test]
fn get_versioned_returns_the_value_with_its_version() {
    both!(
        map,
        |get| {
            assert_eq!(get("a"), None);
            map.insert_blocking("a", vec![1]);
            let first = get("a").unwrap();
            assert_eq!(first, (vec![1], version(map, "a").unwrap()));
            map.insert_blocking("a", vec![2]);
            let second = get("a").unwrap();
            assert!(second.0 == [2] && second.1 > first.1);
            assert!(map.update_if_blocking("a", second.1, vec![3]).is_ok());
            map.remove_blocking("a");
            assert_eq!(get("a"), None);
            assert_eq!(map.entries(), 0);
        },
        |key| ready(Box::pin(map.get_versioned(key))),
        |key| map.get_versioned_blocking(key)
    );
}

// A value that owns nothing is read under the internal lock, unless the entry is in use.
#[test]
fn get_versioned_of_a_value_that_owns_nothing_agrees_with_a_guard() {
    let map = LockMap::<u64, u64>::new();
    for n in 0..3 {
        map.insert_blocking(&7, n);
        let seen = map.read_blocking(&7);
        let expected = seen.versioned().map(|(&value, version)| (value, version));
        assert_eq!(map.get_versioned_blocking(&7), expected); // beside a reader
        assert_eq!(ready(Box::pin(map.get_versioned(&7))), expected);
        drop(seen);
        assert_eq!(map.get_versioned_blocking(&7), expected);
        assert_eq!(ready(Box::pin(map.get_versioned(&7))), expected);
    }
}

#[test]
fn get_versioned_waits_for_a_writer_and_counts_as_a_use() {
    let map = LockMap::<u64, u64>::builder().max_values(2).shards(1).build();
    map.insert_blocking(&1, 1);
    map.insert_blocking(&2, 2);
    let mut writer = map.write_blocking(&1);
    let mut get = Box::pin(map.get_versioned(&1));
    pending(&mut get);
    *writer.value_mut().unwrap() = 10;
    let expected = writer.version().map(|version| (10, version));
    drop(writer);
    assert_eq!(ready(get), expected);
    map.get_versioned_blocking(&1);
    map.insert_blocking(&3, 3);
    assert!(map.contains_key(&1) && !map.contains_key(&2));
}

// ---- insert_if_absent -----------------------------------------------------------------------------------------------

#[test]
fn insert_if_absent_leaves_a_value_alone() {
    both!(
        map,
        |insert| {
            let first = insert("a", vec![1]).unwrap();
            assert_eq!(version(map, "a"), Some(first));
            assert_eq!(insert("a", vec![2]), Err(vec![2]));
            assert_eq!(map.get_versioned_blocking("a"), Some((vec![1], first)));
            map.remove_blocking("a");
            assert!(insert("a", vec![3]).unwrap() > first);
            // An entry without a value
            let handle = map.handle("b");
            let second = insert("b", vec![4]);
            assert_eq!(second.ok(), version(map, "b"));
            drop(handle);
            assert_eq!((map.len(), map.entries()), (2, 2));
        },
        |key, value| ready(Box::pin(map.insert_if_absent(key, value))),
        |key, value| map.insert_if_absent_blocking(key, value)
    );
}

#[test]
fn insert_if_absent_finds_a_value_beside_readers() {
    let map = Map::new();
    map.insert_blocking("a", vec![1]);
    let reader = map.read_blocking("a");
    assert_eq!(map.insert_if_absent_blocking("a", vec![2]), Err(vec![2]));
    assert_eq!(ready(Box::pin(map.insert_if_absent("a", vec![2]))), Err(vec![2]));
    drop(reader);
}

#[test]
fn one_of_two_calls_of_insert_if_absent_succeeds() {
    let map = Map::new();
    let holder = map.write_blocking("a");
    let (mut first, mut second) =
        (Box::pin(map.insert_if_absent("a", vec![1])), Box::pin(map.insert_if_absent("a", vec![2])));
    pending(&mut first);
    pending(&mut second);
    drop(holder);
    assert!(ready(first).is_ok());
    assert_eq!(ready(second), Err(vec![2]));
}

// ---- get_or_insert, get_or_default ----------------------------------------------------------------------------------

#[test]
fn get_or_insert_and_get_or_default_return_a_reader() {
    both!(
        map,
        |get| {
            let (insert, default) = get;
            let first = insert("a", vec![1]);
            assert_eq!(first.value(), Some(&vec![1]));
            let second = insert("a", vec![2]); // beside the first reader
            assert_eq!((second.value(), second.version()), (first.value(), first.version()));
            let third = default("a");
            assert_eq!(third.version(), first.version());
            drop((first, second, third));
            assert_eq!(default("b").value(), Some(&vec![]));
            assert_eq!(map.len(), 2);
        },
        (|key, value| ready(Box::pin(map.get_or_insert(key, value))), |key| ready(Box::pin(map.get_or_default(key)))),
        (|key, value| map.get_or_insert_blocking(key, value), |key| map.get_or_default_blocking(key))
    );
}

#[test]
fn a_dropped_get_or_insert_has_changed_nothing() {
    let map = Map::new();
    let holder = map.write_blocking("a");
    let mut get = Box::pin(map.get_or_insert("a", vec![1]));
    pending(&mut get);
    drop(get);
    drop(holder);
    assert_eq!((map.len(), map.entries()), (0, 0));
}

// ---- update ---------------------------------------------------------------------------------------------------------

#[test]
fn update_changes_a_value_in_place_and_returns_the_result() {
    both!(
        map,
        |update| {
            assert_eq!(update("a", 1), None);
            assert_eq!(map.entries(), 0); // no entry was made
            map.insert_blocking("a", vec![]);
            let before = version(map, "a");
            assert_eq!(update("a", 7), Some(1));
            assert_eq!(update("a", 8), Some(2));
            assert_eq!(map.get_blocking("a"), Some(vec![7, 8]));
            assert!(version(map, "a") > before);
            let handle = map.handle("b");
            assert_eq!(update("b", 1), None); // an entry without a value
            drop(handle);
        },
        |key, n| ready(Box::pin(map.update(key, |list: &mut Vec<u32>| {
            list.push(n);
            list.len()
        }))),
        |key, n| map.update_blocking(key, |list: &mut Vec<u32>| {
            list.push(n);
            list.len()
        })
    );
}

#[test]
fn the_closure_of_an_update_runs_under_the_lock_of_its_key_and_may_use_others() {
    let map = Map::new();
    map.insert_blocking("a", vec![1]);
    map.insert_blocking("b", vec![2]);
    let seen = map.update_blocking("a", |list| {
        assert!(map.try_read("a").is_none());
        list.extend(map.get_blocking("b").unwrap());
        map.entries() // takes every internal lock
    });
    assert_eq!((seen, map.get_blocking("a")), (Some(2), Some(vec![1, 2])));
}

#[test]
fn update_waits_for_readers_and_counts_as_a_use() {
    let map = LockMap::<u64, u64>::builder().max_values(2).shards(1).build();
    map.insert_blocking(&1, 1);
    map.insert_blocking(&2, 2);
    let reader = map.read_blocking(&1);
    let mut update = Box::pin(map.update(&1, |value| *value += 1));
    pending(&mut update);
    drop(reader);
    assert_eq!(ready(update), Some(()));
    map.update_blocking(&1, |value| *value += 1);
    map.insert_blocking(&3, 3);
    assert_eq!((map.get_blocking(&1), map.get_blocking(&2)), (Some(3), None));
}

#[test]
fn a_panic_in_an_update_leaves_the_value_as_changed_with_a_new_version() {
    let map = Map::new();
    map.insert_blocking("a", vec![1]);
    let before = version(&map, "a");
    let change = |list: &mut Vec<u32>| -> u32 {
        list.push(2);
        resume_unwind(Box::new("update"))
    };
    assert!(panics(|| _ = map.update_blocking("a", change)));
    let (value, first) = map.get_versioned_blocking("a").unwrap();
    assert!(value == [1, 2] && Some(first) > before);
    assert!(panics(|| _ = ready(Box::pin(map.update("a", change)))));
    let (value, second) = map.get_versioned_blocking("a").unwrap();
    assert!(value == [1, 2, 2] && second > first);
    assert!(!map.is_locked("a"));
}

#[test]
fn a_dropped_update_has_not_called_its_closure() {
    let map = Map::new();
    map.insert_blocking("a", vec![1]);
    let reader = map.read_blocking("a");
    let called = Cell::new(false);
    let mut update = Box::pin(map.update("a", |_| called.set(true)));
    pending(&mut update);
    drop(update);
    drop(reader);
    assert!(!called.get() && !map.is_locked("a"));
}

// ---- compute --------------------------------------------------------------------------------------------------------

#[test]
fn compute_inserts_changes_and_removes() {
    both!(
        map,
        |compute| {
            let add = |value: Option<Vec<u32>>| {
                let mut list = value.unwrap_or_default();
                list.push(7);
                (list.len() < 3).then_some(list)
            };
            let first = compute("a", &add).unwrap();
            assert_eq!(map.get_versioned_blocking("a"), Some((vec![7], first)));
            let second = compute("a", &add).unwrap();
            assert!(second > first);
            assert_eq!(map.get_versioned_blocking("a"), Some((vec![7, 7], second)));
            assert_eq!(compute("a", &add), None);
            assert_eq!((map.len(), map.entries()), (0, 0));
            assert!(compute("a", &add).unwrap() > second);
            // A value that is returned unchanged gets a new version.
            let third = version(map, "a");
            assert!(compute("a", &|value| value) > third);
            assert_eq!(compute("b", &|value| value), None);
            assert_eq!((map.len(), map.entries()), (1, 1));
        },
        |key: &str, f: &dyn Fn(Option<Vec<u32>>) -> Option<Vec<u32>>| {
            ready(Box::pin(map.compute(key, async |value| f(value))))
        },
        |key: &str, f: &dyn Fn(Option<Vec<u32>>) -> Option<Vec<u32>>| map.compute_blocking(key, f)
    );
}

#[test]
fn while_compute_runs_its_closure_the_key_is_locked_and_without_a_value() {
    let map = Map::new();
    map.insert_blocking("a", vec![1]);
    let step = async |value: Option<Vec<u32>>| {
        assert!(map.try_read("a").is_none() && !map.contains_key("a") && map.is_empty());
        map.insert("b", vec![2]).await; // another key
        value
    };
    assert!(block_on(map.compute("a", step)).is_some());
    map.compute_blocking("a", |value| {
        assert!(map.try_read("a").is_none() && !map.contains_key("a"));
        value
    });
    assert_eq!((map.get_blocking("a"), map.get_blocking("b")), (Some(vec![1]), Some(vec![2])));
}

#[test]
fn others_wait_until_the_closure_of_a_compute_is_done() {
    let map = Map::new();
    map.insert_blocking("a", vec![1]);
    let gate = Cell::new(false);
    let change = async |value: Option<Vec<u32>>| {
        std::future::poll_fn(|_| if gate.get() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }).await;
        value.map(|mut list| {
            list.push(2);
            list
        })
    };
    let mut compute = Box::pin(map.compute("a", change));
    pending(&mut compute);
    let (bell, waker) = Bell::new();
    let mut get = Box::pin(map.get("a"));
    assert!(poll_with(&mut get, &waker).is_pending());
    gate.set(true);
    assert!(ready(compute).is_some());
    assert_eq!(bell.take(), 1);
    assert_eq!(ready(get), Some(vec![1, 2]));
}

#[test]
fn a_panic_in_compute_loses_the_value_and_frees_the_key() {
    let map = LockMap::<String, Rc<Cell<u32>>>::new();
    let value = Rc::new(Cell::new(0));
    for blocks in [false, true] {
        map.insert_blocking("a", value.clone());
        let before = version(&map, "a").unwrap();
        assert!(panics(|| {
            if blocks {
                map.compute_blocking("a", |_| resume_unwind(Box::new("compute")));
            } else {
                ready(Box::pin(map.compute("a", async |_| resume_unwind(Box::new("compute")))));
            }
        }));
        assert_eq!((map.get_blocking("a"), map.len(), map.entries()), (None, 0, 0));
        assert_eq!(Rc::strong_count(&value), 1, "the value was leaked");
        assert!(map.insert_if_absent_blocking("a", value.clone()).unwrap() > before);
    }
}

#[test]
fn a_compute_that_is_dropped_while_it_waits_for_the_key_has_changed_nothing() {
    let map = Map::new();
    map.insert_blocking("a", vec![1]);
    let reader = map.read_blocking("a");
    let mut compute = Box::pin(map.compute("a", async |_| None));
    pending(&mut compute);
    drop(compute);
    drop(reader);
    assert_eq!(map.get_blocking("a"), Some(vec![1]));
}

#[test]
fn a_compute_that_is_dropped_while_its_closure_waits_loses_the_value() {
    let map = LockMap::<String, Rc<()>>::new();
    let value = Rc::new(());
    map.insert_blocking("a", value.clone());
    let mut compute = Box::pin(map.compute("a", async |value| {
        never::<()>().await;
        value
    }));
    pending(&mut compute);
    assert_eq!(Rc::strong_count(&value), 2, "the closure has the value");
    drop(compute);
    assert_eq!((map.len(), map.entries(), Rc::strong_count(&value)), (0, 0, 1));
}

#[test]
fn a_closure_can_save_the_value_from_its_own_panic() {
    let map = Map::new();
    map.insert_blocking("a", vec![1]);
    let saved = RefCell::new(None);
    assert!(panics(|| {
        map.compute_blocking("a", |value| {
            *saved.borrow_mut() = value;
            resume_unwind(Box::new("compute"))
        });
    }));
    assert_eq!(saved.take(), Some(vec![1]));
    assert!(!map.contains_key("a"));
}

#[test]
fn a_computed_value_keeps_its_mark_of_use() {
    let map = LockMap::<u64, u64>::builder().max_values(2).shards(1).build();
    map.insert_blocking(&1, 1);
    map.insert_blocking(&2, 2);
    map.compute_blocking(&1, |value| value); // a use
    map.insert_blocking(&3, 3);
    assert!(map.contains_key(&1) && !map.contains_key(&2));
}

// ---- batches in a variable --------------------------------------------------------------------------------------------

#[test]
fn pushed_steps_are_those_of_the_builder() {
    let map = LockMap::<u64, u64>::new();
    for key in 0..4 {
        map.insert_blocking(&key, key);
    }
    let seen: Vec<_> = (0..4).map(|key| map.get_versioned_blocking(&key).unwrap().1).collect();
    let mut batch = map.batch();
    batch.push_insert(&0, 10);
    batch.push_update_if(&1, seen[1], 11);
    batch.push_remove(&2);
    batch.push_remove_if(&3, seen[3]);
    batch.push_check(&0, seen[0]); // fails: the first step has overwritten the value
    let conflict = batch.commit_blocking().unwrap_err();
    assert_eq!((conflict.step(), map.len()), (4, 4));

    let mut batch = map.batch().check(&0, seen[0]);
    batch.push_update_if(&1, seen[1], 11);
    batch.push_remove(&2);
    batch.push_remove_if(&3, seen[3]);
    batch.push_check_absent(&4);
    batch.push_insert(&4, 14);
    let versions = batch.commit_blocking().unwrap();
    assert_eq!(versions.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, false, false, false, true]);
    let values: Vec<_> = (0..5).map(|key| map.get_blocking(&key)).collect();
    assert_eq!(values, [Some(0), Some(11), None, None, Some(14)]);
}

#[test]
fn a_push_whose_key_panics_leaves_the_batch_as_it_was() {
    let map = LockMap::<Hostile, u64>::new();
    let mut batch = map.batch();
    batch.push_insert(&Hostile::new(1), 1);
    for place in ["hash", "clone"] {
        let key = Hostile::new(2);
        panic_in(place);
        assert!(panics(|| batch.push_insert(&key, 2)), "{place}");
    }
    batch.push_insert(&Hostile::new(3), 3);
    assert_eq!(batch.commit_blocking().unwrap().len(), 2);
    assert!(map.len() == 2 && !map.contains_key(&Hostile::new(2)));
}

// ---- several threads --------------------------------------------------------------------------------------------------

#[test]
fn no_change_is_lost_among_threads() {
    let each = if cfg!(miri) { 10 } else { 2000 };
    let map = Arc::new(LockMap::<u64, u64>::new());
    let inserted = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let (map, inserted) = (map.clone(), inserted.clone());
            std::thread::spawn(move || {
                for n in 0..each {
                    let key = n % 3;
                    if map.insert_if_absent_blocking(&key, 1).is_ok() {
                        inserted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    }
                    if thread % 2 == 0 {
                        map.update_blocking(&key, |value| *value += 1).unwrap();
                    } else {
                        map.compute_blocking(&key, |value| value.map(|value| value + 1)).unwrap();
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(inserted.load(std::sync::atomic::Ordering::SeqCst), 3);
    assert_eq!((0..3).map(|key| map.get_blocking(&key).unwrap()).sum::<u64>(), 3 + 4 * each);
}

#[test]
fn blocking_calls_wait_for_a_writer_of_another_thread() {
    let map = &Map::new();
    map.insert_blocking("a", vec![1]);
    let writer = map.write_blocking("a");
    std::thread::scope(|scope| {
        let update = scope.spawn(|| map.update_blocking("a", |list| list.push(2)));
        until(|| map.status("a").unwrap().waiters() == 1);
        drop(writer);
        assert_eq!(update.join().unwrap(), Some(()));
    });
    assert_eq!(map.get_blocking("a"), Some(vec![1, 2]));
}
