//! When a map drops the values that it does not give back: with no lock held, and after those have been woken who wait.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Wake, Waker};

use common::{Bell, poll, poll_with, ready};
use keylatch::{Fairness, LockMap, MapUpgradableGuardArc};

/// What happens when the value is dropped.
struct Value(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Drop for Value {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(|happens| happens());
    }
}

const QUIET: Value = Value(None);

type Map = LockMap<u64, Value>;

/// With room for one value, whose drop is counted, looks at everything, and can write its own key.
fn meddling() -> (Arc<Map>, Arc<AtomicUsize>) {
    let map: Arc<Map> = Arc::new(LockMap::builder().max_values(1).shards(1).build());
    let drops = Arc::new(AtomicUsize::new(0));
    let (weak, count) = (Arc::downgrade(&map), Arc::clone(&drops));
    let happens = move || {
        count.fetch_add(1, SeqCst);
        let Some(map) = weak.upgrade() else { return };
        assert!(map.len() <= 2 && map.entries() <= 2);
        assert!(map.try_write(&1).is_some(), "the key is locked");
        assert_eq!(map.for_each_value(|_, _, _| {}), 0);
    };
    map.insert_blocking(&1, Value(Some(Box::new(happens))));
    (map, drops)
}

#[test]
fn an_evicted_value_is_dropped_with_no_lock_held() {
    let (map, drops) = meddling();
    assert!(map.insert_blocking(&2, QUIET).is_none());
    assert_eq!(drops.load(SeqCst), 1);
    let (map, drops) = meddling();
    map.write_blocking(&2).insert(QUIET);
    assert_eq!(drops.load(SeqCst), 1);
    // Kept by a future that has not asked yet.
    let (map, drops) = meddling();
    let future = map.read(&1);
    assert!(map.insert_blocking(&2, QUIET).is_none());
    assert_eq!(drops.load(SeqCst), 1);
    assert!(ready(future).value().is_none());
}

#[test]
fn a_value_that_is_written_over_is_dropped_with_no_lock_held() {
    let (map, drops) = meddling();
    let seen = map.read_blocking(&1).version().unwrap();
    map.update_if_blocking(&1, seen, QUIET).ok().unwrap();
    assert_eq!(drops.load(SeqCst), 1);
    let (map, drops) = meddling();
    map.batch().insert(&1, QUIET).commit_blocking().ok().unwrap();
    assert_eq!(drops.load(SeqCst), 1);
    let (map, drops) = meddling();
    assert_eq!((map.clear(), drops.load(SeqCst)), (0, 1));
}

/// Else the drop would wait for one who has been handed the key, and does not know.
#[test]
fn who_waits_for_one_of_several_keys_is_woken_before_a_value_is_dropped() {
    let map: Arc<Map> = Arc::new(LockMap::builder().max_values(1).shards(1).fairness(Fairness::Fifo).build());
    let ((bell, waker), woken) = (Bell::new(), Arc::new(AtomicUsize::new(0)));
    let happens = {
        let (bell, woken) = (Arc::clone(&bell), Arc::clone(&woken));
        move || _ = woken.fetch_add(bell.take(), SeqCst)
    };
    map.insert_blocking(&1, Value(Some(Box::new(happens))));
    let mut guards = map.write_many_blocking(&[2, 3]);
    guards.iter_mut().for_each(|guard| _ = guard.insert(QUIET));
    let mut waiter = map.read(&2);
    assert!(poll_with(&mut waiter, &waker).is_pending());
    assert!(map.contains_key(&1));
    drop(guards);
    assert!(!map.contains_key(&1));
    assert_eq!(woken.load(SeqCst), 1);
    drop(ready(waiter));
    assert_eq!(map.len(), 1);
}

/// Two values where there is room for one. The second, whose key is 1, has just been inserted, and goes as soon as somebody leaves
/// key 2, of which a guard is given. When it goes it counts how often the bell has been rung.
fn one_too_many(bell: &Arc<Bell>) -> (Arc<Map>, MapUpgradableGuardArc<u64, Value>, Arc<AtomicUsize>) {
    let map: Arc<Map> = Arc::new(LockMap::builder().max_values(1).shards(1).fairness(Fairness::Fifo).build());
    let (rung, bell) = (Arc::new(AtomicUsize::new(0)), Arc::clone(bell));
    let count = Arc::clone(&rung);
    map.insert_blocking(&2, QUIET);
    let reader = map.upgradable_read_arc_blocking(&2);
    map.insert_blocking(&1, Value(Some(Box::new(move || _ = count.fetch_add(bell.take(), SeqCst)))));
    assert_eq!(map.len(), 2);
    (map, reader, rung)
}

#[test]
fn those_whom_a_cancelled_writer_kept_out_are_woken_before_a_value_is_dropped() {
    let (bell, waker) = Bell::new();
    let (map, reader, rung) = one_too_many(&bell);
    let mut writer = map.write(&2);
    assert!(poll(&mut writer).is_pending());
    let mut waiter = map.read(&2);
    assert!(poll_with(&mut waiter, &waker).is_pending());
    drop(writer);
    assert!(!map.contains_key(&1));
    assert_eq!(rung.load(SeqCst), 1);
    drop((ready(waiter), reader));
}

#[test]
fn those_whom_a_dropped_upgrade_kept_out_are_woken_before_a_value_is_dropped() {
    let (bell, waker) = Bell::new();
    let (map, upgradable, rung) = one_too_many(&bell);
    let reader = map.read_blocking(&2);
    let mut upgrade = upgradable.upgrade();
    assert!(poll(&mut upgrade).is_pending());
    let mut waiter = map.read(&2);
    assert!(poll_with(&mut waiter, &waker).is_pending());
    drop(upgrade);
    assert!(!map.contains_key(&1));
    assert_eq!(rung.load(SeqCst), 1);
    drop((ready(waiter), reader));
}

#[test]
fn a_value_too_many_goes_though_a_waker_panics() {
    struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            resume_unwind(Box::new(()));
        }
    }

    let (map, upgradable, _) = one_too_many(&Bell::new().0);
    let writer = upgradable.try_upgrade().unwrap();
    let mut waiter = map.read(&2);
    assert!(poll_with(&mut waiter, &Waker::from(Arc::new(Panics))).is_pending());
    assert!(map.contains_key(&1));
    assert!(catch_unwind(AssertUnwindSafe(|| drop(writer))).is_err());
    assert!(!map.contains_key(&1));
    drop(ready(waiter));
}
