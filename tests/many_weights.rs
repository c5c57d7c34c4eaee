//! Several permits of each of several keys: `acquire_n_many` in every form; `Guards::remove`; and the aliases of
//! `Guards`.

mod common;

use std::future::{pending as never, ready as at_once};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use common::{Random, poll, ready};
use futures_lite::future::block_on;
use keylatch::{
    Fairness, KeyedMutex, KeyedRwLock, KeyedSemaphore, LockMap, MapReadGuards, MapReadGuardsArc, MapWriteGuards,
    MapWriteGuardsArc, MutexGuards, MutexGuardsArc, PermitGuards, PermitGuardsArc, ReadGuards, ReadGuardsArc,
    WriteGuards, WriteGuardsArc,
};

type Hosts = KeyedSemaphore<String>;

fn held(hosts: &Hosts, key: &str) -> usize {
    hosts.status(key).map_or(0, |status| status.permits())
}

fn amounts(guards: &PermitGuards<'_, String>) -> Vec<(String, usize)> {
    guards.iter().map(|guard| (guard.key().clone(), guard.permits())).collect()
}

/// Runs `$check` with every form, as a closure that returns the number of guards, or `None`.
macro_rules! in_every_form {
    ($hosts:ident, $list:expr, |$form:ident, $got:ident| $check:block) => {{
        let hour = Duration::from_secs(3600);
        macro_rules! form {
            ($call:expr) => {{
                let ($form, $got) = (stringify!($call), || $call);
                $check
            }};
        }
        form!(Some(ready($hosts.acquire_n_many($list)).len()));
        form!(block_on($hosts.acquire_n_many($list).until(never::<()>())).ok().map(|guards| guards.len()));
        form!(block_on($hosts.acquire_n_many($list).until(at_once(()))).ok().map(|guards| guards.len()));
        form!(Some($hosts.acquire_n_many_blocking($list).len()));
        form!($hosts.try_acquire_n_many($list).map(|guards| guards.len()));
        form!($hosts.try_acquire_n_many_for($list, hour).map(|guards| guards.len()));
        form!($hosts.try_acquire_n_many_until($list, Instant::now() + hour).map(|guards| guards.len()));
        form!(Some(ready($hosts.acquire_n_many_arc($list)).len()));
        form!(Some($hosts.acquire_n_many_arc_blocking($list).len()));
        form!($hosts.try_acquire_n_many_arc($list).map(|guards| guards.len()));
        form!($hosts.try_acquire_n_many_arc_for($list, hour).map(|guards| guards.len()));
        form!($hosts.try_acquire_n_many_arc_until($list, Instant::now() + hour).map(|guards| guards.len()));
    }};
}

#[test]
fn each_key_gets_its_number_of_permits_and_releases_it() {
    let hosts = Hosts::new(3);
    let guards = hosts.acquire_n_many_blocking([("b", 2), ("a", 3), ("c", 1)]);
    assert_eq!(amounts(&guards), [("b".into(), 2), ("a".into(), 3), ("c".into(), 1)]);
    assert_eq!((held(&hosts, "a"), held(&hosts, "b"), held(&hosts, "c")), (3, 2, 1));
    assert!(hosts.try_acquire("a").is_none() && hosts.try_acquire("b").is_some());
    // The permits of one guard can be split, and released early.
    let mut a = guards.into_iter().nth(1).unwrap();
    drop(a.split(2));
    assert_eq!((held(&hosts, "a"), hosts.len()), (1, 1));
    drop(a);
    assert!(hosts.is_empty());
}

#[test]
fn every_form_acquires_all_keys() {
    let hosts = Arc::new(Hosts::new(2));
    in_every_form!(hosts, [("a", 2), ("b", 1)], |form, got| {
        assert_eq!(got(), Some(2), "{form}");
        assert_eq!(hosts.len(), 0, "{form}");
    });
    in_every_form!(hosts, [("a", 1)], |form, got| { assert_eq!(got(), Some(1), "{form}") });
    in_every_form!(hosts, <[(&str, usize); 0]>::default(), |form, got| { assert_eq!(got(), Some(0), "{form}") });
}

#[test]
fn every_form_with_a_limit_acquires_all_or_nothing() {
    let hosts = Arc::new(Hosts::new(3));
    let other = hosts.try_acquire_n("b", 2).unwrap();
    let list = || [("a", 3), ("b", 2), ("c", 1)];
    let none = |got: bool, form: &str| {
        assert!(!got, "{form}");
        assert_eq!((hosts.len(), held(&hosts, "b"), hosts.waiters("b")), (1, 2, 0), "{form}");
    };
    let soon = Duration::from_millis(1);
    none(hosts.try_acquire_n_many(list()).is_some(), "try");
    none(hosts.try_acquire_n_many_for(list(), soon).is_some(), "for");
    none(hosts.try_acquire_n_many_until(list(), Instant::now() + soon).is_some(), "until");
    none(hosts.try_acquire_n_many_arc(list()).is_some(), "try arc");
    none(hosts.try_acquire_n_many_arc_for(list(), soon).is_some(), "for arc");
    none(hosts.try_acquire_n_many_arc_until(list(), Instant::now() + soon).is_some(), "until arc");
    none(block_on(hosts.acquire_n_many(list()).until(at_once(()))).is_ok(), "async until");
    none(block_on(hosts.acquire_n_many_arc(list()).until(at_once(()))).is_ok(), "async until arc");
    // One permit of "b" is free.
    assert_eq!(hosts.try_acquire_n_many([("a", 3), ("b", 1)]).unwrap().len(), 2);
    drop(other);
    assert!(hosts.is_empty());
}

#[test]
fn a_key_named_twice_gets_its_largest_number() {
    let hosts = Arc::new(Hosts::new(3));
    let list = || [("b", 1), ("a", 2), ("b", 3), ("a", 1), ("b", 2)];
    let expected = [("b".to_string(), 3), ("a".to_string(), 2)];
    assert_eq!(amounts(&hosts.acquire_n_many_blocking(list())), expected);
    assert_eq!(amounts(&ready(hosts.acquire_n_many(list()))), expected);
    assert_eq!(amounts(&hosts.try_acquire_n_many(list()).unwrap()), expected);
    assert_eq!(amounts(&hosts.try_acquire_n_many_for(list(), Duration::ZERO).unwrap()), expected);
    in_every_form!(hosts, list(), |form, got| {
        assert_eq!(got(), Some(2), "{form}");
        assert_eq!(hosts.len(), 0, "{form}");
    });
    let one = hosts.try_acquire("b").unwrap();
    assert!(hosts.try_acquire_n_many(list()).is_none());
    assert_eq!((held(&hosts, "b"), hosts.len()), (1, 1));
    drop(one);
}

#[test]
fn long_lists_give_the_largest_numbers_in_the_order_of_first_mention() {
    let mut random = Random(11);
    let hosts = KeyedSemaphore::<u64>::new(5);
    for _ in 0..300 {
        let list: Vec<(u64, usize)> =
            (0..random.next(30)).map(|_| (random.next(12), 1 + random.next(5) as usize)).collect();
        let mut expected: Vec<(u64, usize)> = vec![];
        for &(key, n) in &list {
            match expected.iter_mut().find(|(other, _)| *other == key) {
                Some((_, most)) => *most = n.max(*most),
                None => expected.push((key, n)),
            }
        }
        let pairs = || list.iter().map(|(key, n)| (key, *n));
        let got = |guards: PermitGuards<'_, u64>| -> Vec<_> {
            guards.iter().map(|guard| (*guard.key(), guard.permits())).collect()
        };
        assert_eq!(got(hosts.acquire_n_many_blocking(pairs())), expected);
        assert_eq!(got(ready(hosts.acquire_n_many(pairs()))), expected);
        assert_eq!(got(hosts.try_acquire_n_many(pairs()).unwrap()), expected);
        assert!(hosts.is_empty());
    }
}

#[test]
fn a_number_out_of_range_panics_at_the_call_and_leaves_nothing() {
    let hosts = Arc::new(Hosts::new(3));
    for n in [0, 4, usize::MAX] {
        for list in [[("a", 1), ("b", n)], [("b", n), ("a", 1)]] {
            in_every_form!(hosts, list, |form, got| {
                let panicked = catch_unwind(AssertUnwindSafe(got)).unwrap_err();
                let message = panicked.downcast_ref::<String>().unwrap();
                assert!(message.contains(&n.to_string()) && message.contains('3'), "{form}: {message}");
                assert_eq!(hosts.len(), 0, "{form}");
            });
        }
        // The panic comes at the call, before any poll.
        assert!(catch_unwind(AssertUnwindSafe(|| drop(hosts.acquire_n_many([("a", 1), ("b", n)])))).is_err());
        assert!(hosts.is_empty());
    }
}

#[test]
fn a_cancelled_waiting_call_leaves_nothing() {
    let hosts = Hosts::new(3);
    let (a, b) = (hosts.try_acquire_n("a", 2).unwrap(), hosts.try_acquire_n("b", 2).unwrap());
    let mut waits = Box::pin(hosts.acquire_n_many([("a", 2), ("b", 2), ("a", 1), ("c", 3)]));
    assert!(poll(&mut waits).is_pending());
    assert_eq!(hosts.waiters("a") + hosts.waiters("b"), 1, "it waits for one key after another");
    drop(waits);
    assert_eq!((hosts.waiters("a"), hosts.waiters("b"), held(&hosts, "c"), hosts.len()), (0, 0, 0, 2));
    let mut waits = Box::pin(hosts.acquire_n_many([("a", 2), ("b", 2)]));
    assert!(poll(&mut waits).is_pending());
    drop((a, b));
    assert_eq!(amounts(&ready(waits)), [("a".into(), 2), ("b".into(), 2)]);
    assert!(hosts.is_empty());
}

#[test]
fn calls_in_every_order_of_keys_finish_under_every_policy() {
    use Fairness::{Adaptive, Barging, Bounded, Fifo};
    for fairness in [Adaptive, Bounded(0), Bounded(16), Fifo, Barging] {
        let hosts: Arc<KeyedSemaphore<u64>> = Arc::new(KeyedSemaphore::builder(4).fairness(fairness).build());
        let threads: Vec<_> = (0..4)
            .map(|by| {
                let hosts = Arc::clone(&hosts);
                thread::spawn(move || {
                    let mut random = Random(by + 1);
                    for _ in 0..200 {
                        let list: Vec<_> = (0..4).map(|_| (random.next(5), 1 + random.next(4) as usize)).collect();
                        let guards = hosts.acquire_n_many_blocking(list.iter().map(|(key, n)| (key, *n)));
                        assert!(guards.iter().all(|guard| hosts.status(guard.key()).unwrap().permits() <= 4));
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(hosts.is_empty());
    }
}

// ---- Guards::remove ------------------------------------------------------------------------------------

#[test]
fn a_removed_guard_keeps_its_key_and_the_others_stay_in_order() {
    let locks = KeyedMutex::<String>::new();
    let mut guards = locks.lock_many_blocking(["d", "b", "a", "c"]);
    let b = guards.remove("b").unwrap();
    assert!(guards.remove("b").is_none() && guards.remove("x").is_none() && guards.get("b").is_none());
    assert!(guards.iter().map(|guard| guard.key().as_str()).eq(["d", "a", "c"]));
    drop(guards.remove("d"));
    assert!(!locks.is_locked("d") && locks.is_locked("b") && locks.is_locked("a"));
    drop(guards);
    assert_eq!((b.key().as_str(), locks.len()), ("b", 1));
    drop(b);
    assert!(locks.is_empty());
}

#[test]
fn every_guard_can_be_removed() {
    let locks = KeyedMutex::<u64>::new();
    for list in [&[1][..], &[1, 2], &[1, 2, 3]] {
        let mut guards = locks.lock_many_blocking(list);
        assert!(guards.remove(&9).is_none());
        let taken: Vec<_> = list.iter().map(|key| guards.remove(key).unwrap()).collect();
        assert!(guards.is_empty() && guards.remove(&1).is_none());
        drop(guards);
        assert_eq!((taken.len(), locks.len()), (list.len(), list.len()));
        drop(taken);
        assert!(locks.is_empty());
    }
}

#[test]
fn a_removed_writer_can_be_downgraded_while_the_others_write() {
    let map: LockMap<u64, u64> = [(1, 1), (2, 2)].into_iter().collect();
    let mut guards = map.write_many_blocking([&1, &2]);
    let reader = guards.remove(&1).unwrap().downgrade();
    guards.get_mut(&2).unwrap().insert(20);
    assert!(map.try_read(&1).is_some() && map.try_read(&2).is_none());
    drop((reader, guards));
    assert_eq!(map.get_blocking(&2), Some(20));
}

#[test]
fn each_table_has_aliases_for_its_guards() {
    let (locks, pages) = (Arc::new(KeyedMutex::<u64>::new()), Arc::new(KeyedRwLock::<u64>::new()));
    let (hosts, map) = (Arc::new(KeyedSemaphore::<u64>::new(1)), Arc::new(LockMap::<u64, u64>::new()));
    drop::<(MutexGuards<'_, u64>, MutexGuardsArc<u64>)>((
        locks.lock_many_blocking([&1]),
        locks.lock_many_arc_blocking([&2]),
    ));
    drop::<(ReadGuards<'_, u64>, ReadGuardsArc<u64>)>((
        pages.read_many_blocking([&1]),
        pages.read_many_arc_blocking([&1]),
    ));
    drop::<(WriteGuards<'_, u64>, WriteGuardsArc<u64>)>((
        pages.write_many_blocking([&1]),
        pages.write_many_arc_blocking([&2]),
    ));
    drop::<(PermitGuards<'_, u64>, PermitGuardsArc<u64>)>((
        hosts.acquire_many_blocking([&1]),
        hosts.acquire_n_many_arc_blocking([(&2, 1)]),
    ));
    drop::<(MapReadGuards<'_, u64, u64>, MapReadGuardsArc<u64, u64>)>((
        map.read_many_blocking([&1]),
        map.read_many_arc_blocking([&1]),
    ));
    drop::<(MapWriteGuards<'_, u64, u64>, MapWriteGuardsArc<u64, u64>)>((
        map.write_many_blocking([&1]),
        map.write_many_arc_blocking([&2]),
    ));
    let (reads, writes): (ReadGuards<'_, u64>, WriteGuards<'_, u64>) = pages.read_write_many_blocking([&1], [&2]);
    drop((reads, writes));
    assert!(locks.is_empty() && pages.is_empty() && hosts.is_empty() && map.entries() == 0);
}
