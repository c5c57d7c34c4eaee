//! Tables that can be closed.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use common::{Bell, poll, poll_with};
use futures_lite::future::block_on;
use keylatch::futures::{Lock, UntilClosed};
use keylatch::{Closable, Closed, Fairness, KeyedMutex, KeyedRwLock, KeyedSemaphore, Latch, LockMap};

type Locks = Closable<KeyedMutex<u64>>;

const POLICIES: [Fairness; 4] = [Fairness::Adaptive, Fairness::Fifo, Fairness::Bounded(1), Fairness::Barging];

fn locks(fairness: Fairness) -> Locks {
    Closable::new(KeyedMutex::builder().fairness(fairness).build())
}

#[test]
fn types_are_send_sync_and_unpin() {
    fn check<T: Send + Sync + Unpin>() {}
    check::<Locks>();
    check::<Closed>();
    check::<UntilClosed<'_, Lock<'_, u64>>>();
}

// Tokio's two tests of `close` for its semaphore.
#[test]
fn a_closed_semaphore_refuses_every_request() {
    let semaphore = Closable::new(KeyedSemaphore::<String>::new(2));
    semaphore.close();
    assert!(semaphore.is_closed());
    assert_eq!(semaphore.try_acquire(|semaphore| semaphore.try_acquire("a")).unwrap_err(), Closed);
    assert_eq!(block_on(semaphore.acquire(|semaphore| semaphore.acquire("a"))).unwrap_err(), Closed);
    assert!(semaphore.get_ref().is_empty());
}

#[test]
fn closing_ends_a_wait_for_permits() {
    let semaphore = Closable::new(KeyedSemaphore::<String>::new(1));
    let permit = semaphore.try_acquire(|semaphore| semaphore.try_acquire("a")).unwrap().unwrap();
    let (bell, waker) = Bell::new();
    let mut waiting = semaphore.acquire(|semaphore| semaphore.acquire("a"));
    assert!(poll_with(&mut waiting, &waker).is_pending());
    semaphore.close();
    assert_eq!(bell.take(), 1);
    assert_eq!(block_on(waiting).unwrap_err(), Closed);
    drop(permit);
}

#[test]
fn every_form_succeeds_before_and_fails_after() {
    let locks = locks(Fairness::Adaptive);
    for is_closed in [false, true] {
        let second = Duration::from_secs(1);
        assert_eq!(block_on(locks.acquire(|locks| locks.lock(&1))).is_err(), is_closed);
        assert_eq!(locks.try_acquire(|locks| locks.try_lock(&1)).is_err(), is_closed);
        assert_eq!(locks.acquire_blocking(|locks| locks.lock(&1)).is_err(), is_closed);
        assert_eq!(locks.try_acquire_for(second, |locks| locks.lock(&1)).is_err(), is_closed);
        assert_eq!(locks.try_acquire_for(Duration::MAX, |locks| locks.lock(&1)).is_err(), is_closed);
        assert_eq!(locks.try_acquire_until(Instant::now(), |locks| locks.lock(&1)).is_err(), is_closed);
        assert_eq!(block_on(locks.acquire(|locks| locks.lock_many(&[1, 2]))).is_err(), is_closed);
        assert!(locks.get_ref().is_empty());
        locks.close();
    }
}

#[test]
fn a_request_that_is_refused_makes_no_entry() {
    let locks = locks(Fairness::Adaptive);
    locks.close();
    let request = locks.acquire(|_| -> Lock<'_, u64> { panic!("the request was made") });
    let tried = locks.try_acquire(|_| panic!("the request was made"));
    assert_eq!(tried, Err(Closed));
    assert!(locks.get_ref().is_empty());
    assert!(block_on(request).is_err());
}

#[test]
fn closing_wakes_every_waiter_once_and_leaves_no_entry() {
    for fairness in POLICIES {
        let locks = locks(fairness);
        let holder = locks.get_ref().try_lock(&1).unwrap();
        let bells: [_; 5] = std::array::from_fn(|_| Bell::new());
        let mut waiting: [_; 5] = std::array::from_fn(|_| locks.acquire(|locks| locks.lock(&1)));
        for ((_, waker), request) in bells.iter().zip(&mut waiting) {
            assert!(poll_with(request, waker).is_pending());
        }
        assert_eq!(locks.get_ref().status(&1).unwrap().waiters(), 5);
        locks.close();
        locks.close();
        assert!(bells.iter().all(|(bell, _)| bell.take() == 1));
        assert!(waiting.iter_mut().all(|request| matches!(poll(request), Poll::Ready(Err(Closed)))));
        // The waiters leave when they fail, not only when their futures are dropped.
        assert_eq!(locks.get_ref().status(&1).unwrap().waiters(), 0);
        drop(holder);
        assert!(locks.get_ref().is_empty());
    }
}

#[test]
fn a_key_that_was_handed_to_a_closed_request_passes_on() {
    let locks = locks(Fairness::Fifo);
    let holder = locks.get_ref().try_lock(&1).unwrap();
    let mut first = locks.acquire(|locks| locks.lock(&1));
    let mut outsider = locks.get_ref().lock(&1);
    assert!(poll(&mut first).is_pending());
    assert!(poll(&mut outsider).is_pending());
    drop(holder); // hands the key to `first`
    locks.close();
    assert!(poll(&mut outsider).is_pending());
    assert_eq!(block_on(first).unwrap_err(), Closed);
    assert!(poll(&mut outsider).is_ready());
}

#[test]
fn a_wait_that_is_dropped_leaves_nothing() {
    let locks = locks(Fairness::Adaptive);
    let holder = locks.get_ref().try_lock(&1).unwrap();
    let (bell, waker) = Bell::new();
    let mut waiting = locks.acquire(|locks| locks.lock(&1));
    assert!(poll_with(&mut waiting, &waker).is_pending());
    drop(waiting);
    locks.close();
    assert_eq!(bell.take(), 0);
    drop(holder);
    assert!(locks.get_ref().is_empty());
}

#[test]
fn holders_finish() {
    let map = Closable::new(LockMap::<u64, String>::new());
    let mut guard = block_on(map.acquire(|map| map.write(&1))).unwrap();
    let reader = block_on(map.acquire(|map| map.upgradable_read(&2))).unwrap();
    map.close();
    guard.insert("kept".to_owned());
    drop(guard);
    let mut writer = block_on(reader.upgrade());
    writer.insert("kept".to_owned());
    drop(writer);
    assert_eq!(map.into_inner().len(), 2);
}

#[test]
fn owned_guards_latches_and_several_tables_can_be_closed() {
    struct Tables {
        files: Arc<KeyedMutex<u64>>,
        pages: KeyedRwLock<u64>,
        latch: Latch,
    }
    let tables = Tables { files: Arc::default(), pages: KeyedRwLock::new(), latch: Latch::new() };
    let tables = Closable::new(tables);
    let owned = block_on(tables.acquire(|tables| tables.files.lock_arc(&1))).unwrap();
    let reader = block_on(tables.acquire(|tables| tables.pages.read(&1))).unwrap();
    let writer = block_on(tables.acquire(|tables| tables.latch.write())).unwrap();
    let mut waiting = tables.acquire(|tables| tables.latch.read());
    assert!(poll(&mut waiting).is_pending());
    tables.close();
    assert!(block_on(waiting).is_err());
    drop((owned, reader, writer));
    assert!(!tables.get_ref().latch.is_locked());
}

#[test]
fn threads_that_wait_in_every_form_are_released() {
    for fairness in POLICIES {
        let locks = locks(fairness);
        let holder = locks.get_ref().try_lock(&1).unwrap();
        thread::scope(|scope| {
            let long = Duration::from_secs(600);
            let locks = &locks;
            let waiting = [
                scope.spawn(move || locks.acquire_blocking(|locks| locks.lock(&1)).is_err()),
                scope.spawn(move || locks.try_acquire_for(long, |locks| locks.lock(&1)).is_err()),
                scope.spawn(move || locks.try_acquire_until(Instant::now() + long, |locks| locks.lock(&1)).is_err()),
                scope.spawn(move || block_on(locks.acquire(|locks| locks.lock(&1))).is_err()),
                scope.spawn(move || {
                    block_on(locks.closed());
                    locks.is_closed()
                }),
            ];
            while locks.get_ref().status(&1).is_none_or(|status| status.waiters() < 4) {
                thread::yield_now();
            }
            locks.close();
            assert!(waiting.into_iter().all(|waiting| waiting.join().unwrap()));
        });
        drop(holder);
        assert!(locks.get_ref().is_empty());
    }
}

#[test]
fn a_timed_request_gives_up_before_the_table_is_closed() {
    let locks = locks(Fairness::Adaptive);
    let holder = locks.get_ref().try_lock(&1).unwrap();
    let waited = locks.try_acquire_for(Duration::from_millis(1), |locks| locks.lock(&1));
    assert!(waited.unwrap().is_none());
    let waited = locks.try_acquire_until(Instant::now(), |locks| locks.lock(&1));
    assert!(waited.unwrap().is_none());
    drop(holder);
    assert!(locks.get_ref().is_empty());
}

/// If the table is empty after it was closed, no key is held from then on.
#[test]
fn a_closed_table_that_is_empty_stays_empty() {
    for _ in 0..200 {
        let (locks, held_late) = (locks(Fairness::Adaptive), AtomicUsize::new(0));
        let is_done = AtomicUsize::new(0);
        thread::scope(|scope| {
            for worker in 0..2_u64 {
                let (locks, held_late, is_done) = (&locks, &held_late, &is_done);
                scope.spawn(move || {
                    let mut key = worker;
                    // Both kinds of request sometimes find a held key.
                    while let Ok(guard) = match key % 2 {
                        0 => locks.acquire_blocking(|locks| locks.lock(&(key % 8))),
                        _ => block_on(locks.acquire(|locks| locks.lock(&(key % 8)))),
                    } {
                        held_late.fetch_add(is_done.load(Relaxed), Relaxed);
                        drop(guard);
                        key += 1;
                    }
                });
            }
            locks.close();
            while !locks.get_ref().is_empty() {
                thread::yield_now();
            }
            is_done.store(1, Relaxed);
        });
        assert_eq!(held_late.into_inner(), 0);
    }
}

struct Angry;

impl Wake for Angry {
    fn wake(self: Arc<Self>) {
        panic!("a waker that panics");
    }
}

#[test]
fn wakers_that_panic_are_all_woken_and_the_table_is_closed() {
    let locks = locks(Fairness::Adaptive);
    let holder = locks.get_ref().try_lock(&1).unwrap();
    let mut first = locks.acquire(|locks| locks.lock(&1));
    let mut second = locks.acquire(|locks| locks.lock(&1));
    let (bell, waker) = Bell::new();
    assert!(poll_with(&mut first, &Waker::from(Arc::new(Angry))).is_pending());
    assert!(poll_with(&mut second, &waker).is_pending());
    assert!(catch_unwind(AssertUnwindSafe(|| locks.close())).is_err());
    assert_eq!(bell.take(), 1);
    assert!(block_on(first).is_err());
    assert!(block_on(second).is_err());
    drop(holder);
    assert!(locks.get_ref().is_empty());
}

#[test]
#[should_panic(expected = "a request to a closable table was polled after it had finished")]
fn a_finished_future_panics_if_it_is_polled() {
    let locks = locks(Fairness::Adaptive);
    let mut request = locks.acquire(|locks| locks.lock(&1));
    assert!(poll(&mut request).is_ready());
    let _ = poll(&mut request);
}
