//! The map drops discarded values with no lock held, and after it has woken the waiters.

mod common;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::time::Duration;

use common::{Bell, poll, poll_with, ready};
use keylatch::{Fairness, KeyHandleArc, LockMap, MapUpgradableGuardArc, WaitEvent, WaitPhase};

/// A value that runs a closure when it is dropped.
struct Value(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Drop for Value {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(|happens| happens());
    }
}

const QUIET: Value = Value(None);

type Map = LockMap<u64, Value>;

/// Creates a map with room for one value. When that value is dropped, it is counted, uses the map, and locks its own
/// key. Returns the counter, too.
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
    // A future that has not been polled yet keeps the entry of the evicted value.
    let (map, drops) = meddling();
    let future = map.read(&1);
    assert!(map.insert_blocking(&2, QUIET).is_none());
    assert_eq!(drops.load(SeqCst), 1);
    assert!(ready(future).value().is_none());
}

#[test]
fn an_overwritten_value_is_dropped_with_no_lock_held() {
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

/// If the value were dropped first, its drop could wait for a waiter that was handed the key and has not been woken.
#[test]
fn a_waiter_for_one_of_several_keys_is_woken_before_a_value_is_dropped() {
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

/// Creates a map with two values and room for one. The value of key 1 has just been inserted, and is evicted as soon as
/// the returned hold on key 2 is released. When that value is dropped, it adds the number of the bell's wake-ups to the
/// returned counter.
fn map_with_excess_value(bell: &Arc<Bell>) -> (Arc<Map>, MapUpgradableGuardArc<u64, Value>, Arc<AtomicUsize>) {
    let map = Arc::new(LockMap::builder().max_values(1).shards(1).fairness(Fairness::Fifo).build());
    map.insert_blocking(&2, QUIET);
    let reader = map.upgradable_read_arc_blocking(&2);
    let wake_ups = insert_excess_value(&map, bell);
    (map, reader, wake_ups)
}

/// Inserts the value of key 1 beside that of key 2, which a reader holds.
fn insert_excess_value(map: &Map, bell: &Arc<Bell>) -> Arc<AtomicUsize> {
    let (wake_ups, bell) = (Arc::new(AtomicUsize::new(0)), Arc::clone(bell));
    let count = Arc::clone(&wake_ups);
    map.insert_blocking(&1, Value(Some(Box::new(move || _ = count.fetch_add(bell.take(), SeqCst)))));
    assert_eq!(map.len(), 2);
    wake_ups
}

#[test]
fn waiters_behind_a_cancelled_writer_are_woken_before_a_value_is_dropped() {
    let (bell, waker) = Bell::new();
    let (map, reader, wake_ups) = map_with_excess_value(&bell);
    let mut writer = map.write(&2);
    assert!(poll(&mut writer).is_pending());
    let mut waiter = map.read(&2);
    assert!(poll_with(&mut waiter, &waker).is_pending());
    drop(writer);
    assert!(!map.contains_key(&1));
    assert_eq!(wake_ups.load(SeqCst), 1);
    drop((ready(waiter), reader));
}

#[test]
fn waiters_behind_a_dropped_upgrade_are_woken_before_a_value_is_dropped() {
    let (bell, waker) = Bell::new();
    let (map, upgradable, wake_ups) = map_with_excess_value(&bell);
    let reader = map.read_blocking(&2);
    let mut upgrade = upgradable.upgrade();
    assert!(poll(&mut upgrade).is_pending());
    let mut waiter = map.read(&2);
    assert!(poll_with(&mut waiter, &waker).is_pending());
    drop(upgrade);
    assert!(!map.contains_key(&1));
    assert_eq!(wake_ups.load(SeqCst), 1);
    drop((ready(waiter), reader));
}

/// Finds a key that comes before key 2 in the map's order, so that a request for both holds the first one while it
/// waits for key 2. All keys have handles, which are returned, too, so that the order stays the same.
fn key_before_2(map: &Arc<Map>) -> (u64, Vec<KeyHandleArc<Map>>) {
    let handles: Vec<_> = (3..30).chain([2]).chain(30..50).map(|key| map.handle_arc(&key)).collect();
    let _writer = map.write_blocking(&2);
    let first = (3..50).find(|key| {
        let mut both = map.write_many(&[*key, 2]);
        assert!(poll(&mut both).is_pending());
        map.is_locked(key)
    });
    (first.expect("key 2 is the first of all keys"), handles)
}

/// A dropped request first releases all of its keys, then wakes, then drops values. Otherwise the drop of a value
/// could wait for a key that was handed to a waiter which has not been woken.
#[test]
fn a_dropped_request_for_several_wakes_waiters_before_a_value_is_dropped() {
    type Request<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;
    let requests: [fn(&Map, u64) -> Request<'_>; 2] = [
        |map, key| Box::pin(async move { drop(map.write_many(&[key, 2]).await) }),
        |map, key| {
            let batch = map.batch().insert(&key, QUIET).insert(&2, QUIET);
            Box::pin(async move { drop(batch.commit().await) })
        },
    ];
    for request in requests {
        let (bell, waker) = Bell::new();
        let map = Arc::new(LockMap::builder().max_values(1).shards(1).fairness(Fairness::Fifo).build());
        let (key, handles) = key_before_2(&map);
        map.insert_blocking(&2, QUIET);
        let reader = map.read_blocking(&2);
        let mut request = request(&map, key);
        assert!(poll(&mut request).is_pending() && map.is_locked(&key));
        let mut waiter = map.read(&key);
        assert!(poll_with(&mut waiter, &waker).is_pending());
        let wake_ups = insert_excess_value(&map, &bell);
        drop(request);
        assert!(!map.contains_key(&1));
        assert_eq!(wake_ups.load(SeqCst), 1);
        drop((ready(waiter), reader, handles));
    }
}

#[test]
fn a_call_for_several_that_times_out_wakes_waiters_before_a_value_is_dropped() {
    type Action = Box<dyn FnOnce() + Send>;
    let action = Arc::new(Mutex::new(None::<Action>));
    let pending_action = Arc::clone(&action);
    // The observer acts in the middle of the call, when it begins to wait.
    let observer = move |event: &WaitEvent<'_, u64>| {
        let action = pending_action.lock().unwrap().take_if(|_| event.phase() == WaitPhase::Started);
        action.into_iter().for_each(|action| action());
    };
    let map: Arc<Map> =
        Arc::new(LockMap::builder().max_values(1).shards(1).fairness(Fairness::Fifo).on_wait(observer).build());
    let (key, handles) = key_before_2(&map);
    map.insert_blocking(&2, QUIET);
    let reader = map.read_blocking(&2);
    let arrived = Arc::new(Mutex::new(None));
    *action.lock().unwrap() = Some(Box::new({
        let (map, arrived) = (Arc::clone(&map), Arc::clone(&arrived));
        move || {
            let (bell, waker) = Bell::new();
            let mut waiter = map.read_arc(&key);
            assert!(poll_with(&mut waiter, &waker).is_pending());
            *arrived.lock().unwrap() = Some((waiter, insert_excess_value(&map, &bell)));
        }
    }));
    assert!(map.try_write_many_for(&[key, 2], Duration::from_millis(1)).is_none());
    let (waiter, wake_ups) = arrived.lock().unwrap().take().expect("the call has waited");
    assert!(!map.contains_key(&1));
    assert_eq!(wake_ups.load(SeqCst), 1);
    drop((ready(waiter), reader, handles));
}

/// All keys of a batch, including those it only checked, are free when values are dropped.
#[test]
fn a_value_evicted_by_a_batch_is_dropped_after_all_of_its_keys_are_free() {
    type Commit = fn(&Map);
    let commits: [Commit; 4] = [
        |map| drop(map.batch().check_absent(&4).insert(&3, QUIET).check_absent(&5).commit_blocking()),
        |map| drop(ready(pin!(map.batch().insert(&3, QUIET).check_absent(&4).check_absent(&5).commit()))),
        |map| drop(map.batch().check_absent(&4).remove(&3).check_absent(&5).try_commit()),
        // A batch with a conflict.
        |map| drop(map.batch().insert(&3, QUIET).check_absent(&4).check_absent(&2).try_commit()),
    ];
    for (n, commit) in commits.into_iter().enumerate() {
        let map: Arc<Map> = Arc::new(LockMap::builder().max_values(1).shards(1).build());
        map.insert_blocking(&2, QUIET);
        let reader = map.read_arc_blocking(&2);
        let (weak, free) = (Arc::downgrade(&map), Arc::new(Mutex::new(Vec::new())));
        let counted = Arc::clone(&free);
        let happens = move || {
            let map = weak.upgrade().expect("no value is dropped with the map");
            *counted.lock().unwrap() = (3..=5).filter(|key| map.try_write(key).is_some()).collect();
        };
        map.insert_blocking(&1, Value(Some(Box::new(happens))));
        assert!(map.contains_key(&1));
        commit(&map);
        assert!(!map.contains_key(&1));
        assert_eq!((&free.lock().unwrap()[..], map.contains_key(&2)), (&[3, 4, 5][..], true), "{n}");
        drop(reader);
    }
}

#[test]
fn an_excess_value_is_evicted_even_if_a_waker_panics() {
    struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            resume_unwind(Box::new(()));
        }
    }

    let (map, upgradable, _) = map_with_excess_value(&Bell::new().0);
    let writer = upgradable.try_upgrade().unwrap();
    let mut waiter = map.read(&2);
    assert!(poll_with(&mut waiter, &Waker::from(Arc::new(Panics))).is_pending());
    assert!(map.contains_key(&1));
    assert!(catch_unwind(AssertUnwindSafe(|| drop(writer))).is_err());
    assert!(!map.contains_key(&1));
    drop(ready(waiter));
}
