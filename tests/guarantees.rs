//! The guarantees that the crate's page makes, each with a test named after it. Guarantee 4 (phase fairness) is in `rwlock.rs`,
//! guarantee 5 (user code outside the locks) has more in `wakers.rs` and `keys.rs`, 8 (memory follows use) and 9 (no allocation)
//! are in `allocations.rs`. `model`, `stress.rs`, `linearizability`, and `loom.rs` and `shuttle` in `checks/tests`, try to break
//! 1 to 4 by other means.

mod common;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use common::{pending, poll, ready, until};
use futures_lite::future::{block_on, yield_now};
use keylatch::{Fairness, KeyedMutex};

const ALL: [Fairness; 4] = [Fairness::Fifo, Fairness::Bounded(0), Fairness::Bounded(16), Fairness::Barging];

/// A counter that only exclusion keeps right: it is read, and written back later.
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
fn guarantee_2_no_entry_outlives_its_last_user_whatever_happened() {
    for fairness in ALL {
        let locks = KeyedMutex::<u64>::builder().fairness(fairness).build();
        // Cancelled late: after the key was handed over, or freed and the waiter woken.
        let guard = locks.try_lock(&7).unwrap();
        let mut waiters: Vec<_> = (0..1000).map(|_| locks.lock(&7)).collect();
        waiters.iter_mut().for_each(pending);
        drop(guard);
        drop(waiters);
        assert_eq!(locks.len(), 0, "{fairness:?}");
        // Cancelled before the first poll, and while the key is held.
        let guard = locks.try_lock(&7).unwrap();
        let mut waiter = locks.lock(&7);
        pending(&mut waiter);
        drop(locks.lock(&7));
        drop(waiter);
        // Timed out.
        assert!(locks.try_lock_for(&7, Duration::from_millis(1)).is_none());
        assert!(block_on(locks.lock(&7).until(yield_now())).is_err());
        // Panicked in the critical section.
        let panics = || {
            let _guard = guard;
            panic!("in the critical section");
        };
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert_eq!(locks.len(), 0, "{fairness:?}");
    }
}

#[test]
fn guarantee_2_a_waiter_that_is_cancelled_after_the_hand_over_passes_it_on() {
    for fairness in ALL {
        let locks = KeyedMutex::<u64>::builder().fairness(fairness).build();
        let guard = locks.try_lock(&7).unwrap();
        let mut waiters: Vec<_> = (0..3).map(|_| locks.lock(&7)).collect();
        waiters.iter_mut().for_each(pending);
        guard.unlock_fair();
        drop(waiters.remove(0)); // had it
        assert!(locks.try_lock(&7).is_none(), "{fairness:?}: it is the next one's, and no newcomer's");
        let guard = ready(waiters.remove(0));
        pending(&mut waiters[0]);
        drop(guard);
        drop(ready(waiters.remove(0)));
        assert_eq!(locks.len(), 0, "{fairness:?}");
    }
}

#[test]
fn guarantee_3_at_most_n_later_requests_pass_a_waiter_at_the_head() {
    for bound in [0, 1, 5, 16, 255] {
        let fairness = if bound == 0 { Fairness::Fifo } else { Fairness::Bounded(bound) };
        for fairness in [fairness, Fairness::Bounded(bound)] {
            let locks = KeyedMutex::<u64>::builder().fairness(fairness).build();
            let mut guard = locks.try_lock(&7);
            let mut head = locks.lock(&7);
            pending(&mut head);
            let mut passed = 0;
            loop {
                drop(guard.take());
                guard = locks.try_lock(&7);
                if guard.is_none() {
                    break;
                }
                passed += 1;
                pending(&mut head); // woken, too late: it keeps its place
            }
            assert_eq!(passed, bound, "{fairness:?}");
            drop(ready(&mut head));
        }
    }
}

#[test]
fn guarantee_3_a_waiter_keeps_its_place_however_often_it_is_polled() {
    for fairness in ALL {
        let locks = KeyedMutex::<u64>::builder().fairness(fairness).build();
        let guard = locks.try_lock(&7).unwrap();
        let mut waiters: Vec<_> = (0..5).map(|_| locks.lock(&7)).collect();
        for _ in 0..3 {
            waiters.iter_mut().rev().for_each(pending);
            waiters.iter_mut().for_each(pending);
        }
        // The first poll was in reverse.
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
        drop(locks.try_lock(&7).expect("whoever asks gets it"));
    }
    drop(ready(&mut behind));
    drop(ready(&mut locks.lock(&7)));
}

#[test]
fn guarantee_3_the_default_is_a_bound() {
    assert_eq!(Fairness::default(), Fairness::Bounded(16));
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
fn guarantee_5_a_key_that_owns_nothing_may_be_copied_inside_a_lock_and_nothing_else_is() {
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
fn guarantee_7_asking_again_for_a_key_that_one_holds_waits() {
    let locks = KeyedMutex::<u64>::new();
    let guard = locks.lock_blocking(&7);
    assert!(locks.try_lock(&7).is_none());
    assert!(locks.try_lock_for(&7, Duration::from_millis(1)).is_none());
    pending(&mut locks.lock(&7));
    drop(guard);
}
