//! Guarantees 1 to 3 and 5 to 7 of the crate's front page, each with a test named after it. Guarantee 4 (phase
//! fairness) is in `rwlock.rs`; 8 (memory follows use) and 9 (no allocation) are in `allocations.rs`. More tests of 5
//! (user code outside the locks) are in `wakers.rs` and `keys.rs`. `model`, `stress.rs`, `linearizability`, and
//! `loom.rs` and `shuttle` in `checks/tests`, try to break 1 to 4 by other means.

mod common;

use std::cell::Cell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Poll, Waker};
use std::time::Duration;

use common::{Bell, pending, poll, poll_with, ready, until};
use futures_lite::future::{block_on, yield_now};
use keylatch::{Fairness, KeyedMutex, KeyedRwLock};

const ALL: [Fairness; 5] =
    [Fairness::Adaptive, Fairness::Bounded(0), Fairness::Bounded(16), Fairness::Fifo, Fairness::Barging];

/// A counter that is correct only under mutual exclusion: it is read and written back later.
#[derive(Default)]
struct Unguarded(AtomicUsize);

impl Unguarded {
    fn bump(&self) {
        let old = self.0.load(SeqCst);
        std::thread::yield_now();
        self.0.store(old + 1, SeqCst);
    }
}

#[test]
fn guarantee_1_mutual_exclusion_for_every_mix_of_forms() {
    const ROUNDS: usize = 300;
    for fairness in ALL {
        let locks = Arc::new(KeyedMutex::<u64>::builder().shards(1).fairness(fairness).build());
        let counters: [Unguarded; 2] = Default::default();
        let bump = |key: u64| counters[key as usize].bump();
        std::thread::scope(|scope| {
            for key in 0..2 {
                let (locks, bump) = (&locks, &bump);
                let retry = move |attempt: &dyn Fn() -> bool| until(attempt);
                let forms: [Box<dyn Fn() + Send>; 6] = [
                    Box::new(move || {
                        let _guard = locks.lock_blocking(&key);
                        bump(key);
                    }),
                    Box::new(move || {
                        let _guard = block_on(locks.lock(&key));
                        bump(key);
                    }),
                    Box::new(move || {
                        retry(&|| locks.try_lock(&key).map(|_guard| bump(key)).is_some());
                    }),
                    Box::new(move || {
                        retry(&|| {
                            locks.try_lock_for(&key, Duration::from_micros(50)).map(|_guard| bump(key)).is_some()
                        });
                    }),
                    Box::new(move || {
                        let _guard = locks.handle(&key).lock_blocking();
                        bump(key);
                    }),
                    Box::new(move || {
                        let guard = block_on(locks.lock_arc(&key));
                        bump(key);
                        guard.unlock_fair();
                    }),
                ];
                for form in forms {
                    scope.spawn(move || (0..ROUNDS).for_each(|_| form()));
                }
            }
        });
        for counter in &counters {
            assert_eq!(counter.0.load(SeqCst), 6 * ROUNDS, "{fairness:?}");
        }
        assert_eq!(locks.len(), 0);
    }
}

#[test]
fn guarantee_2_no_entry_outlives_its_last_user() {
    for fairness in ALL {
        let locks = KeyedMutex::<u64>::builder().fairness(fairness).build();
        // The waiters are cancelled late: after the first was handed the key or (depending on the policy) woken for it.
        let guard = locks.try_lock(&7).unwrap();
        let mut waiters: Vec<_> = (0..1000).map(|_| locks.lock(&7)).collect();
        waiters.iter_mut().for_each(pending);
        drop(guard);
        drop(waiters);
        assert_eq!(locks.len(), 0, "{fairness:?}");
        // One request is cancelled before its first poll, and one while it waits.
        let guard = locks.try_lock(&7).unwrap();
        let mut waiter = locks.lock(&7);
        pending(&mut waiter);
        drop(locks.lock(&7));
        drop(waiter);
        // Requests time out, or reach a limit.
        assert!(locks.try_lock_for(&7, Duration::from_millis(1)).is_none());
        assert!(block_on(locks.lock(&7).until(yield_now())).is_err());
        // The holder panics in the critical section.
        let panics = || {
            let _guard = guard;
            panic!("in the critical section");
        };
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert_eq!(locks.len(), 0, "{fairness:?}");
    }
}

#[test]
fn guarantee_2_a_waiter_cancelled_after_the_hand_off_passes_the_key_on() {
    for fairness in ALL {
        let locks = KeyedMutex::<u64>::builder().fairness(fairness).build();
        let guard = locks.try_lock(&7).unwrap();
        let mut waiters: Vec<_> = (0..3).map(|_| locks.lock(&7)).collect();
        waiters.iter_mut().for_each(pending);
        guard.unlock_fair();
        drop(waiters.remove(0)); // the waiter that was handed the key
        assert!(locks.try_lock(&7).is_none(), "{fairness:?}: a newcomer acquired the key before the next waiter");
        let guard = ready(waiters.remove(0));
        pending(&mut waiters[0]);
        drop(guard);
        drop(ready(waiters.remove(0)));
        assert_eq!(locks.len(), 0, "{fairness:?}");
    }
}

/// Keeps acquiring the free key as a newcomer, until an attempt fails, but at most 10,000 times. Returns the number of
/// successes. If `polls_head` is set, the waiter is polled after each of them.
fn passes(fairness: Fairness, polls_head: bool) -> u16 {
    let locks = KeyedMutex::<u64>::builder().fairness(fairness).build();
    let mut guard = locks.try_lock(&7);
    let mut head = locks.lock(&7);
    pending(&mut head);
    let mut passed = 0;
    loop {
        drop(guard.take());
        guard = locks.try_lock(&7);
        if guard.is_none() || passed == 10_000 {
            break;
        }
        passed += 1;
        if polls_head {
            pending(&mut head); // woken, but too late: it keeps its place
        }
    }
    drop(guard);
    drop(ready(&mut head));
    assert!(locks.is_empty());
    passed
}

#[test]
fn guarantee_3_at_most_n_later_requests_pass_a_waiter_at_the_head() {
    for bound in [0, 1, 5, 16, 255, 256, 1000] {
        assert_eq!(passes(Fairness::Bounded(bound), false), bound);
        assert_eq!(passes(Fairness::Bounded(bound), true), bound.min(4));
    }
    assert_eq!(passes(Fairness::Fifo, false), 0);
    assert_eq!(passes(Fairness::Barging, true), 10_000);
}

#[test]
fn guarantee_3_by_default_a_waiter_is_next_after_four_failed_attempts() {
    assert_eq!(passes(Fairness::Adaptive, true), 4);
}

#[test]
fn guarantee_3_by_default_an_idle_future_keeps_nobody_out() {
    assert_eq!(passes(Fairness::Adaptive, false), 10_000);
}

#[test]
fn guarantee_3_by_default_the_next_release_wakes_the_waiter_behind_an_idle_future() {
    let locks = KeyedMutex::<u64>::new();
    let guard = locks.try_lock(&7).unwrap();
    let (mut idle, mut behind) = (locks.lock(&7), locks.lock(&7));
    let (bell, waker) = Bell::new();
    pending(&mut idle);
    assert!(poll_with(&mut behind, &waker).is_pending());
    drop(guard);
    assert_eq!(bell.take(), 0, "the first was woken");
    drop(locks.try_lock(&7).expect("the key is free"));
    assert_eq!(bell.take(), 1);
    drop(ready(&mut behind));
}

/// A task that is polled only when it was woken.
struct Task<F> {
    future: Pin<Box<F>>,
    bell: Arc<Bell>,
    waker: Waker,
}

impl<F: Future> Task<F> {
    /// Creates a task that waits for a held key.
    fn waiting(future: F) -> Self {
        let (bell, waker) = Bell::new();
        let mut task = Task { future: Box::pin(future), bell, waker };
        assert!(poll_with(&mut task.future, &task.waker).is_pending());
        task
    }

    fn was_woken(&self) -> bool {
        self.bell.take() > 0
    }

    /// Polls the task if it was woken. Returns its output if it is ready.
    fn poll_if_woken(&mut self) -> Option<F::Output> {
        if !self.was_woken() {
            return None;
        }
        match poll_with(&mut self.future, &self.waker) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }
}

#[test]
fn guarantee_3_by_default_a_hold_that_is_given_up_is_not_kept_for_an_idle_future() {
    let locks = KeyedMutex::<u64>::new();
    let guard = locks.try_lock(&7).unwrap();
    let idle = Task::waiting(locks.lock(&7));
    let mut other = Task::waiting(locks.lock(&7));
    drop(guard);
    // The other waiter is handed the key after four failed attempts, and is dropped before it takes it.
    while let Some(guard) = locks.try_lock(&7) {
        drop(guard);
        let Some(_guard) = locks.try_lock(&7) else { break };
        assert!(other.poll_if_woken().is_none());
    }
    drop(other);
    assert!(locks.try_lock(&7).is_some(), "{:?}", locks.status(&7));
    drop(idle);
}

#[test]
fn guarantee_3_by_default_a_writer_behind_an_idle_one_is_not_starved_by_readers() {
    let locks = KeyedRwLock::<u64>::new();
    let reader = locks.try_read(&7).unwrap();
    let idle = Task::waiting(locks.write(&7));
    drop(reader);
    let mut reader = locks.try_read(&7).unwrap();
    let mut writer = Task::waiting(locks.write(&7));
    let mut passed = 0;
    while let Some(next) = locks.try_read(&7) {
        reader = next;
        passed += 1;
    }
    assert_eq!(passed, 16);
    drop(reader);
    drop(writer.poll_if_woken().expect("the writer was not next"));
    drop(idle);
}

#[test]
fn guarantee_3_by_default_an_upgradable_reader_behind_an_idle_future_is_next_after_four_failed_attempts() {
    let locks = KeyedRwLock::<u64>::new();
    let mut holds = locks.try_upgradable_read(&7);
    let idle = Task::waiting(locks.write(&7));
    let mut reader = Task::waiting(locks.upgradable_read(&7));
    let mut passed = 0;
    loop {
        drop(holds.take());
        holds = locks.try_upgradable_read(&7);
        if holds.is_none() {
            break;
        }
        passed += 1;
        assert!(reader.poll_if_woken().is_none() && passed < 100);
    }
    drop(reader.poll_if_woken().expect("the reader was not handed the key"));
    drop(idle);
}

#[test]
fn guarantee_3_by_default_an_idle_upgradable_reader_alone_keeps_nobody_out() {
    let locks = KeyedRwLock::<u64>::new();
    let writer = locks.try_write(&7).unwrap();
    let idle = Task::waiting(locks.upgradable_read(&7));
    drop(writer);
    assert!(locks.try_upgradable_read(&7).is_some());
    assert!(locks.try_write(&7).is_some());
    drop(idle);
}

#[test]
fn under_barging_a_reader_before_the_first_writer_is_woken_despite_failed_attempts_behind_it() {
    let locks = KeyedRwLock::<u64>::builder().fairness(Fairness::Barging).build();
    let writer = locks.try_write(&7).unwrap();
    let mut first = Task::waiting(locks.read(&7));
    let mut others = (Task::waiting(locks.write(&7)), Task::waiting(locks.read(&7)));
    drop(writer);
    for _ in 0..3 {
        drop(locks.try_write(&7).unwrap());
    }
    let writer = locks.try_write(&7).unwrap();
    assert!(
        first.poll_if_woken().is_none() && others.0.poll_if_woken().is_none() && others.1.poll_if_woken().is_none()
    );
    drop(writer);
    drop(first.poll_if_woken().expect("the key is free"));
}

#[test]
fn guarantee_3_by_default_an_idle_future_stops_neither_threads_nor_tasks() {
    let locks = KeyedMutex::<u64>::new();
    let guard = locks.try_lock(&7).unwrap();
    let mut idle = locks.lock(&7);
    pending(&mut idle);
    drop(guard);
    let uses = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..10_000 {
                    let _guard = locks.lock_blocking(&7);
                    uses.fetch_add(1, SeqCst);
                }
            });
            scope.spawn(|| {
                block_on(async {
                    for _ in 0..10_000 {
                        let _guard = locks.lock(&7).await;
                        uses.fetch_add(1, SeqCst);
                        yield_now().await;
                    }
                });
            });
        }
        // The last waiter needs one more release.
        until(|| {
            drop(locks.try_lock(&7));
            uses.load(SeqCst) == 40_000
        });
    });
    drop(ready(idle));
    assert!(locks.is_empty());
}

#[test]
fn guarantee_3_by_default_a_writer_behind_overlapping_readers_gets_in() {
    let locks = KeyedRwLock::<u64>::new();
    let mut reader = locks.try_read(&7);
    let mut writer = locks.write(&7);
    pending(&mut writer);
    let mut passed = 0;
    while let Some(next) = locks.try_read(&7) {
        reader = Some(next);
        passed += 1;
    }
    assert_eq!(passed, 16);
    drop(reader);
    // The writer has been woken. While it is not polled, it keeps no request out.
    drop(locks.try_read(&7).unwrap());
    drop(ready(&mut writer));
}

#[test]
fn guarantee_3_a_waiter_keeps_its_place_when_it_is_polled_again() {
    for fairness in ALL {
        let locks = KeyedMutex::<u64>::builder().fairness(fairness).build();
        let guard = locks.try_lock(&7).unwrap();
        let mut waiters: Vec<_> = (0..5).map(|_| locks.lock(&7)).collect();
        for _ in 0..3 {
            waiters.iter_mut().rev().for_each(pending);
            waiters.iter_mut().for_each(pending);
        }
        // The waiters were first polled in reverse order.
        guard.unlock_fair();
        while let Some(last) = waiters.pop() {
            waiters.iter_mut().for_each(pending);
            ready(last).unlock_fair();
        }
    }
}

#[test]
fn guarantee_3_barging_never_reserves_a_free_key() {
    let locks = KeyedMutex::<u64>::builder().fairness(Fairness::Barging).build();
    let guard = locks.try_lock(&7).unwrap();
    let mut never_polled_again = locks.lock(&7);
    let mut behind = locks.lock(&7);
    pending(&mut never_polled_again);
    pending(&mut behind);
    drop(guard);
    for _ in 0..1000 {
        drop(locks.try_lock(&7).expect("a newcomer acquires a free key"));
    }
    drop(ready(&mut behind));
    drop(ready(&mut locks.lock(&7)));
}

#[test]
fn guarantee_3_the_default_is_adaptive() {
    assert_eq!(Fairness::default(), Fairness::Adaptive);
}

#[test]
fn guarantee_3_under_fifo_a_waiter_that_was_handed_the_key_holds_it_until_it_is_dropped() {
    let locks = KeyedMutex::<u64>::builder().fairness(Fairness::Fifo).build();
    let guard = locks.try_lock(&7).unwrap();
    let mut sleeper = locks.lock(&7);
    pending(&mut sleeper);
    drop(guard);
    assert!(locks.try_lock(&7).is_none());
    assert!(poll(&mut locks.lock(&7)).is_pending());
    drop(sleeper);
    assert!(locks.try_lock(&7).is_some());
}

#[test]
fn guarantee_5_only_a_key_that_owns_nothing_is_copied_inside_a_lock() {
    thread_local!(static CLONES: Cell<u32> = const { Cell::new(0) });
    #[derive(PartialEq, Eq, Hash)]
    struct Plain(u64);
    #[allow(clippy::non_canonical_clone_impl)]
    impl Clone for Plain {
        fn clone(&self) -> Self {
            CLONES.set(CLONES.get() + 1);
            if CLONES.get() == 2 {
                panic!("a clone that panics, under the shard lock");
            }
            Plain(self.0)
        }
    }
    let locks = KeyedMutex::<Plain>::builder().shards(1).build();
    drop(locks.try_lock(&Plain(1)));
    assert!(catch_unwind(AssertUnwindSafe(|| drop(locks.try_lock(&Plain(1))))).is_err());
    assert!(locks.is_empty());
    assert!(locks.try_lock(&Plain(1)).is_some());
}

#[test]
fn guarantee_6_a_panic_in_a_critical_section_releases_and_does_not_poison() {
    let locks = Arc::new(KeyedMutex::<u64>::new());
    let thread = {
        let locks = Arc::clone(&locks);
        std::thread::spawn(move || {
            let _guard = locks.lock_blocking(&7);
            panic!("in the critical section");
        })
    };
    assert!(thread.join().is_err());
    drop(locks.lock_blocking(&7));
    assert!(locks.is_empty());
}

#[test]
fn guarantee_7_locking_a_key_again_while_holding_it_waits() {
    let locks = KeyedMutex::<u64>::new();
    let guard = locks.lock_blocking(&7);
    assert!(locks.try_lock(&7).is_none());
    assert!(locks.try_lock_for(&7, Duration::from_millis(1)).is_none());
    pending(&mut locks.lock(&7));
    drop(guard);
}
