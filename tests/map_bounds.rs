//! `max_values`: which values are evicted, which are kept, and when.

#![allow(dropping_copy_types, clippy::drop_non_drop, clippy::type_complexity)] // many calls are made only for their effect

mod common;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use common::{Random, pending, poll, ready};
use futures_lite::future::block_on;
use keylatch::{AddOrUpdate, Fairness, LockMap, TryBatchError};
use proptest::prelude::*;

type Map = LockMap<u64, u64>;

/// Creates a map of one shard, so that the bound is exact, with values for these keys, inserted in this order.
fn bounded(most: usize, keys: impl IntoIterator<Item = u64>) -> Map {
    let map = LockMap::builder().shards(1).max_values(most).build();
    for key in keys {
        map.insert_blocking(&key, key);
    }
    map
}

fn has(map: &Map) -> Vec<u64> {
    (0..1000).filter(|key| map.contains_key(key)).collect()
}

/// Inserts `n` new values that nobody uses.
fn flood(map: &Map, n: u64) {
    for key in 500..500 + n {
        map.insert_blocking(&key, key);
    }
}

#[test]
fn a_bound_of_zero_values_is_refused_with_a_message_that_names_the_argument() {
    let refused = catch_unwind(|| LockMap::<u64, u64>::builder().max_values(0)).unwrap_err();
    let message = refused.downcast_ref::<String>().cloned();
    let message = message.or_else(|| refused.downcast_ref::<&str>().map(ToString::to_string)).unwrap();
    assert!(message.contains("max_values") && message.contains('0') && message.contains('1'), "{message}");
}

#[test]
fn with_one_shard_the_bound_is_exact_for_every_way_to_insert() {
    for most in [1, 2, 7, 300] {
        let map = bounded(most, []);
        let mut version = None;
        for key in 0..1000 {
            match key % 9 {
                0 => drop(map.insert_blocking(&key, key)),
                1 => drop(block_on(map.insert(&key, key))),
                2 => drop(map.write_blocking(&key).insert(key)),
                3 => drop(map.get_or_insert_with_blocking(&key, || key)),
                4 => drop(block_on(map.get_or_insert_with(&key, async || key))),
                5 => drop(map.add_or_update_blocking(&key, key)),
                6 => drop(map.batch().insert(&key, key).commit_blocking().unwrap()),
                7 => drop(map.upgradable_read_blocking(&key).upgrade_mut_blocking().insert(key)),
                _ => map.write_many_blocking([&key]).iter_mut().for_each(|guard| drop(guard.insert(key))),
            }
            assert_eq!(map.len(), most.min(key as usize + 1), "{key}");
            assert_eq!(map.entries(), map.len());
            assert!(map.contains_key(&key), "the value just inserted was evicted: {key}");
            version = map.try_read(&key).unwrap().version().max(version);
        }
    }
}

#[test]
fn a_bound_that_shards_can_share_is_never_exceeded() {
    for bound in [64, 67] {
        let map: Map = LockMap::builder().shards(8).max_values(bound).build();
        let mut most = 0;
        for key in 0..10_000 {
            map.insert_blocking(&key, key);
            most = most.max(map.len());
            assert!(map.contains_key(&key));
        }
        assert_eq!(most, bound);
    }
    // Fewer values than shards: each shard may keep one.
    let map: Map = LockMap::builder().shards(8).max_values(3).build();
    (0..1000).for_each(|key| drop(map.insert_blocking(&key, key)));
    assert!((3..=8).contains(&map.len()), "{}", map.len());
    // If the number of shards is not given, a small bound is exact.
    let map: Map = LockMap::builder().max_values(100).build();
    (0..1000).for_each(|key| drop(map.insert_blocking(&key, key)));
    assert_eq!(map.len(), 100);
}

#[test]
fn without_a_bound_nothing_is_evicted() {
    let map = LockMap::<u64, u64>::builder().shards(1).build();
    (0..50_000).for_each(|key| drop(map.insert_blocking(&key, key)));
    assert_eq!((map.len(), map.clear()), (50_000, 0));
}

#[test]
fn a_value_with_a_holder_a_waiter_or_a_handle_is_never_evicted() {
    let map = bounded(1, []);
    let arc = Arc::new(bounded(1, [1]));
    let owned = arc.read_arc_blocking(&1);
    flood(&arc, 20);
    assert!(arc.contains_key(&1));
    drop(owned);
    let owned = arc.handle_arc(&1);
    flood(&arc, 20);
    assert!(arc.contains_key(&1));
    drop(owned);
    flood(&arc, 2);
    assert_eq!((arc.contains_key(&1), arc.len()), (false, 1));

    map.insert_blocking(&1, 1);
    let reader = map.read_blocking(&1);
    map.insert_blocking(&2, 2);
    let upgradable = map.upgradable_read_blocking(&2);
    map.insert_blocking(&3, 3);
    let writer = map.write_blocking(&3);
    map.insert_blocking(&4, 4);
    let handle = map.handle(&4);
    map.insert_blocking(&5, 5);
    let guards = map.read_many_blocking([&5]);
    flood(&map, 20);
    assert_eq!(has(&map)[..5], [1, 2, 3, 4, 5]);
    assert_eq!(map.len(), 6, "the five and the last one inserted");
    // The bound is restored as the users leave.
    drop(reader);
    flood(&map, 3);
    assert_eq!(has(&map)[..4], [2, 3, 4, 5]);
    drop(handle);
    flood(&map, 3);
    assert_eq!(has(&map)[..3], [2, 3, 5]);
    drop((upgradable, writer, guards));
    assert_eq!(map.len(), 1);
}

/// Each kind of user keeps the value of key 1 until it is dropped. When the user of key 2 is dropped, too, the bound is
/// met without any further call.
#[test]
fn an_exceeded_bound_is_restored_when_the_last_user_of_any_kind_is_dropped() {
    fn check<'a, U>(map: &'a Map, name: &str, user: impl FnOnce(&'a Map) -> U, go: impl FnOnce(U)) {
        map.clear();
        map.insert_blocking(&1, 1);
        let user = user(map);
        // The value of key 2 is in use, too, so that only that of key 1 can be evicted when its user goes.
        map.insert_blocking(&2, 2);
        let held = map.read_blocking(&2);
        flood(map, 5);
        assert!(map.contains_key(&1) && map.contains_key(&2), "{name}");
        map.retain(|&key, _| key < 500);
        assert_eq!(map.len(), 2, "{name}");
        go(user);
        // A value that was just released may stay, but only until the next release.
        assert!(map.len() <= 2);
        drop(held);
        assert_eq!(map.len(), 1, "{name}");
    }
    for fairness in [Fairness::Adaptive, Fairness::Fifo, Fairness::Barging] {
        let map: Map = LockMap::builder().shards(1).max_values(1).fairness(fairness).build();
        let map = &map;
        check(map, "a reader", |map| map.read_blocking(&1), drop);
        check(map, "a writer", |map| map.write_blocking(&1), drop);
        check(map, "unlock_fair", |map| map.write_blocking(&1), |guard| guard.unlock_fair());
        check(map, "an upgradable reader", |map| map.upgradable_read_blocking(&1), drop);
        check(map, "a downgraded writer", |map| map.write_blocking(&1).downgrade(), drop);
        check(map, "a downgrade later", |map| map.write_blocking(&1), |guard| drop(guard.downgrade_to_upgradable()));
        check(map, "an upgrade", |map| map.upgradable_read_blocking(&1), |guard| drop(guard.upgrade_blocking()));
        check(map, "an unfinished upgrade", |map| map.upgradable_read_blocking(&1).upgrade(), drop);
        check(map, "a handle", |map| map.handle(&1), drop);
        check(map, "two handles", |map| (map.handle(&1), map.handle(&1)), drop);
        check(map, "a hundred handles", |map| (0..100).map(|_| map.handle(&1)).collect::<Vec<_>>(), drop);
        check(map, "a handle and its clone", |map| map.handle(&1), |handle| drop((handle.clone(), handle)));
        check(map, "several keys", |map| map.read_many_blocking([&1, &7]), drop);
        check(
            map,
            "several keys, taken apart",
            |map| map.write_many_blocking([&7, &1]),
            |guards| {
                guards.into_iter().for_each(drop);
            },
        );
        check(
            map,
            "a waiter that gives up",
            |map| {
                let writer = map.write_blocking(&1);
                let mut waiter = map.read(&1);
                pending(&mut waiter);
                (writer, waiter)
            },
            |(writer, waiter)| {
                drop(writer);
                drop(waiter);
            },
        );
        check(
            map,
            "a waiter that gives up first",
            |map| {
                let reader = map.read_blocking(&1);
                let mut waiter = map.write(&1);
                pending(&mut waiter);
                (reader, waiter)
            },
            |(reader, waiter)| {
                drop(waiter);
                drop(reader);
            },
        );
        check(
            map,
            "a waiter that gets in",
            |map| {
                let writer = map.write_blocking(&1);
                let mut waiter = map.read(&1);
                pending(&mut waiter);
                (writer, waiter)
            },
            |(writer, waiter)| {
                drop(writer);
                drop(ready(waiter));
            },
        );
        check(
            map,
            "a waiting call",
            |map| {
                let writer = map.write_blocking(&1);
                let mut call = Box::pin(map.get(&1));
                assert!(poll(&mut call).is_pending());
                (writer, call)
            },
            |(writer, call)| {
                drop(writer);
                drop(call);
            },
        );
        check(
            map,
            "a waiting batch",
            |map| {
                let writer = map.write_blocking(&1);
                let mut call = Box::pin(map.batch().insert(&1, 1).check_absent(&9).commit());
                assert!(poll(&mut call).is_pending());
                (writer, call)
            },
            |(writer, call)| {
                drop(call);
                drop(writer);
            },
        );
    }
}

#[test]
fn when_all_guards_are_dropped_together_or_one_by_one_the_bound_is_restored() {
    for together in [true, false] {
        let map = bounded(3, []);
        let guards: Vec<_> = (0..10)
            .map(|key| {
                map.insert_blocking(&key, key);
                map.read_blocking(&key)
            })
            .collect();
        assert_eq!(map.len(), 10);
        if together {
            drop(guards);
        } else {
            for (number, guard) in guards.into_iter().enumerate() {
                drop(guard);
                assert!(map.len() <= (10 - number).max(3), "{} after {number}", map.len());
            }
        }
        assert_eq!((map.len(), map.entries()), (3, 3));
    }
    let map = bounded(3, []);
    let mut guards = map.write_many_blocking([&1, &2, &3, &4, &5, &6, &7, &8]);
    guards.iter_mut().for_each(|guard| drop(guard.insert(0)));
    assert_eq!(map.len(), 8);
    drop(guards);
    assert_eq!((map.len(), map.entries()), (3, 3));
    let batch = (0..20).fold(map.batch(), |batch, key| batch.insert(&key, key));
    assert_eq!(batch.commit_blocking().unwrap().len(), 20);
    assert_eq!((map.len(), map.entries()), (3, 3));
}

#[test]
fn an_unpolled_future_and_an_uncommitted_batch_protect_nothing() {
    let map = bounded(2, [1, 2]);
    let futures = (map.read(&1), map.write(&2), map.get(&1), map.insert(&2, 9), map.read_many([&1, &2]));
    let batch = map.batch().insert(&1, 9).check_absent(&2);
    let commit = map.batch().remove(&1).commit();
    flood(&map, 2);
    assert_eq!((map.contains_key(&1), map.contains_key(&2), map.len()), (false, false, 2));
    // Two entries are kept by the futures that will acquire them.
    assert_eq!(map.entries(), 4);
    // These futures continue as if there had never been a value.
    let (read, write, get, insert, many) = futures;
    let guard = ready(read);
    assert_eq!(guard.value(), None);
    drop(guard);
    drop(many);
    assert_eq!(ready(write).value(), None);
    assert_eq!((block_on(get), block_on(insert)), (None, None));
    drop((batch, commit));
    assert_eq!((map.len(), map.entries()), (2, 2));
}

/// Of two values, the one inserted first is evicted, unless it was used in the meantime.
#[test]
fn an_acquisition_or_a_call_that_finds_a_value_counts_as_a_use() {
    fn check(name: &str, is_use: bool, act: impl FnOnce(&Map)) {
        let map = bounded(2, [1, 2]);
        act(&map);
        map.insert_blocking(&3, 3);
        assert_eq!(map.contains_key(&1), is_use, "{name}");
        assert_eq!((map.contains_key(&2), map.contains_key(&3), map.len()), (!is_use, true, 2), "{name}");
    }
    let seen = |map: &Map| {
        let mut seen = None;
        map.for_each_value(|&key, _, version| {
            if key == 1 {
                seen = Some(version);
            }
        });
        seen.unwrap()
    };
    check("nothing", false, |_| {});
    check("read", true, |map| drop(map.read_blocking(&1)));
    check("try_read", true, |map| drop(map.try_read(&1)));
    check("async read", true, |map| drop(ready(map.read(&1))));
    check("upgradable_read", true, |map| drop(map.upgradable_read_blocking(&1)));
    check("write", true, |map| drop(map.write_blocking(&1)));
    check("write through a handle", true, |map| drop(map.handle(&1).write_blocking()));
    check("read_many", true, |map| drop(map.read_many_blocking([&1])));
    check("get", true, |map| drop(map.get_blocking(&1)));
    check("async get", true, |map| drop(block_on(map.get(&1))));
    check("insert over", true, |map| drop(map.insert_blocking(&1, 9)));
    check("async insert over", true, |map| drop(block_on(map.insert(&1, 9))));
    check("get_or_insert_with", true, |map| drop(map.get_or_insert_with_blocking(&1, || 9)));
    check("unchanged", true, |map| assert_eq!(map.add_or_update_blocking(&1, 1), AddOrUpdate::Unchanged));
    check("updated", true, |map| assert_eq!(map.add_or_update_blocking(&1, 9), AddOrUpdate::Updated(1)));
    check("update_if", true, |map| drop(map.update_if_blocking(&1, seen(map), 9).unwrap()));
    check("a conflict of update_if", true, |map| {
        let old = seen(map);
        // Gives key 1 a new version, and restores the order in which the two values were inserted.
        map.insert_blocking(&1, 1);
        map.remove_blocking(&1);
        map.remove_blocking(&2);
        map.insert_blocking(&1, 1);
        map.insert_blocking(&2, 2);
        drop(map.update_if_blocking(&1, old, 9).unwrap_err());
    });
    check("a conflict of remove_if", true, |map| {
        let old = seen(map);
        map.remove_blocking(&1);
        map.remove_blocking(&2);
        map.insert_blocking(&1, 1);
        map.insert_blocking(&2, 2);
        drop(map.remove_if_blocking(&1, old).unwrap_err());
    });
    check("a check of a batch", true, |map| drop(map.batch().check(&1, seen(map)).commit_blocking().unwrap()));
    check("a conflict of a batch", true, |map| {
        drop(map.batch().check_absent(&1).commit_blocking().unwrap_err());
    });
    check("a batch that writes over it", true, |map| drop(map.batch().insert(&1, 9).try_commit().unwrap()));

    check("a handle", false, |map| drop(map.handle(&1)));
    check("contains_key", false, |map| assert!(map.contains_key(&1)));
    check("status", false, |map| assert!(map.status(&1).is_some() && !map.is_locked(&1)));
    check("for_each_value", false, |map| assert_eq!(map.for_each_value(|_, _, _| {}), 0));
    check("for_each_key", false, |map| map.for_each_key(|_, _| {}));
    check("retain", false, |map| assert_eq!(map.retain(|_, _| true), 0));
    check("an unpolled future", false, |map| drop((map.read(&1), map.get(&1), map.insert(&1, 9))));
    check("an uncommitted batch", false, |map| drop(map.batch().insert(&1, 9)));
    check("an entry without a value", false, |map| drop(map.read_blocking(&7)));
    check("another key", false, |map| assert_eq!(map.get_blocking(&7), None));
    check("a try that fails", true, |map| {
        let writer = map.write_blocking(&1);
        assert!(map.try_read(&1).is_none());
        let Err(TryBatchError::Busy(_)) = map.batch().remove(&1).try_commit() else { panic!("it is held") };
        drop(writer);
    });
}

#[test]
fn an_insertion_does_not_count_as_a_use() {
    // The value inserted first is evicted first, whichever call inserted it.
    let map = bounded(4, []);
    map.insert_blocking(&1, 1);
    map.write_blocking(&2).insert(2);
    drop(map.get_or_insert_with_blocking(&3, || 3));
    map.batch().insert(&4, 4).commit_blocking().unwrap();
    for key in 1..=4 {
        assert_eq!(has(&map)[0], key);
        map.insert_blocking(&(100 + key), 0);
        assert!(!map.contains_key(&key));
    }
    let map = bounded(3, []);
    drop(block_on(map.get_or_insert_with(&1, async || 1)));
    assert_eq!(map.add_or_update_blocking(&2, 2), AddOrUpdate::Added);
    drop(block_on(map.insert(&3, 3)));
    for key in 1..=3 {
        map.insert_blocking(&(100 + key), 0);
        assert!(!map.contains_key(&key), "{key}");
    }
}

#[test]
fn a_value_in_regular_use_is_not_evicted() {
    let map = bounded(50, []);
    let mut random = Random(7);
    for key in 0..10_000 {
        map.insert_blocking(&(1000 + key), key);
        let hot = random.next(10);
        if map.get_blocking(&hot).is_none() {
            assert!(key < 500, "{hot} was evicted though it is used all the time");
            map.insert_blocking(&hot, hot);
        }
    }
    assert_eq!(map.len(), 50);
}

#[test]
fn the_value_just_inserted_stays_even_if_all_others_are_in_use() {
    let map = bounded(2, []);
    let held: Vec<_> = (0..5)
        .map(|key| {
            map.insert_blocking(&key, key);
            map.read_blocking(&key)
        })
        .collect();
    for key in 10..20 {
        map.insert_blocking(&key, key);
        assert_eq!((map.contains_key(&key), map.len()), (true, 6), "{key}");
        let mut guard = map.write_blocking(&(key + 100));
        guard.insert(key);
        assert!(map.contains_key(&(key + 100)));
        drop(guard);
        assert_eq!((map.contains_key(&(key + 100)), map.len()), (true, 6), "{key}");
    }
    drop(held);
    assert_eq!(map.len(), 2);
}

/// Evicted values are dropped with no lock held.
#[test]
fn a_drop_of_an_evicted_value_may_use_the_map() {
    struct Uses(u64, Rc<RefCell<Option<Rc<LockMap<u64, Uses>>>>>);
    thread_local!(static DROPS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) });
    impl Drop for Uses {
        fn drop(&mut self) {
            DROPS.with_borrow_mut(|drops| drops.push(self.0));
            let Some(map) = self.1.borrow().clone() else { return };
            assert!(map.try_write(&self.0).is_some_and(|guard| guard.value().is_none()), "its own key is free");
            assert!(map.entries() <= 4);
            if self.0 < 5 {
                drop(map.insert_blocking(&(self.0 + 10), Uses(self.0 + 10, self.1.clone())));
            }
        }
    }
    let this = Rc::new(RefCell::new(None));
    let map: Rc<LockMap<u64, Uses>> = Rc::new(LockMap::builder().shards(1).max_values(2).build());
    *this.borrow_mut() = Some(map.clone());
    for key in 0..5 {
        drop(map.insert_blocking(&key, Uses(key, this.clone())));
        assert!(map.len() <= 2);
    }
    assert!(DROPS.with_borrow(|drops| drops.contains(&0) && drops.len() >= 3));
    assert_eq!((map.len(), map.entries()), (2, 2));
    *this.borrow_mut() = None;
    map.clear();
    assert_eq!(map.entries(), 0);
}

#[test]
fn an_entry_kept_by_a_future_may_lose_its_value_and_is_free_afterwards() {
    let map: LockMap<u64, Arc<()>> = LockMap::builder().shards(1).max_values(1).build();
    let value = Arc::new(());
    map.insert_blocking(&1, value.clone());
    let future = map.write(&1);
    map.insert_blocking(&2, Arc::default());
    assert_eq!((Arc::strong_count(&value), map.contains_key(&1), map.is_locked(&1)), (1, false, false));
    let mut guard = ready(future);
    guard.insert(value.clone());
    assert_eq!(map.len(), 2);
    drop(guard);
    assert_eq!((map.len(), map.contains_key(&1)), (1, true));
}

#[test]
fn a_visit_while_values_are_evicted_leaves_the_map_consistent() {
    let map = bounded(3, [1, 2, 3]);
    let mut visited = 0;
    map.for_each_value(|_, _, _| {
        visited += 1;
        // All entries are kept during the visit, and none but this one is held.
        flood(&map, 6);
        assert!(map.len() <= 4);
    });
    assert!(visited >= 1);
    assert_eq!((map.len(), map.entries()), (3, 3));
    let passed = map.retain(|_, _| {
        (700..706).for_each(|key| drop(map.insert_blocking(&key, key)));
        true
    });
    assert_eq!(passed, 0);
    assert!(map.len() <= 3 && map.entries() == map.len());
}

#[test]
fn extend_keeps_the_bound_and_the_last_value() {
    let mut map = bounded(3, []);
    std::mem::forget(map.read_blocking(&7));
    map.extend((0..20).map(|key| (key, key)));
    assert!(map.contains_key(&19) && map.len() <= 4);
    map.extend([(19, 1), (19, 2)]);
    assert_eq!(map.get_blocking(&19), Some(2));
}

#[test]
fn a_forgotten_guard_keeps_its_value_and_evicts_no_other() {
    let map = bounded(2, [1]);
    std::mem::forget(map.read_blocking(&1));
    for key in 10..200 {
        map.insert_blocking(&key, key);
        assert!(map.contains_key(&1) && map.contains_key(&key));
        assert!(map.len() <= 3);
    }
    assert_eq!(map.clear(), 1);
}

proptest! {
    /// For any sequence of operations: at most `most` unused values remain, no value in use is evicted, the value
    /// just inserted stays, and in the end the bound is met.
    #[test]
    fn the_bound_holds_for_any_sequence_of_operations(most in 1..5usize, steps in prop::collection::vec((0..12u8, 0..10u64), 1..150)) {
        let map: Map = bounded(most, []);
        let there = || -> Vec<u64> { (0..10).filter(|key| map.contains_key(key)).collect() };
        let mut guards = Vec::new();
        let mut handles = Vec::new();
        let mut waiting = Vec::new();
        let mut writers = Vec::new();
        for (step, key) in steps {
            let used: Vec<u64> = (0..10)
                .filter(|key| {
                    map.status(key).is_some_and(|status| status.holders() + status.waiters() > 0)
                        || handles.iter().any(|handle: &keylatch::KeyHandle<'_, Map>| handle.key() == key)
                })
                .collect();
            let before = there();
            let (mut inserted, mut removed) = (None, None);
            let is_free = map.status(&key).is_none_or(|status| status.holders() + status.waiters() == 0);
            match step {
                0..=2 if is_free => {
                    map.insert_blocking(&key, key);
                    inserted = Some(key);
                }
                3 => guards.extend(map.try_read(&key)),
                4 => handles.push(map.handle(&key)),
                5 => {
                    let mut future = Box::pin(map.read(&key));
                    if poll(&mut future).is_pending() {
                        waiting.push(future);
                    }
                }
                6 => writers.extend(map.try_write(&key).map(|mut guard| {
                    guard.insert(key);
                    inserted = Some(key);
                    guard
                })),
                7 if !guards.is_empty() => drop(guards.swap_remove(key as usize % guards.len())),
                8 if !handles.is_empty() => drop(handles.swap_remove(key as usize % handles.len())),
                9 if !waiting.is_empty() => drop(waiting.swap_remove(key as usize % waiting.len())),
                10 if !writers.is_empty() => drop(writers.swap_remove(key as usize % writers.len())),
                11 if is_free => {
                    map.remove_blocking(&key);
                    removed = Some(key);
                }
                _ => {}
            }
            let now = there();
            for key in before {
                let may_go = !used.contains(&key) || removed == Some(key);
                prop_assert!(may_go || now.contains(&key), "{} was in use and was evicted", key);
            }
            prop_assert!(inserted.is_none_or(|key| now.contains(&key)));
            let idle = now
                .iter()
                .filter(|key| {
                    map.status(*key).is_none_or(|status| status.holders() + status.waiters() == 0)
                        && !handles.iter().any(|handle| handle.key() == *key)
                })
                .count();
            prop_assert!(idle <= most, "{} idle values", idle);
        }
        drop((guards, handles, waiting, writers));
        prop_assert!(map.len() <= most);
        prop_assert_eq!(map.entries(), map.len());
        prop_assert_eq!(map.clear(), 0);
        prop_assert_eq!(map.entries(), 0);
    }
}

#[test]
fn panicking_drops_of_evicted_values_leave_the_bound_met() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                std::panic::resume_unwind(Box::new("a bomb"));
            }
        }
    }
    let map: LockMap<u64, Bomb> = LockMap::builder().shards(1).max_values(2).build();
    for key in 0..20 {
        let outcome = catch_unwind(AssertUnwindSafe(|| assert!(map.insert_blocking(&key, Bomb).is_none())));
        assert_eq!((outcome.is_err(), map.len()), (key >= 2, (key as usize + 1).min(2)));
        assert!(map.contains_key(&key));
    }
    assert!(catch_unwind(AssertUnwindSafe(|| map.clear())).is_err());
    assert_eq!((map.len(), map.entries()), (0, 0));
}

#[test]
fn a_value_with_many_handles_that_are_gone_is_evicted_although_a_future_keeps_its_entry() {
    let map: LockMap<u64, u64> = LockMap::builder().shards(1).max_values(1).build();
    map.insert_blocking(&1, 1);
    let future = map.get(&1); // not polled, so not a use
    drop((0..40).map(|_| map.handle(&1)).collect::<Vec<_>>());
    map.insert_blocking(&2, 2);
    assert_eq!(map.len(), 1);
    drop(future);
}
