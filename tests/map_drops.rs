//! When a map drops the values that it does not give back: with no lock held, and after those have been woken who wait.

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
    let map = Arc::new(LockMap::builder().max_values(1).shards(1).fairness(Fairness::Fifo).build());
    map.insert_blocking(&2, QUIET);
    let reader = map.upgradable_read_arc_blocking(&2);
    let rung = put_one_too_many(&map, bell);
    (map, reader, rung)
}

/// The value of key 1, beside that of key 2, which somebody reads.
fn put_one_too_many(map: &Map, bell: &Arc<Bell>) -> Arc<AtomicUsize> {
    let (rung, bell) = (Arc::new(AtomicUsize::new(0)), Arc::clone(bell));
    let count = Arc::clone(&rung);
    map.insert_blocking(&1, Value(Some(Box::new(move || _ = count.fetch_add(bell.take(), SeqCst)))));
    assert_eq!(map.len(), 2);
    rung
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

/// Of some keys, one that a request for it and for key 2 holds while it waits for key 2: it is the map that says which of two comes
/// first. All have handles, which are given too, so that the order stays.
fn before_2(map: &Arc<Map>) -> (u64, Vec<KeyHandleArc<Map>>) {
    let handles: Vec<_> = (3..30).chain([2]).chain(30..50).map(|key| map.handle_arc(&key)).collect();
    let _writer = map.write_blocking(&2);
    let first = (3..50).find(|key| {
        let mut both = map.write_many(&[*key, 2]);
        assert!(poll(&mut both).is_pending());
        map.is_locked(key)
    });
    (first.expect("key 2 comes before all others"), handles)
}

/// Releases all that it holds before it wakes anybody, and lets values go after that. Else the drop of a value could wait for a key
/// that has been handed to somebody who does not know.
#[test]
fn who_is_handed_a_key_by_a_dropped_request_for_several_is_woken_before_a_value_is_dropped() {
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
        let (key, handles) = before_2(&map);
        map.insert_blocking(&2, QUIET);
        let reader = map.read_blocking(&2);
        let mut request = request(&map, key);
        assert!(poll(&mut request).is_pending() && map.is_locked(&key));
        let mut waiter = map.read(&key);
        assert!(poll_with(&mut waiter, &waker).is_pending());
        let rung = put_one_too_many(&map, &bell);
        drop(request);
        assert!(!map.contains_key(&1));
        assert_eq!(rung.load(SeqCst), 1);
        drop((ready(waiter), reader, handles));
    }
}

#[test]
fn who_is_handed_a_key_by_a_call_for_several_that_times_out_is_woken_before_a_value_is_dropped() {
    type Come = Box<dyn FnOnce() + Send>;
    let come = Arc::new(Mutex::new(None::<Come>));
    let comes = Arc::clone(&come);
    // In the middle of the call, when that begins to wait.
    let observer = move |event: &WaitEvent<'_, u64>| {
        let come = comes.lock().unwrap().take_if(|_| event.phase() == WaitPhase::Started);
        come.into_iter().for_each(|come| come());
    };
    let map: Arc<Map> =
        Arc::new(LockMap::builder().max_values(1).shards(1).fairness(Fairness::Fifo).on_wait(observer).build());
    let (key, handles) = before_2(&map);
    map.insert_blocking(&2, QUIET);
    let reader = map.read_blocking(&2);
    let came = Arc::new(Mutex::new(None));
    *come.lock().unwrap() = Some(Box::new({
        let (map, came) = (Arc::clone(&map), Arc::clone(&came));
        move || {
            let (bell, waker) = Bell::new();
            let mut waiter = map.read_arc(&key);
            assert!(poll_with(&mut waiter, &waker).is_pending());
            *came.lock().unwrap() = Some((waiter, put_one_too_many(&map, &bell)));
        }
    }));
    assert!(map.try_write_many_for(&[key, 2], Duration::from_millis(1)).is_none());
    let (waiter, rung) = came.lock().unwrap().take().expect("the call has waited");
    assert!(!map.contains_key(&1));
    assert_eq!(rung.load(SeqCst), 1);
    drop((ready(waiter), reader, handles));
}

/// All keys of a batch are free when the values go that have to: those that it only looked at as well.
#[test]
fn a_value_that_a_batch_evicts_is_dropped_when_all_its_keys_are_free() {
    type Commit = fn(&Map);
    let commits: [Commit; 4] = [
        |map| drop(map.batch().check_absent(&4).insert(&3, QUIET).check_absent(&5).commit_blocking()),
        |map| drop(ready(pin!(map.batch().insert(&3, QUIET).check_absent(&4).check_absent(&5).commit()))),
        |map| drop(map.batch().check_absent(&4).remove(&3).check_absent(&5).try_commit()),
        // One that is in conflict.
        |map| drop(map.batch().insert(&3, QUIET).check_absent(&4).check_absent(&2).try_commit()),
    ];
    for (n, commit) in commits.into_iter().enumerate() {
        let map: Arc<Map> = Arc::new(LockMap::builder().max_values(1).shards(1).build());
        map.insert_blocking(&2, QUIET);
        let reader = map.read_arc_blocking(&2);
        let (weak, free) = (Arc::downgrade(&map), Arc::new(Mutex::new(Vec::new())));
        let counted = Arc::clone(&free);
        let happens = move || {
            let map = weak.upgrade().expect("nothing goes with the map");
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
