//! The map: every form of acquiring, guards and their values, versions, one-call forms, batches, and visits of all
//! values.

#![allow(dropping_copy_types, clippy::drop_non_drop)] // many calls are made only for their effect

mod common;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, pending as never, poll_fn, ready as at_once};
use std::hash::{BuildHasher, DefaultHasher, Hash, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use common::{Bell, pending, poll, poll_with, ready, until};
use futures_lite::future::{block_on, or, yield_now};
use keylatch::{AddOrUpdate, Fairness, LockMap, TryBatchError, Version};
use proptest::prelude::*;

const ALL: [Fairness; 5] =
    [Fairness::Adaptive, Fairness::Fifo, Fairness::Bounded(0), Fairness::Bounded(16), Fairness::Barging];
const LONG: Duration = Duration::from_secs(3600);

/// Polls a pinned future once.
fn step<F: Future>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    poll(future)
}

fn version<K: Eq + Hash + Clone, V>(map: &LockMap<K, V>, key: &K) -> Option<Version> {
    map.try_read(key).expect("no writer holds the key").version()
}

/// Returns whether `f` panics. User code panics by `resume_unwind`, without the panic hook's message.
fn panics(f: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(f)).is_err()
}

// ---- every form of acquiring ----------------------------------------------------------------------------------------

/// Tests every form of acquiring. Each returns a guard of the key, whether the key has a value or not, and leaves no
/// entry for a key without a value.
macro_rules! every_form {
    (
        $test:ident, $excluded:ident,
        $lock:ident, $blocking:ident, $try_lock:ident, $try_for:ident, $try_until:ident,
        $lock_arc:ident, $arc_blocking:ident, $try_arc:ident, $try_arc_for:ident, $try_arc_until:ident
    ) => {
        #[test]
        fn $test() {
            let map = Arc::new(LockMap::<String, u32>::new());
            map.insert_blocking("a", 7);
            let first = version(&map, &"a".to_string());
            macro_rules! gets {
                ($how:expr) => {{
                    let how = $how;
                    let guard = how("a");
                    assert_eq!((guard.key().as_str(), guard.value(), guard.version()), ("a", Some(&7), first));
                    assert_eq!(map.status("a").unwrap().holders(), 1);
                    drop(guard);
                    let guard = how("b");
                    assert_eq!((guard.value(), guard.version(), map.len(), map.entries()), (None, None, 1, 2));
                    drop(guard);
                    assert_eq!((map.len(), map.entries()), (1, 1), stringify!($how));
                }};
            }
            gets!(|key| ready(map.$lock(key)));
            gets!(|key| block_on(map.$lock(key).until(never::<()>())).unwrap());
            gets!(|key| block_on(map.$lock(key).until(at_once(()))).unwrap());
            gets!(|key| map.$blocking(key));
            gets!(|key| map.$try_lock(key).unwrap());
            gets!(|key| map.$try_for(key, Duration::ZERO).unwrap());
            gets!(|key| map.$try_until(key, Instant::now()).unwrap());
            gets!(|key| ready(map.$lock_arc(key)));
            gets!(|key| block_on(map.$lock_arc(key).until(at_once(()))).unwrap());
            gets!(|key| map.$arc_blocking(key));
            gets!(|key| map.$try_arc(key).unwrap());
            gets!(|key| map.$try_arc_for(key, LONG).unwrap());
            gets!(|key| map.$try_arc_until(key, Instant::now() + LONG).unwrap());
            gets!(|key| ready(map.handle(key).$lock()));
            gets!(|key| map.handle(key).$blocking());
            gets!(|key| map.handle(key).$try_lock().unwrap());
            gets!(|key| map.handle(key).$try_for(Duration::ZERO).unwrap());
            gets!(|key| map.handle(key).$try_until(Instant::now()).unwrap());
            gets!(|key| ready(map.handle_arc(key).$lock()));
            gets!(|key| map.handle_arc(key).$blocking());
            gets!(|key| map.handle_arc(key).$try_lock().unwrap());

            for key in ["a", "b"] {
                let held = map.$excluded(key);
                assert!(map.$try_lock(key).is_none() && map.$try_arc(key).is_none());
                assert!(map.$try_for(key, Duration::from_millis(1)).is_none());
                assert!(map.$try_until(key, Instant::now()).is_none());
                assert!(map.$try_arc_for(key, Duration::ZERO).is_none());
                assert!(map.$try_arc_until(key, Instant::now()).is_none());
                assert!(block_on(map.$lock(key).until(at_once(()))).is_err());
                assert!(map.handle(key).$try_lock().is_none());
                pending(&mut map.$lock(key));
                pending(&mut map.$lock_arc(key));
                // A waiter acquires the key, and a cancelled one leaves no trace.
                let (mut waiter, cancelled) = (map.$lock(key), map.$lock(key));
                pending(&mut waiter);
                drop(cancelled);
                assert_eq!(map.status(key).unwrap().waiters(), 1);
                drop(held);
                assert_eq!(ready(waiter).key(), key);
            }
            assert_eq!((map.len(), map.entries()), (1, 1));
            assert_eq!(Arc::strong_count(&map), 1);
        }
    };
}

every_form!(
    every_form_reads,
    write_blocking,
    read,
    read_blocking,
    try_read,
    try_read_for,
    try_read_until,
    read_arc,
    read_arc_blocking,
    try_read_arc,
    try_read_arc_for,
    try_read_arc_until
);
every_form!(
    every_form_reads_upgradably,
    upgradable_read_blocking,
    upgradable_read,
    upgradable_read_blocking,
    try_upgradable_read,
    try_upgradable_read_for,
    try_upgradable_read_until,
    upgradable_read_arc,
    upgradable_read_arc_blocking,
    try_upgradable_read_arc,
    try_upgradable_read_arc_for,
    try_upgradable_read_arc_until
);
every_form!(
    every_form_writes,
    read_blocking,
    write,
    write_blocking,
    try_write,
    try_write_for,
    try_write_until,
    write_arc,
    write_arc_blocking,
    try_write_arc,
    try_write_arc_for,
    try_write_arc_until
);

#[test]
fn every_form_takes_several_keys() {
    let map = Arc::new(LockMap::<String, u32>::new());
    map.insert_blocking("a", 7);
    macro_rules! gets {
        ($($guards:expr),+ $(,)?) => {$({
            let guards = $guards;
            let seen: Vec<_> = guards.iter().map(|guard| (guard.key().as_str(), guard.value().copied())).collect();
            assert_eq!(seen, [("b", None), ("a", Some(7))], stringify!($guards));
            assert_eq!(map.entries(), 2);
            drop(guards);
            assert_eq!((map.len(), map.entries()), (1, 1));
        })+};
    }
    let keys = ["b", "a", "b"];
    gets!(
        ready(map.read_many(keys)),
        block_on(map.read_many(keys).until(at_once(()))).unwrap(),
        map.read_many_blocking(keys),
        map.try_read_many(keys).unwrap(),
        map.try_read_many_for(keys, LONG).unwrap(),
        map.try_read_many_until(keys, Instant::now()).unwrap(),
        ready(map.read_many_arc(keys)),
        map.read_many_arc_blocking(keys),
        map.try_read_many_arc(keys).unwrap(),
        map.try_read_many_arc_for(keys, LONG).unwrap(),
        map.try_read_many_arc_until(keys, Instant::now()).unwrap(),
        ready(map.write_many(keys)),
        block_on(map.write_many(keys).until(at_once(()))).unwrap(),
        map.write_many_blocking(keys),
        map.try_write_many(keys).unwrap(),
        map.try_write_many_for(keys, LONG).unwrap(),
        map.try_write_many_until(keys, Instant::now()).unwrap(),
        ready(map.write_many_arc(keys)),
        map.write_many_arc_blocking(keys),
        map.try_write_many_arc(keys).unwrap(),
        map.try_write_many_arc_for(keys, LONG).unwrap(),
        map.try_write_many_arc_until(keys, Instant::now()).unwrap(),
        map.read_write_many_blocking([], keys).1,
        ready(map.read_write_many(keys, [])).0,
        map.try_read_write_many_arc(keys, []).unwrap().0,
    );
    let mut guards = map.write_many_blocking(["a", "b"]);
    guards.get_mut("b").unwrap().insert(8);
    *guards.get_mut("a").unwrap().value_mut().unwrap() += 1;
    drop(guards);
    let (reads, mut writes) = map.read_write_many_blocking(["a", "b"], ["b"]);
    assert_eq!((reads.len(), writes.len()), (1, 1));
    assert_eq!(reads.get("a").unwrap().value(), Some(&8));
    assert_eq!(writes.get_mut("b").unwrap().remove(), Some(8));
    drop((reads, writes));
    let held = map.read_blocking("a");
    assert!(map.try_write_many(["c", "a"]).is_none() && map.try_read_many(["c", "a"]).is_some());
    drop(held);
    assert_eq!((map.len(), map.entries()), (1, 1));
}

// ---- guards and values ----------------------------------------------------------------------------------------------

#[test]
fn a_writers_guard_reads_changes_stores_and_removes() {
    let map = LockMap::<u64, String>::new();
    let mut guard = map.write_blocking(&7);
    assert_eq!((guard.value(), guard.version()), (None, None));
    assert_eq!(guard.value_mut(), None);
    assert_eq!(guard.remove(), None);
    assert_eq!(guard.insert("a".into()), None);
    guard.value_mut().unwrap().push('b');
    assert_eq!(guard.value().unwrap(), "ab");
    assert_eq!(guard.insert("c".into()).unwrap(), "ab");
    assert_eq!(guard.remove().unwrap(), "c");
    assert_eq!((guard.value(), guard.version()), (None, None));
    assert_eq!(guard.remove(), None);
    guard.get_or_insert_with(|| "d".into()).push('e');
    guard.get_or_insert_with(|| panic!("there is a value")).push('f');
    assert_eq!((guard.value().unwrap().as_str(), guard.key()), ("def", &7));
    // A stored value is seen by the next holder, however the guard is converted.
    let guard = guard.downgrade_to_upgradable();
    assert_eq!(guard.value().unwrap(), "def");
    let guard = guard.downgrade();
    assert_eq!(guard.value().unwrap(), "def");
    drop(guard);
    assert_eq!(map.get_blocking(&7).unwrap(), "def");
}

#[test]
fn the_hold_of_upgrade_mut_has_every_method_of_a_writers_guard() {
    let map = LockMap::<u64, String>::new();
    let mut reader = map.upgradable_read_blocking(&7);
    {
        let mut guard = reader.try_upgrade_mut().unwrap();
        assert_eq!((guard.key(), guard.value(), guard.version()), (&7, None, None));
        assert_eq!(guard.value_mut(), None);
        assert_eq!((guard.insert("a".into()), guard.remove().as_deref(), guard.remove()), (None, Some("a"), None));
        guard.get_or_insert_with(|| "b".into()).push('c');
        assert_eq!(guard.insert("d".into()).as_deref(), Some("bc"));
        let before = guard.version().unwrap();
        guard.value_mut().unwrap().push('e');
        assert!(guard.version().unwrap() > before && guard.value().unwrap() == "de");
    }
    let seen = reader.version().unwrap();
    assert_eq!(reader.value().unwrap(), "de");
    // The hold has fallen back to the upgradable one, and the stored value remains.
    assert_eq!(map.try_read(&7).unwrap().version(), Some(seen));
    {
        let mut guard = ready(reader.upgrade_mut());
        assert_eq!((guard.version(), guard.value().unwrap().as_str()), (Some(seen), "de"));
        guard.remove();
    }
    assert_eq!((reader.value(), reader.version(), map.len()), (None, None, 0));
    assert_eq!(reader.upgrade_mut_blocking().insert("f".into()), None);
    // If the upgraded guard is forgotten, its hold lasts until the reader is used again.
    std::mem::forget(reader.try_upgrade_mut());
    assert!(map.try_read(&7).is_none());
    assert_eq!(reader.value().unwrap(), "f");
    drop(reader);
    assert_eq!((map.get_blocking(&7).as_deref(), map.entries()), (Some("f"), 1));
}

#[test]
fn a_guard_without_a_value_is_an_ordinary_lock_and_leaves_no_entry() {
    let map = LockMap::<u64, u32>::new();
    let readers = (map.read_blocking(&7), map.upgradable_read_blocking(&7), map.try_read(&7).unwrap());
    assert!(map.try_write(&7).is_none() && map.is_locked(&7) && map.is_empty());
    assert_eq!((map.entries(), map.contains_key(&7)), (1, false));
    drop(readers);
    assert_eq!(map.entries(), 0);
    let mut writer = map.write_blocking(&7);
    writer.insert(1);
    writer.remove();
    drop(writer);
    assert_eq!((map.entries(), map.status(&7)), (0, None));
}

#[test]
fn an_entry_lives_while_it_has_a_value_or_is_in_use() {
    let map = LockMap::<u64, u32>::new();
    map.insert_blocking(&7, 1);
    let status = map.status(&7).unwrap();
    assert_eq!((status.holders(), status.waiters(), map.is_locked(&7), map.entries()), (0, 0, false, 1));
    let (handle, unpolled, guard) = (map.handle(&7), map.read(&7), map.read_blocking(&7));
    drop(guard);
    assert_eq!(map.remove_blocking(&7), Some(1));
    assert_eq!((map.entries(), map.len()), (1, 0));
    drop(handle);
    assert_eq!(map.entries(), 1);
    drop(unpolled);
    assert_eq!(map.entries(), 0);
}

#[test]
fn a_panic_in_a_closure_leaves_the_value_unchanged_and_the_key_free() {
    let map = LockMap::<u64, u32>::new();
    assert!(panics(|| {
        map.write_blocking(&7).get_or_insert_with(|| resume_unwind(Box::new("init")));
    }));
    assert_eq!((map.len(), map.entries()), (0, 0));
    let mut reader = map.upgradable_read_blocking(&7);
    assert!(panics(|| {
        reader.try_upgrade_mut().unwrap().get_or_insert_with(|| resume_unwind(Box::new("init")));
    }));
    assert_eq!((reader.value(), map.try_read(&7).is_some()), (None, true));
    drop(reader);
    map.insert_blocking(&7, 1);
    let seen = version(&map, &7);
    assert!(panics(|| {
        let mut writer = map.write_blocking(&7);
        assert_eq!(*writer.get_or_insert_with(|| resume_unwind(Box::new("init"))), 1);
        resume_unwind(Box::new("in the critical section"));
    }));
    assert!(version(&map, &7) > seen && map.get_blocking(&7) == Some(1));
}

// ---- versions -------------------------------------------------------------------------------------------------------

#[test]
fn each_change_makes_a_new_version_that_the_same_guard_returns_at_once() {
    let map = LockMap::<u64, u32>::new();
    let mut guard = map.write_blocking(&7);
    let mut last = None;
    let mut grows = |now: Option<Version>| {
        assert!(now > last, "{now:?} after {last:?}");
        last = now;
    };
    guard.insert(1);
    grows(guard.version());
    guard.insert(1); // an equal value, too
    grows(guard.version());
    let _ = guard.value_mut();
    grows(guard.version());
    guard.get_or_insert_with(|| 0);
    grows(guard.version());
    guard.remove();
    assert_eq!(guard.version(), None);
    guard.get_or_insert_with(|| 0);
    grows(guard.version());
    drop(guard);
    map.insert_blocking(&7, 3);
    grows(version(&map, &7));
    map.add_or_update_blocking(&7, 4);
    grows(version(&map, &7));
    let seen = version(&map, &7).unwrap();
    let returned = map.update_if_blocking(&7, seen, 5).unwrap();
    grows(Some(returned));
    assert_eq!(version(&map, &7), Some(returned));
    let returned = map.batch().insert(&7, 6).commit_blocking().unwrap()[0];
    grows(returned);
    assert_eq!(version(&map, &7), returned);
    map.upgradable_read_blocking(&7).upgrade_mut_blocking().insert(6);
    grows(version(&map, &7));
}

#[test]
fn reading_changes_no_version() {
    let map = LockMap::<u64, u32>::new();
    map.insert_blocking(&7, 1);
    let seen = version(&map, &7).unwrap();
    drop((map.read_blocking(&7), map.upgradable_read_blocking(&7), map.handle(&7).read_blocking()));
    drop(map.write_blocking(&7));
    assert!(map.write_blocking(&7).value().is_some());
    drop(map.upgradable_read_blocking(&7).upgrade_blocking().downgrade());
    drop(map.upgradable_read_blocking(&7).upgrade_mut_blocking());
    drop((map.get_blocking(&7), map.get_or_insert_with_blocking(&7, || 2)));
    assert_eq!(map.add_or_update_blocking(&7, 1), AddOrUpdate::Unchanged);
    assert!(map.update_if_blocking(&7, Version::clone(&seen), 1).is_ok());
    let seen = version(&map, &7).unwrap();
    let other = map.batch().insert(&8, 1).commit_blocking().unwrap()[0].unwrap();
    if other != seen {
        assert!(map.update_if_blocking(&7, other, 1).is_err() && map.remove_if_blocking(&7, other).is_err());
    }
    assert_eq!(map.batch().check(&7, seen).commit_blocking().unwrap(), [Some(seen)]);
    assert!(map.batch().insert(&7, 2).check_absent(&9).check_absent(&7).commit_blocking().is_err());
    assert_eq!((map.for_each_value(|_, _, _| {}), map.retain(|_, _| true)), (0, 0));
    map.for_each_key(|_, _| {});
    drop(map.read_many_blocking([&7]));
    assert_eq!(version(&map, &7), Some(seen));
}

#[test]
fn versions_of_a_key_grow_even_if_its_entry_is_freed_in_between() {
    for (pool, most) in [(None, None), (Some(0), None), (Some(0), Some(2)), (None, Some(1)), (Some(3), Some(5))] {
        let builder = LockMap::<u64, u32>::builder().shards(1);
        let builder = if let Some(pool) = pool { builder.pool_capacity(pool) } else { builder };
        let map = if let Some(most) = most { builder.max_values(most) } else { builder }.build();
        let mut last = BTreeMap::new();
        for round in 0..40 {
            // Each version of a key is later than its earlier versions, even if the key's memory was reused by another
            // key, or freed.
            for key in 0..10 {
                let mut guard = map.write_blocking(&key);
                guard.insert(round);
                let now = guard.version();
                assert!(now > last.insert(key, now).flatten(), "pool {pool:?}, most {most:?}");
            }
            match round % 4 {
                0 => assert_eq!(map.clear(), 0),
                1 => drop((0..10).map(|key| map.remove_blocking(&key)).collect::<Vec<_>>()),
                2 => drop((100..300).map(|key| map.write_blocking(&key)).collect::<Vec<_>>()),
                _ => {}
            }
        }
    }
}

#[test]
fn a_version_from_before_a_removal_never_matches_again() {
    let map = LockMap::<u64, u32>::builder().shards(1).pool_capacity(0).build();
    for round in 0..20 {
        map.insert_blocking(&7, 1);
        let seen = version(&map, &7).unwrap();
        match round % 3 {
            0 => drop(map.remove_blocking(&7)),
            1 => drop(map.batch().remove(&7).insert(&7, 1).remove(&7).commit_blocking()),
            _ => drop(map.clear()),
        }
        assert_eq!(map.entries(), 0);
        map.insert_blocking(&7, 1);
        let conflict = map.update_if_blocking(&7, seen, 2).unwrap_err();
        assert!(conflict.found() > Some(seen));
        assert!(map.remove_if_blocking(&7, seen).is_err());
        assert!(map.batch().check(&7, seen).commit_blocking().is_err());
        map.remove_blocking(&7);
    }
}

// ---- one call each --------------------------------------------------------------------------------------------------

/// Defines a macro for each call, which makes it in the async or the blocking manner.
macro_rules! manners {
    ($($name:ident($($argument:expr),*) $call:ident $call_blocking:ident;)+) => {$(
        #[allow(unused_macros)]
        macro_rules! $name {
            ($map:expr, $manner:expr) => {
                if $manner { block_on($map.$call($($argument),*)) } else { $map.$call_blocking($($argument),*) }
            };
        }
    )+};
}

#[test]
fn each_call_works_in_both_manners() {
    manners! {
        get("a") get get_blocking;
        insert("a", 1) insert insert_blocking;
        insert_two("a", 2) insert insert_blocking;
        remove("a") remove remove_blocking;
        add("a", 1) add_or_update add_or_update_blocking;
        add_two("a", 2) add_or_update add_or_update_blocking;
    }
    for manner in [false, true] {
        let map = LockMap::<String, u32>::new();
        assert_eq!((get!(map, manner), remove!(map, manner), map.entries()), (None, None, 0));
        assert_eq!((insert!(map, manner), get!(map, manner)), (None, Some(1)));
        assert_eq!((insert_two!(map, manner), get!(map, manner)), (Some(1), Some(2)));
        assert_eq!((remove!(map, manner), get!(map, manner), map.entries()), (Some(2), None, 0));
        assert_eq!((add!(map, manner), get!(map, manner)), (AddOrUpdate::Added, Some(1)));
        let seen = version(&map, &"a".into());
        assert_eq!((add!(map, manner), version(&map, &"a".into())), (AddOrUpdate::Unchanged, seen));
        assert_eq!((add_two!(map, manner), get!(map, manner)), (AddOrUpdate::Updated(1), Some(2)));
        // Calls with a condition on the version.
        let (old, now) = (seen.unwrap(), version(&map, &"a".into()).unwrap());
        let update = |key: &str, version, value| {
            if manner {
                block_on(map.update_if(key, version, value))
            } else {
                map.update_if_blocking(key, version, value)
            }
        };
        let remove_if = |key: &str, version| {
            if manner { block_on(map.remove_if(key, version)) } else { map.remove_if_blocking(key, version) }
        };
        let conflict = update("a", old, 9).unwrap_err();
        assert_eq!((conflict.found(), conflict.into_value()), (Some(now), 9));
        let conflict = update("b", old, 9).unwrap_err();
        assert_eq!((conflict.found(), conflict.into_value(), map.entries()), (None, 9, 1));
        let conflict = remove_if("a", old).unwrap_err();
        assert_eq!((conflict.found(), conflict.into_value()), (Some(now), ()));
        assert_eq!(remove_if("b", old).unwrap_err().found(), None);
        assert_eq!(version(&map, &"a".into()), Some(now));
        let new = update("a", now, 3).unwrap();
        assert!(new > now && version(&map, &"a".into()) == Some(new));
        assert_eq!(remove_if("a", new).unwrap(), 3);
        assert_eq!((map.len(), map.entries()), (0, 0));
        // A key that is in use and has no value.
        let handle = map.handle("a");
        assert_eq!((get!(map, manner), remove!(map, manner)), (None, None));
        assert_eq!(update("a", new, 1).unwrap_err().found(), None);
        assert_eq!(add!(map, manner), AddOrUpdate::Added);
        drop(handle);
        assert_eq!(get!(map, manner), Some(1));
    }
}

#[test]
fn each_call_waits_for_the_key_and_changes_nothing_if_it_is_dropped() {
    let map = LockMap::<String, u32>::new();
    map.insert_blocking("a", 1);
    let seen = version(&map, &"a".into()).unwrap();
    // Without and with a handle, which keeps the entry.
    for kept in [false, true] {
        let _handle = kept.then(|| map.handle("a"));
        macro_rules! dropped {
            ($($future:expr),+ $(,)?) => {$({
                let mut future = Box::pin($future);
                let writer = map.write_blocking("a");
                assert!(step(&mut future).is_pending(), "{} waits for a writer", stringify!($future));
                assert_eq!(map.status("a").unwrap().waiters(), 1);
                drop(writer);
                drop(future);
                assert_eq!(map.status("a").unwrap().waiters(), 0, stringify!($future));
                assert!(map.try_write("a").is_some());
                assert_eq!((version(&map, &"a".into()), map.get_blocking("a")), (Some(seen), Some(1)));
                // The same holds if the future was never polled.
                drop($future);
                assert_eq!((version(&map, &"a".into()), map.len(), map.entries()), (Some(seen), 1, 1));
            })+};
        }
        dropped!(
            map.get("a"),
            map.insert("a", 2),
            map.remove("a"),
            map.add_or_update("a", 2),
            map.update_if("a", seen, 2),
            map.remove_if("a", seen),
            map.get_or_insert_with("a", async || 2),
            map.get_or_try_insert_with("a", async || Ok::<_, ()>(2)),
            map.batch().insert("a", 2).insert("b", 3).commit(),
        );
    }
}

#[test]
fn a_call_that_stores_nothing_creates_no_entry() {
    let map = LockMap::<String, u32>::new();
    let seen = map.batch().insert("b", 1).commit_blocking().unwrap()[0].unwrap();
    block_on(async {
        assert_eq!(map.get("a").await, None);
        assert_eq!(map.remove("a").await, None);
        assert!(map.update_if("a", seen, 1).await.is_err() && map.remove_if("a", seen).await.is_err());
        assert!(map.get_or_try_insert_with("a", async || Err::<u32, _>("no")).await.is_err());
        assert!(map.batch().insert("a", 1).check_absent("b").commit().await.is_err());
    });
    assert_eq!((map.len(), map.entries()), (1, 1));
}

/// A hasher that counts the keys that it hashes.
struct CountsHashes(Rc<Cell<usize>>);

impl BuildHasher for CountsHashes {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> Self::Hasher {
        self.0.set(self.0.get() + 1);
        DefaultHasher::new()
    }
}

#[test]
fn futures_borrow_no_key_hash_at_the_call_and_request_at_the_first_poll() {
    let hashes = Rc::new(Cell::new(0));
    let map = LockMap::<String, u32, _>::with_hasher(CountsHashes(hashes.clone()));
    let counted = || hashes.take();
    macro_rules! asks {
        ($(|$key:ident| $future:expr => $output:expr),+ $(,)?) => {$({
            let future = {
                let name = String::from("a");
                let $key = name.as_str();
                $future
            };
            assert!(counted() > 0, "{} does not hash at the call", stringify!($future));
            // No future has requested its key yet.
            assert!(map.try_write("b").is_some() && map.status("a").is_none_or(|status| status.waiters() == 0));
            counted();
            let output = block_on(future);
            assert_eq!(counted(), 0, "{} hashes later", stringify!($future));
            assert_eq!(output, $output);
        })+};
    }
    asks!(
        |key| map.insert(key, 1) => None,
        |key| map.get(key) => Some(1),
        |key| map.add_or_update(key, 2) => AddOrUpdate::Updated(1),
        |key| map.remove(key) => Some(2),
    );
}

#[test]
fn an_unpolled_future_has_requested_nothing() {
    let map = LockMap::<String, u32>::new();
    let mut insert = Box::pin(map.insert("a", 1));
    let commit = map.batch().insert("b", 1).commit();
    assert_eq!((map.len(), map.entries()), (0, 0));
    map.insert_blocking("a", 7);
    assert_eq!(step(&mut insert), Poll::Ready(Some(7)), "the value is looked up at the first poll");
    assert!(map.try_write("b").is_some());
    drop(commit);
    assert_eq!((map.len(), map.entries()), (1, 1));
}

#[test]
fn the_lifetime_of_a_borrowed_form_does_not_restrict_the_map() {
    let map = LockMap::<String, u32>::new();
    let future = {
        let name = String::from("a");
        map.insert(name.as_str(), 1)
    };
    block_on(future);
    let batch = {
        let name = String::from("a");
        map.batch().remove(name.as_str())
    };
    batch.commit_blocking().unwrap();
    assert!(map.is_empty());
}

// ---- get_or_insert_with ---------------------------------------------------------------------------------------------

#[test]
fn one_caller_computes_the_value_and_the_others_receive_it() {
    for fairness in ALL {
        for kept in [false, true] {
            let map = LockMap::<u64, u32>::builder().fairness(fairness).build();
            let _handle = kept.then(|| map.handle(&7));
            let (inits, open) = (Cell::new(0), Cell::new(false));
            let call = || {
                map.get_or_insert_with(&7, async || {
                    inits.set(inits.get() + 1);
                    poll_fn(|_| if open.get() { Poll::Ready(()) } else { Poll::Pending }).await;
                    inits.get()
                })
            };
            let mut calls: Vec<_> = (0..6).map(|_| Some(Box::pin(call()))).collect();
            for call in calls.iter_mut().flatten() {
                assert!(step(call).is_pending());
            }
            assert_eq!((inits.get(), map.is_locked(&7), map.len()), (1, true, 0));
            assert!(map.try_read(&7).is_none(), "init does not run under the write lock");
            open.set(true);
            // The calls are polled in rounds, because some of them wake others. Each keeps its guard.
            let mut guards = Vec::new();
            for _ in 0..20 {
                for place in &mut calls {
                    if let Some(Poll::Ready(guard)) = place.as_mut().map(step) {
                        guards.push(guard);
                        *place = None;
                    }
                }
            }
            assert_eq!(guards.len(), 6, "{fairness:?}: a caller waits for a guard that another call returned");
            assert!(inits.get() == 1 && guards.iter().all(|guard| guard.value() == Some(&1)));
            // A call that begins later does not wait, either.
            assert_eq!(block_on(call()).value(), Some(&1));
            assert_eq!(map.get_or_insert_with_blocking(&7, || 9).value(), Some(&1));
        }
    }
}

#[test]
fn no_caller_waits_for_a_returned_guard_after_another_failed_panicked_or_was_dropped() {
    for fairness in ALL {
        for outcome in ["error", "panic", "drop"] {
            for kept in [false, true] {
                let map = LockMap::<u64, u32>::builder().fairness(fairness).build();
                let handle = kept.then(|| map.handle(&7));
                let (inits, open) = (Cell::new(0), Cell::new(false));
                let call = || {
                    map.get_or_try_insert_with(&7, async || {
                        inits.set(inits.get() + 1);
                        let first = inits.get() == 1;
                        poll_fn(|_| if open.get() { Poll::Ready(()) } else { Poll::Pending }).await;
                        match outcome {
                            "error" if first => Err("no"),
                            "panic" if first => resume_unwind(Box::new("init")),
                            _ => Ok(7),
                        }
                    })
                };
                let mut calls: Vec<_> = (0..6).map(|_| Some(Box::pin(call()))).collect();
                for call in calls.iter_mut().flatten() {
                    assert!(step(call).is_pending());
                }
                open.set(outcome != "drop");
                match outcome {
                    "drop" => calls[0] = None,
                    "error" => {
                        let Some(Poll::Ready(Err("no"))) = calls[0].as_mut().map(step) else {
                            panic!("the call fails")
                        };
                        calls[0] = None;
                    }
                    _ => {
                        assert!(panics(|| drop(calls[0].as_mut().map(step))));
                        calls[0] = None;
                    }
                }
                open.set(true);
                let mut guards = Vec::new();
                for _ in 0..20 {
                    for place in &mut calls {
                        if let Some(Poll::Ready(guard)) = place.as_mut().map(step) {
                            guards.push(guard.unwrap());
                            *place = None;
                        }
                    }
                }
                assert_eq!((guards.len(), inits.get()), (5, 2), "{fairness:?}, {outcome}, {kept}");
                assert!(guards.iter().all(|guard| guard.value() == Some(&7)));
                assert!(block_on(call()).is_ok());
                drop((guards, handle));
                assert_eq!((map.len(), map.entries(), map.is_locked(&7)), (1, 1, false));
            }
        }
    }
}

#[test]
fn a_waiting_writer_gets_its_turn_between_two_callers() {
    let map = LockMap::<u64, u32>::builder().fairness(Fairness::Fifo).build();
    let guard = map.get_or_insert_with_blocking(&7, || 1);
    let mut writer = map.write(&7);
    pending(&mut writer);
    let mut call = Box::pin(map.get_or_insert_with(&7, async || 2));
    assert!(step(&mut call).is_pending());
    drop(guard);
    ready(writer).remove();
    let Poll::Ready(guard) = step(&mut call) else { panic!("the call is next") };
    assert_eq!(guard.value(), Some(&2));
}

#[test]
fn init_may_use_other_keys_and_nest() {
    let map = LockMap::<u64, u64>::new();
    fn factorial(map: &LockMap<u64, u64>, n: u64) -> u64 {
        let value = |n| if n == 0 { 1 } else { n * factorial(map, n - 1) };
        *map.get_or_insert_with_blocking(&n, || value(n)).value().unwrap()
    }
    assert_eq!((factorial(&map, 10), map.len()), (3_628_800, 11));
    let nested = async {
        let inner = async || *map.get_or_insert_with(&101, async || map.get(&10).await.unwrap()).await.value().unwrap();
        *map.get_or_insert_with(&100, inner).await.value().unwrap()
    };
    assert_eq!((block_on(nested), map.len()), (3_628_800, 13));
}

#[test]
fn init_runs_only_without_a_value_and_not_before_the_first_poll() {
    let map = LockMap::<u64, u32>::new();
    let call = map.get_or_insert_with(&7, async || panic!("it was never polled"));
    drop(call);
    map.insert_blocking(&7, 1);
    let guard = block_on(map.get_or_insert_with(&7, async || panic!("there is a value")));
    let seen = guard.version();
    assert_eq!(map.get_or_insert_with_blocking(&7, || panic!("there is a value")).version(), seen);
    // The same holds beside readers and an upgradable reader, for which the call does not wait.
    let readers = (map.upgradable_read_blocking(&7), map.read_blocking(&7));
    assert!(map.get_or_try_insert_with_blocking(&7, || Err("there is a value")).is_ok());
    drop((guard, readers));
    // A call that finds no value waits for the holders of the key.
    let reader = map.read_blocking(&8);
    let mut call = Box::pin(map.get_or_insert_with(&8, async || 2));
    assert!(step(&mut call).is_pending());
    drop(reader);
    let Poll::Ready(guard) = step(&mut call) else { panic!("the key is free") };
    assert_eq!(guard.value(), Some(&2));
}

// ---- changes that look first ----------------------------------------------------------------------------------------

#[test]
fn plain_readers_are_not_excluded_until_there_is_something_to_write() {
    for fairness in ALL {
        let map = LockMap::<u64, String>::builder().fairness(fairness).build();
        map.insert_blocking(&7, "a".into());
        map.insert_blocking(&7, "b".into());
        let seen = map.read_blocking(&7).version().unwrap();
        let old = {
            map.insert_blocking(&7, "b".into());
            seen
        };
        let now = map.read_blocking(&7).version().unwrap();
        let reader = map.read_blocking(&7);
        // Without anything to write, a call returns at once beside a reader, in both manners.
        assert_eq!(map.add_or_update_blocking(&7, "b".into()), AddOrUpdate::Unchanged);
        assert_eq!(block_on(map.add_or_update(&7, "b".into())), AddOrUpdate::Unchanged);
        assert_eq!(map.update_if_blocking(&7, old, "c".into()).unwrap_err().found(), Some(now));
        assert_eq!(block_on(map.update_if(&7, old, "c".into())).unwrap_err().into_value(), "c");
        assert_eq!(map.remove_if_blocking(&7, old).unwrap_err().found(), Some(now));
        assert!(block_on(map.remove_if(&7, old)).is_err());
        // But the call waits for another upgradable reader.
        let upgradable = map.upgradable_read_blocking(&7);
        let mut waits = Box::pin(map.update_if(&7, old, "c".into()));
        assert!(step(&mut waits).is_pending());
        assert_eq!(map.status(&7).unwrap().waiting_upgradable(), 1);
        drop(upgradable);
        let Poll::Ready(Err(_)) = step(&mut waits) else { panic!("the place is free") };
        // With something to write, a call waits for the reader like an upgrade, and leaves no trace when it is dropped.
        macro_rules! waits {
            ($($future:expr),+) => {$({
                let mut future = Box::pin($future);
                assert!(step(&mut future).is_pending());
                assert_eq!(map.status(&7).unwrap().waiting_upgrades(), 1, stringify!($future));
                assert_eq!((reader.value().unwrap().as_str(), reader.version()), ("b", Some(now)));
                drop(future);
                let status = map.status(&7).unwrap();
                assert_eq!((status.holders(), status.waiters()), (1, 0));
            })+};
        }
        waits!(map.add_or_update(&7, "c".into()), map.update_if(&7, now, "c".into()), map.remove_if(&7, now));
        let mut update = Box::pin(map.update_if(&7, now, "c".into()));
        assert!(step(&mut update).is_pending());
        drop(reader);
        let Poll::Ready(Ok(new)) = step(&mut update) else { panic!("no reader is left") };
        assert!(new > now && map.get_blocking(&7).unwrap() == "c");
    }
}

// ---- batches --------------------------------------------------------------------------------------------------------

#[test]
fn a_batch_makes_all_changes_and_returns_a_version_for_each_step() {
    let map = LockMap::<String, u32>::new();
    assert_eq!(map.batch().commit_blocking().unwrap(), []);
    assert_eq!(block_on(map.batch().commit()).unwrap(), []);
    assert_eq!(map.batch().try_commit().unwrap(), []);
    map.extend_for_test([("a", 1), ("b", 2), ("c", 3)]);
    let [a, b, c] = ["a", "b", "c"].map(|key| version(&map, &key.to_string()).unwrap());
    let batch = || {
        map.batch().check("a", a).update_if("b", b, 20).remove_if("c", c).check_absent("d").insert("e", 50).remove("f")
    };
    let versions = batch().commit_blocking().unwrap();
    assert_eq!(versions.len(), 6);
    assert_eq!((versions[0], versions[2], versions[3], versions[5]), (Some(a), None, None, None));
    assert_eq!((versions[1], versions[4]), (version(&map, &"b".into()), version(&map, &"e".into())));
    assert!(versions[1] > Some(b));
    let all = ["a", "b", "c", "d", "e", "f"].map(|key| map.get_blocking(key));
    assert_eq!(all, [Some(1), Some(20), None, None, Some(50), None]);
    assert_eq!((map.len(), map.entries()), (3, 3));
    // The same batch again conflicts.
    let conflict = batch().commit_blocking().unwrap_err();
    assert_eq!((conflict.key().as_str(), conflict.step(), conflict.found()), ("b", 1, versions[1]));
    let conflict = block_on(batch().commit()).unwrap_err();
    assert_eq!((conflict.key().as_str(), conflict.step()), ("b", 1));
    let Err(TryBatchError::Conflict(conflict)) = batch().try_commit() else { panic!("the version is outdated") };
    assert_eq!(conflict.step(), 1);
    assert_eq!(["a", "b", "c", "d", "e", "f"].map(|key| map.get_blocking(key)), all);
    assert_eq!(map.entries(), 3);
}

trait ExtendForTest {
    fn extend_for_test<const N: usize>(&self, values: [(&str, u32); N]);
}

impl ExtendForTest for LockMap<String, u32> {
    fn extend_for_test<const N: usize>(&self, values: [(&str, u32); N]) {
        for (key, value) in values {
            self.insert_blocking(key, value);
        }
    }
}

#[test]
fn a_condition_sees_the_effect_of_earlier_steps_on_its_key() {
    let map = LockMap::<u64, u32>::new();
    // The key is absent, then present, then absent again.
    let versions =
        map.batch().check_absent(&1).insert(&1, 1).remove(&1).check_absent(&1).insert(&1, 2).commit_blocking().unwrap();
    assert_eq!((versions[0], versions[2], versions[3]), (None, None, None));
    assert!(versions[1].is_some() && versions[4] > versions[1]);
    assert_eq!((map.get_blocking(&1), version(&map, &1)), (Some(2), versions[4]));
    let now = versions[4].unwrap();
    // A condition on a version no longer holds after a step of the batch that changes the value. The conflict reports
    // the version before the batch.
    let conflict = map.batch().insert(&2, 1).insert(&1, 3).check(&1, now).commit_blocking().unwrap_err();
    assert_eq!((conflict.key(), conflict.step(), conflict.found()), (&1, 2, Some(now)));
    let conflict = map.batch().remove(&1).remove_if(&1, now).commit_blocking().unwrap_err();
    assert_eq!((conflict.step(), conflict.found()), (1, Some(now)));
    let conflict = map.batch().insert(&2, 1).check_absent(&2).commit_blocking().unwrap_err();
    assert_eq!((conflict.key(), conflict.step(), conflict.found()), (&2, 1, None));
    let conflict = map.batch().update_if(&1, now, 1).update_if(&1, now, 1).commit_blocking().unwrap_err();
    assert_eq!(conflict.step(), 1);
    assert_eq!((version(&map, &1), map.entries()), (Some(now), 1));
    assert!(map.batch().check(&1, now).remove_if(&1, now).check_absent(&1).commit_blocking().is_ok());
    assert_eq!(map.entries(), 0);
}

#[test]
fn a_version_that_a_later_step_overwrites_is_not_used_again() {
    let map = LockMap::<u64, u32>::builder().shards(1).pool_capacity(0).build();
    let mut returned = std::collections::BTreeSet::new();
    let mut last = None;
    for round in 0..30 {
        let batch = map.batch().insert(&1, 1).insert(&1, 2);
        let batch = match round % 3 {
            0 => batch,
            1 => batch.remove(&1),
            _ => batch.remove(&1).insert(&1, 3),
        };
        for version in batch.commit_blocking().unwrap().into_iter().flatten() {
            assert!(returned.insert(version), "{version:?} was returned before");
            assert!(Some(version) > last);
            last = Some(version);
        }
        assert_eq!(map.try_read(&1).unwrap().version().is_some(), round % 3 != 1);
        map.insert_blocking(&1, 0);
        let version = version(&map, &1).unwrap();
        assert!(returned.insert(version) && Some(version) > last);
        last = Some(version);
    }
}

#[test]
fn a_busy_batch_is_returned_unchanged() {
    let map = LockMap::<u64, String>::new();
    map.insert_blocking(&1, "a".into());
    let seen = version(&map, &1).unwrap();
    let batch = map.batch().update_if(&1, seen, "b".into()).insert(&2, "c".into()).check_absent(&3);
    let mut batch = Some(batch);
    for key in [1, 2, 3] {
        let writer = map.write_blocking(&key);
        let Err(TryBatchError::Busy(again)) = batch.take().unwrap().try_commit() else { panic!("a key is held") };
        batch = Some(again);
        drop(writer);
        assert_eq!((map.len(), map.entries(), version(&map, &1)), (1, 1, Some(seen)));
    }
    // A key that is only checked is shared with readers; one that is written is not.
    let reader = map.read_blocking(&3);
    let other = map.read_blocking(&1);
    let Err(TryBatchError::Busy(again)) = batch.take().unwrap().try_commit() else { panic!("a key is held") };
    drop(other);
    let versions = again.insert(&4, "d".into()).try_commit().unwrap();
    assert_eq!((versions.len(), reader.value()), (4, None));
    assert_eq!([1, 2, 4].map(|key| map.get_blocking(&key).unwrap()), ["b", "c", "d"]);
}

#[test]
fn a_waiting_commit_holds_earlier_keys_and_leaves_no_trace_when_it_is_dropped() {
    let map = LockMap::<u64, u32>::new();
    for held in 0..5 {
        let guard = map.write_blocking(&held);
        let batch = (0..5).fold(map.batch(), |batch, key| batch.insert(&key, 1));
        let mut commit = Box::pin(batch.commit());
        assert!(step(&mut commit).is_pending());
        assert_eq!((map.status(&held).unwrap().waiters(), map.len()), (1, 0));
        drop(commit);
        assert_eq!((map.entries(), map.status(&held).unwrap().waiters()), (1, 0));
        assert!((0..5).all(|key| map.try_write(&key).is_some() == (key != held)));
        // A commit that is polled again completes.
        let mut commit = Box::pin((0..5).fold(map.batch(), |batch, key| batch.insert(&key, 1)).commit());
        assert!(step(&mut commit).is_pending());
        drop(guard);
        let Poll::Ready(Ok(versions)) = step(&mut commit) else { panic!("the keys are free") };
        assert_eq!((versions.len(), map.len(), map.clear()), (5, 5, 0));
    }
}

#[test]
fn batches_and_calls_with_many_keys_never_deadlock() {
    let map = LockMap::<u64, u32>::new();
    let keys = [1, 2, 3, 4, 5, 6];
    let forwards = async |rounds: u32| {
        for n in 0..rounds {
            let batch = keys.iter().fold(map.batch(), |batch, key| batch.insert(key, n));
            batch.commit().await.unwrap();
            yield_now().await;
        }
    };
    let backwards = async |rounds: u32| {
        for _ in 0..rounds {
            let batch = keys.iter().rev().fold(map.batch(), |batch, key| batch.remove(key));
            batch.commit().await.unwrap();
            let guards = map.write_many(keys.iter().rev()).await;
            yield_now().await;
            drop(guards);
            let guards = map.read_write_many([&6, &1], [&3]).await;
            yield_now().await;
            drop(guards);
        }
    };
    block_on(or(
        async {
            let mut all: Vec<Pin<Box<dyn Future<Output = ()>>>> =
                vec![Box::pin(forwards(50)), Box::pin(backwards(50)), Box::pin(forwards(50)), Box::pin(backwards(50))];
            poll_fn(|cx| {
                all.retain_mut(|future| future.as_mut().poll(cx).is_pending());
                if all.is_empty() { Poll::Ready(()) } else { Poll::Pending }
            })
            .await
        },
        async {
            // This timeout comes first only if some call waits for ever.
            for _ in 0..1_000_000 {
                yield_now().await;
            }
            panic!("deadlock");
        },
    ));
}

#[test]
fn a_reader_of_several_keys_never_sees_half_of_a_batch() {
    let map = LockMap::<u64, u32>::new();
    map.batch().insert(&1, 0).insert(&2, 0).commit_blocking().unwrap();
    for first in [1, 2] {
        // The batch waits for one key, and may or may not have acquired the other.
        let reader = map.read_blocking(&first);
        let mut commit = Box::pin(map.batch().insert(&1, 1).insert(&2, 1).commit());
        assert!(step(&mut commit).is_pending());
        let mut readers = map.read_many([&2, &1]);
        let same = |guards: keylatch::Guards<_, _>| {
            let both: Vec<_> = guards.iter().map(|guard| guard.value().copied()).collect();
            assert_eq!(both[0], both[1]);
        };
        let early = poll(&mut readers);
        drop(reader);
        let read = async {
            match early {
                Poll::Ready(guards) => same(guards),
                Poll::Pending => same(readers.await),
            }
        };
        let (committed, ()) = block_on(futures_lite::future::zip(commit, read));
        assert!(committed.is_ok());
        map.batch().insert(&1, 0).insert(&2, 0).commit_blocking().unwrap();
    }
}

proptest! {
    /// Batches with every kind of step, compared with a standard map.
    #[test]
    fn batches_match_a_model(batches in prop::collection::vec(prop::collection::vec((0..6u8, 0..4u64, 0..6usize), 0..8), 1..20)) {
        let map = LockMap::<u64, u32>::builder().shards(1).pool_capacity(1).build();
        let mut model = BTreeMap::<u64, (Version, u32)>::new();
        let mut last = BTreeMap::<u64, Version>::new();
        let mut seen = BTreeMap::<u64, Vec<Version>>::new();
        let mut value = 0;
        for steps in batches {
            let mut batch = map.batch();
            // The values after the steps so far. The version is `None` if it is not known yet.
            let mut draft: BTreeMap<u64, (Option<Version>, u32)> =
                model.iter().map(|(&key, &(version, value))| (key, (Some(version), value))).collect();
            let mut conflict = None;
            for (number, &(kind, key, which)) in steps.iter().enumerate() {
                value += 1;
                // The current version, or one that was returned for this key earlier.
                let now = model.get(&key).map(|&(version, _)| version);
                let version = now.filter(|_| which < 4).or_else(|| seen.get(&key)?.get(which).copied());
                let now = draft.get(&key).copied();
                let fits = |version| now.is_some_and(|(now, _)| now == Some(version));
                let holds = match (kind, version) {
                    (0, _) | (2, None) => {
                        batch = batch.insert(&key, value);
                        draft.insert(key, (None, value));
                        true
                    }
                    (1, _) | (3, None) => {
                        batch = batch.remove(&key);
                        draft.remove(&key);
                        true
                    }
                    (2, Some(version)) => {
                        batch = batch.update_if(&key, version, value);
                        let holds = fits(version);
                        draft.insert(key, (None, value));
                        holds
                    }
                    (3, Some(version)) => {
                        batch = batch.remove_if(&key, version);
                        let holds = fits(version);
                        draft.remove(&key);
                        holds
                    }
                    (4, Some(version)) => {
                        batch = batch.check(&key, version);
                        fits(version)
                    }
                    _ => {
                        batch = batch.check_absent(&key);
                        now.is_none()
                    }
                };
                if !holds && conflict.is_none() {
                    conflict = Some((number, key));
                }
            }
            match batch.commit_blocking() {
                Ok(versions) => {
                    prop_assert_eq!(conflict, None);
                    prop_assert_eq!(versions.len(), steps.len());
                    for (&(_, key, _), returned) in steps.iter().zip(&versions) {
                        if let Some(returned) = returned {
                            let before = last.insert(key, *returned);
                            prop_assert!(before <= Some(*returned));
                        }
                        seen.entry(key).or_default().extend(returned);
                    }
                    model = draft
                        .iter()
                        .map(|(&key, &(version, value))| (key, (version.unwrap_or_else(|| last[&key]), value)))
                        .collect();
                }
                Err(error) => {
                    prop_assert_eq!(Some((error.step(), *error.key())), conflict);
                    prop_assert_eq!(error.found(), model.get(error.key()).map(|&(version, _)| version));
                }
            }
            let mut all = BTreeMap::new();
            prop_assert_eq!(map.for_each_value(|&key, &value, version| drop(all.insert(key, (version, value)))), 0);
            prop_assert_eq!(&all, &model);
            prop_assert_eq!((map.len(), map.entries()), (model.len(), model.len()));
        }
    }
}

// ---- looking --------------------------------------------------------------------------------------------------------

#[test]
fn a_value_counts_from_the_moment_it_is_inserted_until_it_is_removed() {
    let map = LockMap::<u64, u32>::new();
    let mut writer = map.write_blocking(&7);
    assert_eq!((map.len(), map.entries(), map.contains_key(&7), map.is_empty()), (0, 1, false, true));
    writer.insert(1);
    assert_eq!((map.len(), map.entries(), map.contains_key(&7), map.is_empty()), (1, 1, true, false));
    writer.insert(2);
    assert_eq!(map.len(), 1);
    writer.remove();
    assert_eq!((map.len(), map.entries(), map.contains_key(&7)), (0, 1, false));
    writer.get_or_insert_with(|| 3);
    assert_eq!((map.len(), map.contains_key(&7)), (1, true));
    drop(writer);
    assert_eq!((map.len(), map.entries(), map.contains_key(&8)), (1, 1, false));
    map.remove_blocking(&7);
    assert_eq!((map.len(), map.entries(), map.contains_key(&7)), (0, 0, false));
}

#[test]
fn for_each_value_skips_write_locked_values_and_never_waits() {
    let map: LockMap<u64, u32> = (0..6).map(|key| (key, key as u32)).collect();
    let writer = map.write_blocking(&1);
    let mut upgraded = map.upgradable_read_blocking(&2);
    let upgrade = upgraded.try_upgrade_mut();
    let empty = map.write_blocking(&9); // no value, so it is not counted as skipped
    let readers = (map.read_blocking(&3), map.upgradable_read_blocking(&4), map.handle(&5), map.write(&5));
    let mut seen = Vec::new();
    let passed = map.for_each_value(|&key, &value, version| {
        assert!(
            map.status(&key).unwrap().readers() > 0 && map.try_write(&key).is_none(),
            "the visit is not under a read lock"
        );
        assert_eq!(map.try_read(&key).unwrap().version(), Some(version));
        seen.push((key, value));
    });
    seen.sort_unstable();
    assert_eq!((passed, seen), (2, vec![(0, 0), (3, 3), (4, 4), (5, 5)]));
    drop((writer, upgrade, empty, readers));
    drop(upgraded);
    assert_eq!((map.for_each_value(|_, _, _| {}), map.entries()), (0, 6));
    // A key on which `try_read` fails because of its waiters is skipped, too.
    let reader = map.read_blocking(&0);
    let fifo = LockMap::<u64, u32>::builder().fairness(Fairness::Fifo).build();
    fifo.insert_blocking(&0, 1);
    let (held, mut waits) = (fifo.read_blocking(&0), fifo.write(&0));
    pending(&mut waits);
    assert!(fifo.try_read(&0).is_none());
    assert_eq!(fifo.for_each_value(|_, _, _| panic!("a writer waits")), 1);
    drop((held, waits, reader));
}

#[test]
fn retain_removes_rejected_values_and_skips_held_ones() {
    let map: LockMap<u64, u32> = (0..8).map(|key| (key, key as u32)).collect();
    let versions: Vec<_> = (0..8).map(|key| version(&map, &key)).collect();
    let held = (map.read_blocking(&0), map.write_blocking(&1), map.read_blocking(&20));
    let (handle, unpolled) = (map.handle(&2), map.read(&3));
    let passed = map.retain(|&key, &value| {
        assert_eq!(u64::from(value), key);
        assert!(map.try_read(&key).is_none(), "the visit is not under a write lock");
        key > 4
    });
    assert_eq!((passed, map.len()), (2, 5));
    let left: Vec<_> = (0..9).filter(|key| map.contains_key(key)).collect();
    assert_eq!(left, [0, 1, 5, 6, 7]);
    assert_eq!(map.entries(), 8, "the five with values, and those of a reader, a handle and a future");
    drop((held, handle, unpolled));
    assert!((5..8).all(|key| version(&map, &key) == versions[key as usize]), "another key was changed");
    assert_eq!(map.entries(), 5);
}

#[test]
fn clear_returns_the_number_of_values_that_remain() {
    let map: LockMap<u64, u32> = (0..8).map(|key| (key, key as u32)).collect();
    let held = (map.read_blocking(&0), map.write_blocking(&1), map.read_blocking(&20));
    assert_eq!(map.clear(), 2);
    assert_eq!((map.len(), map.entries()), (2, 3));
    drop(held);
    assert_eq!((map.clear(), map.len(), map.entries()), (0, 0, 0));
}

#[test]
fn closures_may_use_the_map() {
    let map: LockMap<u64, u32> = (0..6).map(|key| (key, 0)).collect();
    let mut visited = 0;
    map.for_each_value(|&key, &value, version| {
        visited += 1;
        if key < 100 {
            map.insert_blocking(&(key + 100), 1);
        }
        assert_eq!((map.get_blocking(&key), value), (Some(u32::from(key >= 100)), u32::from(key >= 100)));
        assert_eq!(map.try_read(&key).unwrap().version(), Some(version));
        assert!(map.entries() >= 6 && map.contains_key(&key));
        map.for_each_value(|_, _, _| {});
        map.for_each_key(|_, _| {});
    });
    assert!(visited >= 6 && map.len() >= 12);
    map.clear();
    for key in 0..6 {
        map.insert_blocking(&key, 0);
    }
    // Values that the closure removes are met neither by this visit nor by the one inside it.
    let (mut kept, removed) = (0, RefCell::new(0));
    let passed = map.retain(|&key, _| {
        kept += 1;
        for other in 0..6 {
            if other != key && map.remove_blocking(&other).is_some() {
                *removed.borrow_mut() += 1;
            }
        }
        assert_eq!(map.retain(|_, _| false), 1, "not only this key is held");
        true
    });
    assert_eq!((passed, kept, removed.into_inner(), map.len(), map.entries()), (0, 1, 5, 1, 1));
    assert_eq!(map.clear(), 0);
}

#[test]
fn for_each_key_visits_entries_with_and_without_values() {
    let map = LockMap::<u64, u32>::new();
    map.insert_blocking(&1, 1);
    let guard = map.write_blocking(&2);
    let mut seen = BTreeMap::new();
    map.for_each_key(|&key, status| drop(seen.insert(key, (status.writers(), status.holders()))));
    assert_eq!(seen, BTreeMap::from([(1, (0, 0)), (2, (1, 1))]));
    drop(guard);
}

// ---- the whole map --------------------------------------------------------------------------------------------------

#[test]
fn the_last_value_of_equal_keys_is_kept() {
    let mut map: LockMap<u64, u32> = [(1, 1), (2, 2), (1, 3)].into_iter().collect();
    assert_eq!((map.get_blocking(&1), map.len(), map.entries()), (Some(3), 2, 2));
    let seen = version(&map, &2);
    map.extend([(2, 4), (3, 5), (3, 6)]);
    assert!(version(&map, &2) > seen);
    let mut all: Vec<_> = map.into_iter().collect();
    all.sort_unstable();
    assert_eq!(all, [(1, 3), (2, 4), (3, 6)]);
}

#[test]
fn forgotten_guards_block_neither_extend_nor_into_iter() {
    let value = Arc::new(0);
    for forgotten in 0..6 {
        let mut map: LockMap<u64, Arc<u32>> = LockMap::builder().shards(2).build();
        map.insert_blocking(&1, value.clone());
        match forgotten {
            0 => std::mem::forget(map.write_blocking(&1)),
            1 => std::mem::forget((map.read_blocking(&1), map.read_blocking(&2))),
            2 => {
                let mut guard = map.upgradable_read_blocking(&1);
                std::mem::forget(guard.try_upgrade_mut());
                std::mem::forget(guard);
            }
            3 => {
                let mut guard = map.write_blocking(&2);
                guard.insert(value.clone());
                std::mem::forget(guard);
            }
            4 => std::mem::forget((map.handle(&1), map.read(&1), map.write_blocking(&2))),
            _ => {
                let writer = map.write_blocking(&1);
                let (bell, waker) = Bell::new();
                let mut waits = map.read(&1);
                assert!(poll_with(&mut waits, &waker).is_pending());
                std::mem::forget((writer, waits));
                drop(bell);
            }
        }
        let other = Arc::new(1);
        map.extend([(1, other.clone()), (2, value.clone()), (3, other.clone()), (2, other.clone())]);
        assert_eq!((map.len(), map.entries()), (3, 3), "{forgotten}");
        assert_eq!(Arc::strong_count(&value), 1);
        let mut all: Vec<_> = map.into_iter().collect();
        all.sort_unstable();
        assert_eq!(all, [(1, other.clone()), (2, other.clone()), (3, other.clone())]);
        drop(all);
        assert_eq!(Arc::strong_count(&other), 1);
    }
}

#[test]
fn into_iter_yields_every_value_once_and_drops_the_rest() {
    let value = Arc::new(());
    let map: LockMap<u64, Arc<()>> = (0..1000).map(|key| (key, value.clone())).collect();
    std::mem::forget(map.write_blocking(&5000));
    let mut iter = map.into_iter();
    assert!(iter.size_hint().0 <= 1000 && iter.size_hint().1.is_none_or(|most| most >= 1000));
    let some: std::collections::BTreeSet<_> = iter.by_ref().take(400).map(|(key, _)| key).collect();
    assert_eq!((some.len(), Arc::strong_count(&value)), (400, 601));
    drop(iter);
    assert_eq!(Arc::strong_count(&value), 1);
    let map: LockMap<u64, Arc<()>> = (0..1000).map(|key| (key, value.clone())).collect();
    drop(map);
    assert_eq!(Arc::strong_count(&value), 1);
}

#[test]
fn the_builder_has_all_settings_of_the_other_tables() {
    let map: LockMap<String, u32, RandomState> = LockMap::builder()
        .shards(3)
        .capacity(10)
        .fairness(Fairness::Fifo)
        .pool_capacity(5)
        .recycle_keys(true)
        .max_values(100)
        .hasher(RandomState::new())
        .build();
    for round in 0..3 {
        for key in ["a", "bb", "ccc"] {
            assert_eq!(map.insert_blocking(key, round), None);
            assert_eq!(block_on(map.get(key)), Some(round));
            assert_eq!(block_on(map.remove(key)), Some(round));
        }
    }
    assert_eq!(map.entries(), 0);
    let map = LockMap::<u64, u32, _>::with_hasher(RandomState::new());
    assert!(map.is_empty() && LockMap::<u64, u32>::default().is_empty());
}

#[test]
fn blocked_threads_are_admitted_in_their_turn() {
    let map = LockMap::<u64, u32>::new();
    let writer = map.write_blocking(&7);
    std::thread::scope(|scope| {
        let waits: [fn(&LockMap<u64, u32>); 8] = [
            |map| drop(map.get_blocking(&7)),
            |map| drop(map.insert_blocking(&7, 1)),
            |map| drop(map.remove_blocking(&7)),
            |map| drop(map.get_or_insert_with_blocking(&7, || 1)),
            |map| {
                map.add_or_update_blocking(&7, 1);
            },
            |map| drop(map.batch().insert(&7, 1).commit_blocking()),
            |map| drop(map.batch().check_absent(&7).commit_blocking()),
            |map| drop(map.read_many_blocking([&7])),
        ];
        for (number, wait) in waits.into_iter().enumerate() {
            let map = &map;
            scope.spawn(move || wait(map));
            until(|| map.status(&7).unwrap().waiters() == number + 1);
        }
        drop(writer);
    });
    assert_eq!(map.clear(), 0);
    assert_eq!(map.entries(), 0);
}

#[test]
fn a_value_may_be_zero_sized_or_large_or_contain_a_map() {
    let units = LockMap::<u64, ()>::new();
    assert_eq!((units.insert_blocking(&1, ()), units.insert_blocking(&1, ()), units.len()), (None, Some(()), 1));
    let large = LockMap::<u8, [u64; 2000]>::new();
    large.insert_blocking(&1, [7; 2000]);
    assert_eq!(large.get_blocking(&1).unwrap()[1999], 7);
    let nested = LockMap::<u64, LockMap<u64, u32>>::new();
    nested.get_or_insert_with_blocking(&1, LockMap::new).value().unwrap().insert_blocking(&2, 3);
    assert_eq!(nested.read_blocking(&1).value().unwrap().get_blocking(&2), Some(3));
    let boxed: LockMap<u64, Box<dyn Fn() -> u32 + Send + Sync>> = LockMap::new();
    boxed.insert_blocking(&1, Box::new(|| 7));
    assert_eq!((boxed.read_blocking(&1).value().unwrap())(), 7);
    assert_eq!(block_on(units.get(&1)), Some(()));
}
