//! Guarantee 5 for wakers: they run outside every internal lock, and may do anything.
#![allow(unsafe_code)] // a waker made by hand

mod common;

use std::cell::Cell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, RawWaker, RawWakerVTable, Wake, Waker};

use common::{Bell, pending, poll, poll_with, ready};
use keylatch::{Fairness, KeyedMutex, KeyedRwLock, KeyedSemaphore, MutexGuardArc, ReadGuardArc};

type Locks = Arc<KeyedMutex<u64>>;

fn one_shard(fairness: Fairness) -> Locks {
    Arc::new(KeyedMutex::builder().shards(1).fairness(fairness).build())
}

const ALL: [Fairness; 5] =
    [Fairness::Adaptive, Fairness::Fifo, Fairness::Bounded(0), Fairness::Bounded(16), Fairness::Barging];

fn meddle(locks: &Locks) {
    drop(locks.try_lock(&7));
    drop(locks.try_lock(&8));
    drop(poll(&mut locks.lock(&7)));
    assert!(locks.status(&9).is_none());
    locks.for_each_key(|_, _| {});
}

/// Creates a waker whose clone, wake and drop all use the table: the contended key, and one in the same shard.
fn busybody(locks: &Locks) -> Waker {
    const VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, wake);
    fn clone(data: *const ()) -> RawWaker {
        wake_by_ref(data);
        let data = data.cast::<KeyedMutex<u64>>();
        // SAFETY: the data comes from `Arc::into_raw`, and this waker owns one of its counts.
        unsafe { Arc::increment_strong_count(data) };
        RawWaker::new(data.cast(), &VTABLE)
    }
    fn wake_by_ref(data: *const ()) {
        // SAFETY: as above; the count is not released.
        meddle(&std::mem::ManuallyDrop::new(unsafe { Arc::from_raw(data.cast()) }));
    }
    /// Serves as `drop`, too: both consume the waker.
    fn wake(data: *const ()) {
        // SAFETY: as above; the count is released.
        meddle(&unsafe { Arc::from_raw(data.cast()) });
    }
    // SAFETY: the functions above maintain the reference count as a waker must, and the table is `Send` and `Sync`.
    unsafe { Waker::from_raw(RawWaker::new(Arc::into_raw(Arc::clone(locks)).cast(), &VTABLE)) }
}

#[test]
fn a_waker_may_lock_the_same_key_in_clone_wake_and_drop() {
    for fairness in ALL {
        let locks = one_shard(fairness);
        let guard = locks.try_lock(&7).unwrap();
        let mut waiter = locks.lock(&7);
        assert!(poll_with(&mut waiter, &busybody(&locks)).is_pending()); // clones the waker
        assert!(poll_with(&mut waiter, &busybody(&locks)).is_pending()); // no clone: the queue's waker is equal
        let mut second = locks.lock(&7);
        assert!(poll_with(&mut second, &busybody(&locks)).is_pending());
        drop(guard); // calls `wake`
        let guard = ready(&mut waiter);
        drop(second); // the cancellation calls `drop`
        drop(guard);
        drop(waiter);
        assert_eq!(locks.len(), 0, "{fairness:?}");
    }
}

#[test]
fn a_waker_woken_by_a_cancellation_may_lock_the_same_key() {
    for fairness in ALL {
        let locks = one_shard(fairness);
        let guard = locks.try_lock(&7).unwrap();
        let mut first = locks.lock(&7);
        let mut second = locks.lock(&7);
        pending(&mut first);
        assert!(poll_with(&mut second, &busybody(&locks)).is_pending());
        drop(guard); // wakes `first`, or hands it the key
        drop(first); // the key passes on, and `second` is woken
        drop(ready(&mut second));
        drop(second);
        assert_eq!(locks.len(), 0, "{fairness:?}");
    }
}

/// A waker that polls its task inside `wake`, as some executors do.
struct PollsInWake {
    task: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
}

impl Wake for PollsInWake {
    fn wake(self: Arc<Self>) {
        let Some(mut task) = self.task.lock().unwrap().take() else { return };
        let waker = Waker::from(Arc::clone(&self));
        if task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            *self.task.lock().unwrap() = Some(task);
        }
    }
}

#[test]
fn a_waker_may_poll_the_woken_task_inside_wake() {
    for fairness in ALL {
        let locks = one_shard(fairness);
        let done = Arc::new(Mutex::new(vec![]));
        let guard = locks.try_lock(&7).unwrap();
        for id in 0..5 {
            let (locks, done) = (Arc::clone(&locks), Arc::clone(&done));
            let task = Arc::new(PollsInWake {
                task: Mutex::new(Some(Box::pin(async move {
                    let guard = locks.lock_arc(&7).await;
                    done.lock().unwrap().push(id);
                    drop(guard); // wakes the next task, which runs inside this one
                }))),
            });
            task.wake();
        }
        drop(guard);
        assert_eq!(*done.lock().unwrap(), [0, 1, 2, 3, 4], "{fairness:?}");
        assert_eq!(locks.len(), 0);
    }
}

#[test]
fn a_future_polled_with_a_new_waker_drops_the_old_one() {
    let locks = KeyedMutex::<u64>::new();
    let guard = locks.try_lock(&7).unwrap();
    let mut waiter = locks.lock(&7);
    let (old_bell, old) = Bell::new();
    let (new_bell, new) = Bell::new();
    assert!(poll_with(&mut waiter, &old).is_pending());
    assert!(poll_with(&mut waiter, &new).is_pending());
    drop(old);
    assert_eq!(Arc::strong_count(&old_bell), 1, "the old waker was kept");
    drop(guard);
    assert_eq!((old_bell.take(), new_bell.take()), (0, 1));
    drop(waiter);
    drop(new);
    assert_eq!(Arc::strong_count(&new_bell), 1, "the waker was kept after the wait");
}

#[test]
fn an_equal_waker_is_not_cloned_again() {
    thread_local!(static CLONES: Cell<u32> = const { Cell::new(0) });
    // A static, because wakers are equal only if their vtables have the same address.
    static VTABLE: RawWakerVTable = RawWakerVTable::new(
        |data| {
            CLONES.set(CLONES.get() + 1);
            RawWaker::new(data, &VTABLE)
        },
        |_| {},
        |_| {},
        |_| {},
    );
    // SAFETY: the functions do not use the data.
    let waker = unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &VTABLE)) };
    let locks = KeyedMutex::<u64>::new();
    let guard = locks.try_lock(&7).unwrap();
    let mut waiter = locks.lock(&7);
    for _ in 0..3 {
        assert!(poll_with(&mut waiter, &waker).is_pending());
        assert_eq!(CLONES.get(), 1);
    }
    drop(guard);
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker that panics");
    }
}

#[test]
fn a_panicking_waker_leaves_the_table_usable() {
    for fairness in ALL {
        let locks = one_shard(fairness);
        let guard = locks.try_lock(&7).unwrap();
        let mut waiter = locks.lock(&7);
        assert!(poll_with(&mut waiter, &Waker::from(Arc::new(Panics))).is_pending());
        let mut second = locks.lock(&7);
        pending(&mut second);
        assert!(catch_unwind(AssertUnwindSafe(|| drop(guard))).is_err());
        let guard = ready(&mut waiter);
        pending(&mut second);
        drop(guard);
        drop(ready(&mut second));
        drop((waiter, second));
        assert_eq!(locks.len(), 0);
    }
}

#[test]
fn a_waker_that_panics_while_a_panic_drops_the_guard_does_not_abort() {
    let locks = KeyedMutex::<u64>::new();
    let mut waiter = locks.lock(&7);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let _guard = locks.try_lock(&7).unwrap();
        assert!(poll_with(&mut waiter, &Waker::from(Arc::new(Panics))).is_pending());
        panic!("in the critical section");
    }));
    assert_eq!(*outcome.unwrap_err().downcast::<&str>().unwrap(), "in the critical section");
    drop(ready(waiter));
    assert!(locks.is_empty());
}

/// Creates a waker whose clone panics.
fn panics_on_clone() -> Waker {
    const VTABLE: RawWakerVTable =
        RawWakerVTable::new(|_| panic!("a waker whose clone panics"), |_| {}, |_| {}, |_| {});
    // SAFETY: the functions do not use the data.
    unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &VTABLE)) }
}

#[test]
fn a_waker_whose_clone_panics_leaves_its_request_unchanged() {
    let locks = KeyedMutex::<u64>::new();
    let guard = locks.try_lock(&7).unwrap();
    let mut waiter = locks.lock(&7);
    let bad = panics_on_clone();
    assert!(catch_unwind(AssertUnwindSafe(|| drop(poll_with(&mut waiter, &bad)))).is_err());
    assert_eq!(locks.status(&7).unwrap().waiters(), 0);
    pending(&mut waiter);
    assert!(catch_unwind(AssertUnwindSafe(|| drop(poll_with(&mut waiter, &bad)))).is_err());
    assert_eq!(locks.status(&7).unwrap().waiters(), 1);
    drop(guard);
    drop(ready(&mut waiter));
    drop(waiter);
    assert!(locks.is_empty());
}

/// Creates a waker that panics when it is dropped, unless its thread is already panicking. It forgets itself when it is
/// woken.
#[inline(never)] // the leak check refers to this name
fn panics_on_drop() -> Waker {
    struct Bomb;
    impl Wake for Bomb {
        fn wake(self: Arc<Self>) {
            std::mem::forget(self);
        }
        fn wake_by_ref(self: &Arc<Self>) {}
    }
    impl Drop for Bomb {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                panic!("a waker whose drop panics");
            }
        }
    }
    Waker::from(Arc::new(Bomb))
}

#[test]
fn a_waker_whose_drop_panics_loses_no_lock() {
    let locks = KeyedMutex::<u64>::new();
    let guard = locks.try_lock(&7).unwrap();
    let mut waiter = locks.lock(&7);
    assert!(poll_with(&mut waiter, &panics_on_drop()).is_pending());
    let mut head = locks.lock(&7);
    pending(&mut head);
    // The queue now has the last reference to the waker, and drops it when the waiter is polled with another one, ...
    assert!(catch_unwind(AssertUnwindSafe(|| drop(poll(&mut waiter)))).is_err());
    assert_eq!(locks.status(&7).unwrap().waiters(), 2);
    // ... or when it gives up.
    assert!(poll_with(&mut waiter, &panics_on_drop()).is_pending());
    assert!(catch_unwind(AssertUnwindSafe(|| drop(waiter))).is_err());
    assert_eq!(locks.status(&7).unwrap().waiters(), 1);
    drop(guard);
    drop(ready(&mut head));
    drop(head);
    assert!(locks.is_empty());
}

#[test]
fn a_guard_may_be_dropped_by_the_waker_of_another_key() {
    struct Releases(Mutex<Option<MutexGuardArc<u64>>>);
    impl Wake for Releases {
        fn wake(self: Arc<Self>) {
            drop(self.0.lock().unwrap().take());
        }
    }
    let locks = one_shard(Fairness::default());
    let (first, second) = (locks.try_lock(&7).unwrap(), locks.try_lock_arc(&8).unwrap());
    let mut waiter = locks.lock(&7);
    let waker = Waker::from(Arc::new(Releases(Mutex::new(Some(second)))));
    assert!(poll_with(&mut waiter, &waker).is_pending());
    drop(first);
    assert!(!locks.is_locked(&8));
}

/// Two wakers panic in one call: that of a request that gives up, when it is dropped, and that of the next one, when it
/// is called.
#[test]
fn two_wakers_that_panic_in_one_call_do_not_abort() {
    let permits = KeyedSemaphore::<u64>::builder(2).fairness(Fairness::Fifo).build();
    let guard = permits.try_acquire(&7).unwrap();
    let mut first = permits.acquire_n(&7, 2);
    assert!(poll_with(&mut first, &panics_on_drop()).is_pending());
    let mut second = permits.acquire(&7);
    assert!(poll_with(&mut second, &Waker::from(Arc::new(Panics))).is_pending());
    // A permit is free, but kept for the first request.
    assert!(catch_unwind(AssertUnwindSafe(|| drop(first))).is_err());
    drop((ready(&mut second), guard));
    drop(second);
    assert!(permits.is_empty());
}

/// The payload of a waker's panic may itself panic when it is dropped. Of several panics only one can reach the
/// caller.
#[test]
fn panics_with_payloads_that_panic_do_not_prevent_other_wake_ups() {
    // The payloads are zero-sized: a payload whose drop panics can only be forgotten, and would otherwise be a leak.
    struct Payload;
    impl Drop for Payload {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new(()));
        }
    }
    struct Bad;
    impl Wake for Bad {
        fn wake(self: Arc<Self>) {
            std::panic::resume_unwind(Box::new(Payload));
        }
    }
    let locks = KeyedRwLock::<u64>::new();
    let bad = Waker::from(Arc::new(Bad));
    let (bell, waker) = Bell::new();
    let panics_with_it = |release: &mut dyn FnMut()| match catch_unwind(AssertUnwindSafe(release)) {
        Ok(()) => false,
        Err(payload) => {
            std::mem::forget(payload);
            true
        }
    };
    let wait = |waker| {
        let mut reader = locks.read(&7);
        assert!(poll_with(&mut reader, waker).is_pending());
        reader
    };
    let mut writer = locks.try_write(&7);
    let readers = [wait(&bad), wait(&bad), wait(&bad), wait(&waker)];
    assert!(panics_with_it(&mut || drop(writer.take())), "the first panic reaches the caller");
    assert_eq!(bell.take(), 1, "the last reader was not woken");
    drop(readers.map(ready));

    // The same holds while the thread is already panicking.
    let mut writer = locks.try_write(&7);
    let readers = [wait(&bad), wait(&bad), wait(&waker)];
    let panics = panics_with_it(&mut || {
        let _writer = writer.take();
        std::panic::resume_unwind(Box::new(()));
    });
    assert!(panics);
    assert_eq!(bell.take(), 1, "the last reader was not woken");
    drop(readers.map(ready));
    assert!(locks.is_empty());
}

/// The drop of the old waker panics, and so does the drop of the new waker's clone. The clone was not needed, because
/// cloning released the key for the request.
#[test]
fn two_wakers_whose_drops_panic_in_one_call_do_not_abort() {
    thread_local!(static HELD: Cell<Option<MutexGuardArc<u64>>> = const { Cell::new(None) });
    static VTABLE: RawWakerVTable = RawWakerVTable::new(
        |data| {
            drop(HELD.take());
            RawWaker::new(data, &VTABLE)
        },
        |_| {},
        |_| {},
        |_| std::panic::resume_unwind(Box::new("the drop of a waker")),
    );
    // SAFETY: the functions do not use the data, which only makes the wakers differ.
    let wakers = [1, 2].map(|id| unsafe { Waker::from_raw(RawWaker::new(std::ptr::without_provenance(id), &VTABLE)) });
    let [first, second] = wakers.map(std::mem::ManuallyDrop::new);
    let locks = one_shard(Fairness::Bounded(2));
    let guard = locks.try_lock_arc(&7).unwrap();
    let (mut head, mut behind) = (locks.lock(&7), locks.lock(&7));
    pending(&mut head);
    assert!(poll_with(&mut behind, &first).is_pending());
    HELD.set(Some(guard));
    // The clone releases the key, and the request passes the head.
    assert!(catch_unwind(AssertUnwindSafe(|| drop(poll_with(&mut behind, &second)))).is_err());
    drop(behind);
    assert!(!locks.is_locked(&7), "the acquired key was not released");
    drop(ready(&mut head));
    drop(head);
    assert!(locks.is_empty());
}

/// No other reference to the replaced waker exists, so the call that replaces it also drops it.
#[test]
fn a_waker_may_lock_the_same_key_when_it_is_replaced() {
    struct Meddles(Locks, Arc<AtomicUsize>);
    impl Wake for Meddles {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for Meddles {
        fn drop(&mut self) {
            meddle(&self.0);
            self.1.fetch_add(1, Relaxed);
        }
    }
    for fairness in ALL {
        let (locks, dropped) = (one_shard(fairness), Arc::default());
        let guard = locks.try_lock(&7).unwrap();
        let mut waiter = locks.lock(&7);
        let waker = Waker::from(Arc::new(Meddles(Arc::clone(&locks), Arc::clone(&dropped))));
        assert!(poll_with(&mut waiter, &waker).is_pending());
        drop(waker);
        assert_eq!(dropped.load(Relaxed), 0, "the queue dropped its waker");
        pending(&mut waiter);
        assert_eq!(dropped.load(Relaxed), 1, "the queue kept the old waker");
        drop((guard, waiter));
        assert!(locks.is_empty());
    }
}

type Pages = KeyedRwLock<u64>;

const QUEUEING: [Fairness; 2] = [Fairness::Fifo, Fairness::Bounded(0)];

fn pages(fairness: Fairness) -> Arc<Pages> {
    Arc::new(KeyedRwLock::builder().shards(1).fairness(fairness).build())
}

/// Polls a request that waits, with a waker that panics when it is woken.
fn waits_with_a_bad_waker<F: Future + Unpin>(mut request: F) -> F {
    assert!(poll_with(&mut request, &Waker::from(Arc::new(Panics))).is_pending());
    request
}

fn panics(f: impl FnOnce()) {
    assert!(catch_unwind(AssertUnwindSafe(f)).is_err(), "the waker was not woken");
}

#[test]
fn a_waker_that_panics_at_a_writers_downgrade_loses_no_hold() {
    for fairness in ALL {
        for to_upgradable in [false, true] {
            let pages = pages(fairness);
            let guard = pages.try_write(&7).unwrap();
            let reader = waits_with_a_bad_waker(pages.read(&7));
            panics(|| if to_upgradable { drop(guard.downgrade_to_upgradable()) } else { drop(guard.downgrade()) });
            drop(ready(reader));
            assert!(pages.is_empty(), "{fairness:?}");
        }
    }
}

#[test]
fn a_waker_that_panics_at_an_upgradable_readers_downgrade_loses_no_hold() {
    for fairness in ALL {
        let pages = pages(fairness);
        let guard = pages.try_upgradable_read(&7).unwrap();
        let other = waits_with_a_bad_waker(pages.upgradable_read(&7));
        panics(|| drop(guard.downgrade()));
        drop(ready(other));
        assert!(pages.is_empty(), "{fairness:?}");
    }
}

#[test]
fn a_waker_that_panics_when_an_upgrade_is_given_up_loses_no_hold() {
    for fairness in QUEUEING {
        let pages = pages(fairness);
        let held = pages.try_read(&7).unwrap();
        let mut upgrade = pages.try_upgradable_read(&7).unwrap().upgrade();
        assert!(poll_with(&mut upgrade, Waker::noop()).is_pending());
        let reader = waits_with_a_bad_waker(pages.read(&7));
        panics(|| drop(upgrade));
        assert_eq!(pages.status(&7).unwrap().upgradable(), 0, "{fairness:?}");
        drop((held, ready(reader)));
        assert!(pages.is_empty());
    }
}

#[test]
fn a_waker_that_panics_when_an_upgraded_hold_falls_back_loses_no_hold() {
    for fairness in ALL {
        let pages = pages(fairness);
        let mut guard = pages.try_upgradable_read(&7).unwrap();
        let upgraded = guard.try_upgrade_mut().unwrap();
        let reader = waits_with_a_bad_waker(pages.read(&7));
        panics(|| drop(upgraded));
        let reader = ready(reader);
        assert_eq!(pages.status(&7).unwrap().upgradable(), 1, "{fairness:?}");
        drop(guard);
        assert!(pages.try_upgradable_read(&7).is_some(), "{fairness:?}");
        drop(reader);
        assert!(pages.is_empty());
    }
}

/// The clone of the waker releases the reader, so that the upgrade succeeds and the clone is not needed.
#[test]
fn a_waker_that_panics_when_an_upgrade_succeeds_loses_no_hold() {
    thread_local!(static HELD: Cell<Option<ReadGuardArc<u64>>> = const { Cell::new(None) });
    static VTABLE: RawWakerVTable = RawWakerVTable::new(
        |data| {
            drop(HELD.take());
            RawWaker::new(data, &VTABLE)
        },
        |_| {},
        |_| {},
        |_| std::panic::resume_unwind(Box::new("the drop of a waker")),
    );
    // SAFETY: the functions do not use the data.
    let waker = std::mem::ManuallyDrop::new(unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &VTABLE)) });
    for fairness in ALL {
        let pages = pages(fairness);
        HELD.set(pages.try_read_arc(&7));
        let mut guard = pages.try_upgradable_read(&7).unwrap();
        let mut upgrade = guard.upgrade_mut();
        panics(|| drop(poll_with(&mut upgrade, &waker)));
        assert_eq!(pages.status(&7).unwrap().writers(), 1);
        drop(upgrade);
        assert_eq!(pages.status(&7).unwrap().upgradable(), 1, "{fairness:?}");
        drop(guard);
        assert!(pages.is_empty());
    }
}
