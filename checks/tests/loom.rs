//! Small models that loom runs through every interleaving, with at most `LOOM_MAX_PREEMPTIONS` preemptions:
//!
//! ```text
//! cd checks
//! RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=3 cargo test --release --test loom
//! ```
//!
//! That is some 560,000 interleavings. Every CI run allows two preemptions. Results of occasional manual runs, from
//! before there were models of several keys:
//!
//! | setting | interleavings | took |
//! |---|---|---|
//! | `LOOM_MAX_PREEMPTIONS=4`, all models | 1,350,384 | 100 s |
//! | no limit, all models of two threads but `handles_are_made_and_dropped_while_the_key_is_locked` | more than 5,118,274 | 400 s |
//!
//! (Measured on two busy cores.) Without a limit, `two_threads_wait_for_each_other_in_futures` and
//! `two_threads_create_and_retire_a_key_that_owns_memory` were stopped after 150 seconds, when they had finished their
//! first variant, of 1,664,872 interleavings each. The model that was left out had not finished within two minutes. The
//! models of three threads have not been tried.
//!
//! The key's memory is a loom cell, so that loom reports a missing happens-before between its use and its reuse. The
//! [`Shared`] data of a critical section is a loom cell, too.
#![cfg(loom)]
#![allow(unsafe_code)] // data that only the lock protects

#[path = "loom/by_hand.rs"]
mod by_hand;
#[path = "loom/closable.rs"]
mod closable;
#[path = "loom/expiry.rs"]
mod expiry;
#[path = "loom/latch.rs"]
mod latch;
#[path = "loom/map.rs"]
mod map;
#[path = "loom/refresh.rs"]
mod refresh;
#[path = "loom/rest.rs"]
mod rest;
#[path = "loom/walk.rs"]
mod walk;
#[path = "loom/weight.rs"]
mod weight;

use std::future::{Future, poll_fn};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use keylatch::deadlock::{Deadlock, Detector, Party, Tracked};
use keylatch::table::Kind;
use keylatch::{Builder, Fairness, KeyedMutex, KeyedRwLock, KeyedSemaphore, MutexGuardArc, WaitPhase};
use loom::cell::UnsafeCell;
use loom::future::block_on;
use loom::thread;

/// A hasher without random state, because every run of a model must take the same steps.
type Hasher = BuildHasherDefault<DefaultHasher>;
type Locks = KeyedMutex<u64, Hasher>;

fn locks(fairness: Fairness) -> Arc<Locks> {
    let builder = KeyedMutex::builder().shards(1).pool_capacity(1);
    Arc::new(builder.fairness(fairness).hasher(Hasher::default()).build())
}

/// The data of the critical sections: loom reports two accesses that overlap or that are not ordered.
struct Shared(UnsafeCell<u32>);

// SAFETY: loom checks every access.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Shared(UnsafeCell::new(0)))
    }

    fn bump(&self) {
        // SAFETY: the pointer is the cell's, and loom reports any concurrent access.
        self.0.with_mut(|count| unsafe { *count += 1 });
    }

    fn count(&self) -> u32 {
        // SAFETY: as above.
        self.0.with(|count| unsafe { *count })
    }
}

fn model(f: impl Fn() + Sync + Send + 'static) {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    let runs = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&runs);
    loom::model(move || {
        counted.fetch_add(1, Relaxed);
        f();
    });
    let name = std::thread::current().name().map(String::from);
    println!("{}: {} interleavings", name.unwrap_or_default(), runs.load(Relaxed));
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Runs two threads on one key: each creates, claims, releases and retires the entry, and may reuse the other's slot.
fn two_threads(lock_and_bump: impl Fn(&Locks, &Shared) + Send + Sync + Copy + 'static, fairness: Fairness) {
    model(move || {
        let (locks, shared) = (locks(fairness), Shared::new());
        let other = {
            let (locks, shared) = (Arc::clone(&locks), Arc::clone(&shared));
            thread::spawn(move || lock_and_bump(&locks, &shared))
        };
        lock_and_bump(&locks, &shared);
        other.join().unwrap();
        assert_eq!(shared.count(), 2);
        assert!(locks.is_empty());
    });
}

#[test]
fn two_threads_create_claim_and_retire_one_key() {
    two_threads(
        |locks, shared| {
            if let Some(_guard) = locks.try_lock(&7) {
                shared.bump();
            } else {
                let _guard = block_on(locks.lock(&7));
                shared.bump();
            }
        },
        Fairness::default(),
    );
}

#[test]
fn two_threads_wait_for_each_other_in_futures() {
    for fairness in [Fairness::Adaptive, Fairness::Fifo, Fairness::Bounded(1), Fairness::Barging] {
        two_threads(
            |locks, shared| {
                let guard = block_on(locks.lock(&7));
                shared.bump();
                assert_eq!(guard.key(), &7);
            },
            fairness,
        );
    }
}

#[test]
fn two_threads_wait_for_each_other_in_blocking_calls() {
    for fairness in [Fairness::Adaptive, Fairness::Fifo, Fairness::Bounded(1), Fairness::Barging] {
        two_threads(
            |locks, shared| {
                let _guard = locks.lock_blocking(&7);
                shared.bump();
            },
            fairness,
        );
    }
}

/// A thread waits behind a future that is not polled. Whether the thread is spinning, about to sleep, or asleep when
/// the key is released, it acquires the key, even though the first release wakes only the future.
#[test]
fn a_thread_behind_an_idle_future_gets_in() {
    for fairness in [Fairness::Adaptive, Fairness::Bounded(9)] {
        model(move || {
            let (locks, shared) = (locks(fairness), Shared::new());
            let guard = locks.try_lock(&7).unwrap();
            let mut idle = locks.lock(&7);
            assert!(poll(&mut idle).is_pending());
            let other = {
                let (locks, shared) = (Arc::clone(&locks), Arc::clone(&shared));
                thread::spawn(move || {
                    let _guard = locks.lock_blocking(&7);
                    shared.bump();
                })
            };
            drop(guard);
            // This release finds that the future has been woken and not polled since.
            if let Some(_guard) = locks.try_lock(&7) {
                shared.bump();
            }
            other.join().unwrap();
            drop(idle);
            assert!(locks.is_empty());
        });
    }
}

/// Two threads sleep or spin while a third releases: the thread that is handed the key takes it.
#[test]
fn a_release_meets_two_threads_about_to_sleep() {
    for fairness in [Fairness::Adaptive, Fairness::Bounded(1)] {
        model(move || {
            let (locks, shared) = (locks(fairness), Shared::new());
            let guard = locks.try_lock(&7).unwrap();
            let others = [(); 2].map(|()| {
                let (locks, shared) = (Arc::clone(&locks), Arc::clone(&shared));
                thread::spawn(move || {
                    let _guard = locks.lock_blocking(&7);
                    shared.bump();
                })
            });
            drop(guard);
            others.into_iter().for_each(|other| other.join().unwrap());
            assert_eq!(shared.count(), 2);
            assert!(locks.is_empty());
        });
    }
}

/// A key that owns memory is cloned between two look-ups in the table, or overwrites an old key of the table. When its
/// entry dies, the key is dropped, or kept for the next entry. There may be an old key from the start.
#[test]
fn two_threads_create_and_retire_a_key_that_owns_memory() {
    for (recycle, used) in [(false, false), (true, false), (true, true)] {
        model(move || {
            let builder = KeyedMutex::builder().shards(1).pool_capacity(1).recycle_keys(recycle);
            let locks: Arc<KeyedMutex<Arc<u64>, Hasher>> = Arc::new(builder.hasher(Hasher::default()).build());
            let (key, old, shared) = (Arc::new(7), Arc::new(6), Shared::new());
            if used {
                drop(locks.try_lock(&old));
                assert_eq!(Arc::strong_count(&old), 2, "the old key was not kept");
            }
            let lock_and_bump = {
                let (locks, key, shared) = (Arc::clone(&locks), Arc::clone(&key), Arc::clone(&shared));
                move || {
                    let guard = block_on(locks.lock(&key));
                    assert_eq!(**guard.key(), 7);
                    shared.bump();
                }
            };
            let other = thread::spawn(lock_and_bump.clone());
            lock_and_bump();
            other.join().unwrap();
            assert_eq!(shared.count(), 2);
            assert!(locks.is_empty());
            assert_eq!(Arc::strong_count(&old), 1, "the old key was not overwritten");
            drop((locks, lock_and_bump));
            assert_eq!(Arc::strong_count(&key), 1, "a copy of the key was not dropped exactly once");
        });
    }
}

#[test]
fn a_slot_is_reused_for_another_key_only_when_it_has_no_user() {
    model(|| {
        let locks = locks(Fairness::default());
        let other = {
            let locks = Arc::clone(&locks);
            thread::spawn(move || {
                for key in [1, 2] {
                    if let Some(guard) = locks.try_lock(&key) {
                        assert_eq!(*guard.key(), key);
                    }
                }
            })
        };
        let handle = locks.handle(&1);
        assert_eq!(*handle.key(), 1);
        drop(handle);
        other.join().unwrap();
        assert!(locks.is_empty());
    });
}

/// The third and the fourth entry are in one group: the last user to leave frees the group, while the other
/// continues.
#[test]
fn a_group_of_slots_is_freed_when_its_last_user_leaves() {
    model(|| {
        let locks = locks(Fairness::default());
        let [first, second, third, fourth] = [1, 2, 3, 4].map(|key| locks.try_lock_arc(&key).unwrap());
        let other = {
            let locks = Arc::clone(&locks);
            thread::spawn(move || {
                drop(third);
                let again = locks.try_lock(&5).unwrap();
                assert_eq!(*again.key(), 5);
            })
        };
        drop(second);
        drop(fourth);
        other.join().unwrap();
        assert_eq!((locks.len(), *first.key()), (1, 1));
        drop(first);
        assert!(locks.is_empty());
    });
}

/// Both threads find no free slot, and each allocates a group of two. One group is enough for both, so the other is
/// freed unused.
#[test]
fn two_threads_that_need_more_slots_share_one_group() {
    model(|| {
        let locks = locks(Fairness::default());
        let [first, second] = [1, 2].map(|key| locks.try_lock_arc(&key).unwrap());
        let use_key = |locks: &Locks, key| {
            let guard = locks.try_lock(&key).unwrap();
            assert_eq!(*guard.key(), key);
        };
        let other = {
            let locks = Arc::clone(&locks);
            thread::spawn(move || use_key(&locks, 3))
        };
        use_key(&locks, 4);
        other.join().unwrap();
        assert_eq!((*first.key(), *second.key(), locks.len()), (1, 2, 2));
        drop((first, second));
        assert!(locks.is_empty());
    });
}

#[test]
fn handles_are_made_and_dropped_while_the_key_is_locked() {
    two_threads(
        |locks, shared| {
            let handle = locks.handle(&7);
            let guard = block_on(handle.lock());
            drop(handle);
            shared.bump();
            drop(guard);
        },
        Fairness::default(),
    );
}

/// Releases the key while the first of `waiters` gives up: the remaining waiters acquire the key.
fn cancel_against_release(fairness: Fairness, waiters: usize) {
    model(move || {
        let locks = locks(fairness);
        let guard = locks.try_lock_arc(&7).unwrap();
        let mut first = locks.lock_arc(&7);
        assert!(poll(&mut first).is_pending());
        let mut others: Vec<_> = (1..waiters).map(|_| locks.lock_arc(&7)).collect();
        assert!(others.iter_mut().all(|waiter| poll(waiter).is_pending()));
        let others = thread::spawn(move || {
            while !others.is_empty() {
                let guard = block_on(others.remove(0));
                assert!(others.iter_mut().all(|waiter| poll(waiter).is_pending()), "two requests hold the key");
                drop(guard);
            }
        });
        let releaser = thread::spawn(move || drop(guard));
        drop(first);
        releaser.join().unwrap();
        others.join().unwrap();
        assert!(locks.is_empty());
    });
}

#[test]
fn a_cancelled_waiter_passes_the_key_on_alone() {
    for fairness in [Fairness::Adaptive, Fairness::Fifo, Fairness::Bounded(1), Fairness::Barging] {
        cancel_against_release(fairness, 1);
    }
}

#[test]
fn a_cancelled_waiter_passes_the_key_on_to_the_next() {
    for fairness in [Fairness::Adaptive, Fairness::Fifo, Fairness::Bounded(1), Fairness::Barging] {
        cancel_against_release(fairness, 2);
    }
}

#[test]
fn a_cancelled_waiter_passes_the_key_on_to_one_of_two() {
    for fairness in [Fairness::Fifo, Fairness::Bounded(0), Fairness::Bounded(1), Fairness::Barging] {
        cancel_against_release(fairness, 3);
    }
}

/// A request with a priority takes the first place while the key is released, perhaps to the waiter that was the first
/// until then. The request acquires the key or gives up, and the other waiter gets in.
#[test]
fn a_request_with_a_priority_comes_before_a_waiter_during_a_release() {
    for fairness in [Fairness::Adaptive, Fairness::Fifo, Fairness::Bounded(1), Fairness::Barging] {
        for gives_up in [false, true] {
            model(move || {
                let (locks, shared) = (locks(fairness), Shared::new());
                let guard = locks.try_lock_arc(&7).unwrap();
                let mut low = locks.lock(&7);
                assert!(poll(&mut low).is_pending());
                let high = {
                    let (locks, shared) = (Arc::clone(&locks), Arc::clone(&shared));
                    thread::spawn(move || {
                        let mut high = locks.lock(&7).priority(1);
                        if gives_up {
                            if let Poll::Ready(_guard) = poll(&mut high) {
                                shared.bump();
                            }
                        } else {
                            let _guard = block_on(high);
                            shared.bump();
                        }
                    })
                };
                drop(guard);
                let guard = block_on(low);
                shared.bump();
                drop(guard);
                high.join().unwrap();
                assert!(locks.is_empty());
            });
        }
    }
}

/// The holder releases while the limit of the first waiter is reached: whether or not that waiter acquires the key, the
/// one behind it does.
#[test]
fn a_limit_reached_during_a_hand_off_loses_nothing() {
    for fairness in [Fairness::Adaptive, Fairness::Fifo, Fairness::Bounded(1), Fairness::Barging] {
        model(move || {
            let (locks, shared) = (locks(fairness), Shared::new());
            let guard = locks.try_lock_arc(&7).unwrap();
            let mut polls = 0;
            let on_second_poll = poll_fn(move |_| {
                polls += 1;
                if polls == 2 { Poll::Ready(()) } else { Poll::Pending }
            });
            let mut limited = Box::pin(locks.lock_arc(&7).until(on_second_poll));
            assert!(poll(&mut limited).is_pending());
            let mut behind = locks.lock_arc(&7);
            assert!(poll(&mut behind).is_pending());
            let behind = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let _guard = block_on(behind);
                    shared.bump();
                })
            };
            let releaser = thread::spawn(move || drop(guard));
            let outcome = match poll(&mut limited) {
                Poll::Ready(outcome) => outcome,
                Poll::Pending => panic!("the request still waits although its limit has been reached"),
            };
            outcome.iter().for_each(|_guard| shared.bump());
            let got = outcome.is_ok();
            drop((outcome, limited));
            releaser.join().unwrap();
            behind.join().unwrap();
            assert_eq!(shared.count(), 1 + u32::from(got));
            assert!(locks.is_empty());
        });
    }
}

/// A newcomer, a waiter and a release at the same time.
#[test]
fn a_newcomer_and_a_waiter_do_not_both_acquire_the_key() {
    for fairness in [Fairness::Adaptive, Fairness::Fifo, Fairness::Bounded(1), Fairness::Barging] {
        model(move || {
            let (locks, shared) = (locks(fairness), Shared::new());
            let guard = locks.try_lock_arc(&7).unwrap();
            let waiter = {
                let (mut waiter, shared) = (locks.lock_arc(&7), Arc::clone(&shared));
                assert!(poll(&mut waiter).is_pending());
                thread::spawn(move || {
                    let _guard = block_on(waiter);
                    shared.bump();
                })
            };
            let newcomer = {
                let (locks, shared) = (Arc::clone(&locks), Arc::clone(&shared));
                thread::spawn(move || locks.try_lock(&7).map(|_guard| shared.bump()).is_some())
            };
            shared.bump();
            drop(guard);
            waiter.join().unwrap();
            let passed = newcomer.join().unwrap();
            assert_eq!(shared.count(), 2 + u32::from(passed));
            assert!(locks.is_empty());
        });
    }
}

/// The last user of a table is a guard or a request that owns the table: the one that is dropped last drops the table.
/// (Loom does not know the ordering of an `Arc`. So the key, which is a loom cell, is not used here.)
#[test]
fn a_guard_may_be_the_last_user_of_its_table() {
    model(|| {
        let locks = locks(Fairness::default());
        let guard = locks.try_lock_arc(&7).unwrap();
        let mut waiter = locks.lock_arc(&7);
        assert!(poll(&mut waiter).is_pending());
        let table = Arc::downgrade(&locks);
        drop(locks);
        let other = thread::spawn(move || drop(guard));
        drop(waiter);
        other.join().unwrap();
        assert_eq!(table.strong_count(), 0);
    });
}

/// Like the previous model, but the table's own `Arc` is dropped at the same time.
#[test]
fn a_table_may_be_dropped_while_its_last_guard_is() {
    model(|| {
        let locks = locks(Fairness::default());
        let guard = locks.try_lock_arc(&7).unwrap();
        let table = Arc::downgrade(&locks);
        let other = thread::spawn(move || drop(guard));
        drop(locks.handle_arc(&7));
        drop(locks);
        other.join().unwrap();
        assert_eq!(table.strong_count(), 0);
    });
}

#[test]
fn a_visit_keeps_its_entry_and_no_other() {
    model(|| {
        let locks = locks(Fairness::default());
        let other = {
            let locks = Arc::clone(&locks);
            thread::spawn(move || drop(locks.try_lock(&7)))
        };
        locks.for_each_key(|&key, status| {
            assert_eq!(key, 7);
            assert_eq!((status.holders(), locks.len()), (1, 1));
        });
        other.join().unwrap();
        assert!(locks.is_empty());
    });
}

/// The end of the wait is reported under a separate claim. Meanwhile a release may be the last use of the key, and a
/// thread may recreate the entry. The queue may be freed between two look-ups.
#[test]
fn a_wait_that_is_given_up_beside_a_release_ends_once() {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    for fairness in [Fairness::Adaptive, Fairness::Fifo] {
        model(move || {
            let counts = std::sync::Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
            let counter = std::sync::Arc::clone(&counts);
            let builder = KeyedMutex::<u64>::builder().shards(1).fairness(fairness).on_wait(move |event| {
                assert_eq!(event.key(), &7);
                counter[usize::from(event.phase() != WaitPhase::Started)].fetch_add(1, Relaxed);
            });
            let locks = Arc::new(builder.build());
            let guard = locks.try_lock_arc(&7).unwrap();
            let other = {
                let locks = Arc::clone(&locks);
                thread::spawn(move || {
                    let mut lock = locks.lock(&7);
                    let got = poll(&mut lock).is_ready();
                    drop(lock);
                    got
                })
            };
            drop(guard);
            let again = locks.try_lock(&7);
            let got = other.join().unwrap();
            drop(again);
            let [started, ended] = [counts[0].load(Relaxed), counts[1].load(Relaxed)];
            assert_eq!((started, ended), (usize::from(!got), usize::from(!got)));
            assert!(locks.is_empty());
        });
    }
}

#[test]
fn a_status_is_read_while_the_last_waiter_gives_up() {
    model(|| {
        let locks = locks(Fairness::default());
        let guard = locks.try_lock_arc(&7).unwrap();
        let mut waiter = locks.lock_arc(&7);
        assert!(poll(&mut waiter).is_pending());
        let leaver = thread::spawn(move || drop(waiter));
        let status = locks.status(&7).unwrap();
        assert!(status.writers() == 1 && status.waiters() <= 1);
        leaver.join().unwrap();
        drop(guard);
        assert!(locks.is_empty());
    });
}

fn rwlock(fairness: Fairness) -> Arc<KeyedRwLock<u64, Hasher>> {
    let builder = KeyedRwLock::builder().shards(1).pool_capacity(1);
    Arc::new(builder.fairness(fairness).hasher(Hasher::default()).build())
}

/// The last reader leaves while the upgradable reader begins to wait for its departure; a writer waits behind both.
#[test]
fn an_upgrade_sees_the_last_reader_leave_and_no_writer_in_between() {
    for fairness in [Fairness::Fifo, Fairness::Bounded(1)] {
        model(move || {
            let (locks, shared) = (rwlock(fairness), Shared::new());
            let upgradable = locks.try_upgradable_read_arc(&7).unwrap();
            let reader = locks.try_read_arc(&7).unwrap();
            let mut writer = locks.write_arc(&7);
            assert!(poll(&mut writer).is_pending());
            let leaver = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    assert_eq!(shared.count(), 0);
                    drop(reader);
                })
            };
            let guard = block_on(upgradable.upgrade());
            assert!(poll(&mut writer).is_pending());
            shared.bump();
            drop(guard);
            leaver.join().unwrap();
            drop(block_on(writer));
            assert_eq!(shared.count(), 1);
            assert!(locks.is_empty());
        });
    }
}

#[test]
fn an_upgrade_that_gives_up_while_the_last_reader_leaves_loses_nothing() {
    model(|| {
        let locks = rwlock(Fairness::Bounded(1));
        let mut upgradable = locks.try_upgradable_read_arc(&7).unwrap();
        let reader = locks.try_read_arc(&7).unwrap();
        let leaver = thread::spawn(move || drop(reader));
        let mut upgrade = upgradable.upgrade_mut();
        drop(poll(&mut upgrade));
        drop(upgrade);
        let status = locks.status(&7).unwrap();
        assert_eq!((status.upgradable(), status.writers(), status.waiters()), (1, 0, 0));
        leaver.join().unwrap();
        drop(upgradable);
        assert!(locks.is_empty());
    });
}

/// Only the upgradable reader holds the key, and the waiter behind it gives up during the upgrade.
#[test]
fn an_upgrade_and_the_last_waiter_that_gives_up_do_not_interfere() {
    for polled in [false, true] {
        model(move || {
            let locks = rwlock(Fairness::Bounded(1));
            let upgradable = locks.try_upgradable_read_arc(&7).unwrap();
            let mut writer = locks.write_arc(&7);
            assert!(poll(&mut writer).is_pending());
            let leaver = thread::spawn(move || drop(writer));
            let guard = if polled { block_on(upgradable.upgrade()) } else { upgradable.try_upgrade().ok().unwrap() };
            leaver.join().unwrap();
            let status = locks.status(&7).unwrap();
            assert_eq!((status.writers(), status.upgradable(), status.waiters()), (1, 0, 0));
            drop(guard);
            assert!(locks.is_empty());
        });
    }
}

/// A writer downgrades to a reader while another reader arrives. No writer gets in beside them.
#[test]
fn a_downgrade_admits_readers_and_no_writer() {
    for fairness in [Fairness::Fifo, Fairness::Bounded(0)] {
        model(move || {
            let (locks, shared) = (rwlock(fairness), Shared::new());
            let guard = locks.try_write_arc(&7).unwrap();
            let arriver = {
                let (locks, shared) = (Arc::clone(&locks), Arc::clone(&shared));
                thread::spawn(move || {
                    let _guard = block_on(locks.read(&7));
                    assert_eq!(shared.count(), 1);
                })
            };
            shared.bump();
            let guard = guard.downgrade();
            assert_eq!(shared.count(), 1);
            assert!(locks.try_write(&7).is_none());
            drop(guard);
            arriver.join().unwrap();
            assert!(locks.is_empty());
        });
    }
}

#[test]
fn a_writer_that_gives_up_admits_the_reader_that_it_keeps_out() {
    model(|| {
        let locks = rwlock(Fairness::Bounded(0));
        let held = locks.try_read_arc(&7).unwrap();
        let mut writer = locks.write_arc(&7);
        assert!(poll(&mut writer).is_pending());
        let reader = {
            let locks = Arc::clone(&locks);
            thread::spawn(move || drop(block_on(locks.read(&7))))
        };
        drop(writer);
        reader.join().unwrap();
        drop(held);
        assert!(locks.is_empty());
    });
}

/// A reader reads again, while a writer waits, gives up, or begins to wait.
#[test]
fn a_recursive_reader_never_waits_for_a_waiting_writer() {
    for fairness in [Fairness::Fifo, Fairness::Adaptive] {
        model(move || {
            let locks = rwlock(fairness);
            let held = locks.try_read_arc(&7).unwrap();
            let writer = {
                let locks = Arc::clone(&locks);
                thread::spawn(move || {
                    let mut writer = locks.write(&7);
                    let _ = poll(&mut writer);
                })
            };
            let again = match poll(&mut locks.read_recursive(&7)) {
                Poll::Ready(guard) => guard,
                Poll::Pending => panic!("it waits although a reader holds the key"),
            };
            assert!(locks.try_read_recursive(&7).is_some());
            drop((held, again));
            writer.join().unwrap();
            assert!(locks.is_empty());
        });
    }
}

/// A recursive reader arrives while the last reader leaves the key to a waiting writer.
#[test]
fn a_recursive_reader_and_the_writer_that_it_passes_exclude_each_other() {
    for fairness in [Fairness::Fifo, Fairness::Adaptive] {
        model(move || {
            let (locks, shared) = (rwlock(fairness), Shared::new());
            let held = locks.try_read_arc(&7).unwrap();
            let mut writer = locks.write_arc(&7);
            assert!(poll(&mut writer).is_pending());
            let reader = {
                let (locks, shared) = (Arc::clone(&locks), Arc::clone(&shared));
                thread::spawn(move || {
                    let _guard = block_on(locks.read_recursive(&7));
                    shared.count()
                })
            };
            drop(held);
            let guard = block_on(writer);
            shared.bump();
            drop(guard);
            assert!(reader.join().unwrap() <= 1);
            assert!(locks.is_empty());
        });
    }
}

#[test]
fn readers_and_a_writer_exclude_each_other() {
    model(|| {
        let (locks, shared) = (rwlock(Fairness::Bounded(1)), Shared::new());
        let writer = {
            let (locks, shared) = (Arc::clone(&locks), Arc::clone(&shared));
            thread::spawn(move || {
                let _guard = block_on(locks.write(&7));
                shared.bump();
            })
        };
        let reader = {
            let (locks, shared) = (Arc::clone(&locks), Arc::clone(&shared));
            thread::spawn(move || {
                let _guard = block_on(locks.read(&7));
                shared.count()
            })
        };
        writer.join().unwrap();
        assert!(reader.join().unwrap() <= 1);
        assert!(locks.is_empty());
    });
}

/// A permit is released while the waiter that would get it gives up, and another waiter waits. In half of the models
/// another permit stays held.
#[test]
fn a_permit_goes_to_a_waiter_that_remains() {
    for (fairness, permits) in
        [Fairness::Fifo, Fairness::Bounded(1), Fairness::Barging].map(|it| [(it, 1), (it, 2)]).concat()
    {
        model(move || {
            let builder = KeyedSemaphore::builder(permits).shards(1).fairness(fairness);
            let hosts: Arc<KeyedSemaphore<u64, Hasher>> = Arc::new(builder.hasher(Hasher::default()).build());
            let permit = hosts.try_acquire_arc(&7).unwrap();
            let others: Vec<_> = (1..permits).map(|_| hosts.try_acquire_arc(&7).unwrap()).collect();
            let (mut first, mut second) = (hosts.acquire_arc(&7), hosts.acquire_arc(&7));
            assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
            let releaser = thread::spawn(move || drop(permit));
            let waiter = thread::spawn(move || drop(block_on(second)));
            drop(first);
            releaser.join().unwrap();
            waiter.join().unwrap();
            drop(others);
            assert!(hosts.is_empty());
        });
    }
}

/// Two permits are released one by one, while a request for both waits before a request for one. One of the two
/// requests gives up, and the other acquires its permits.
#[test]
fn requests_for_both_permits_and_for_one_are_served_or_give_up() {
    let adaptive = Fairness::Adaptive;
    for (fairness, gives_up) in
        [(adaptive, 1), (adaptive, 2), (Fairness::Fifo, 2), (Fairness::Bounded(1), 1), (Fairness::Barging, 2)]
    {
        model(move || {
            let builder = KeyedSemaphore::builder(2).shards(1).fairness(fairness);
            let hosts: Arc<KeyedSemaphore<u64, Hasher>> = Arc::new(builder.hasher(Hasher::default()).build());
            let [first, second] = [(); 2].map(|()| hosts.try_acquire_arc(&7).unwrap());
            let (mut big, mut small) = (hosts.acquire_n_arc(&7, 2), hosts.acquire_arc(&7));
            assert!(poll(&mut big).is_pending() && poll(&mut small).is_pending());
            let (quitter, stayer, n) = if gives_up == 2 { (big, small, 1) } else { (small, big, 2) };
            let releaser = thread::spawn(move || drop(first));
            let waiter = thread::spawn(move || assert_eq!(block_on(stayer).permits(), n));
            drop(quitter);
            drop(second);
            releaser.join().unwrap();
            waiter.join().unwrap();
            assert!(hosts.is_empty());
        });
    }
}

fn semaphore(permits: usize, fairness: Fairness) -> Arc<KeyedSemaphore<u64, Hasher>> {
    let builder = KeyedSemaphore::builder(permits).shards(1).pool_capacity(1).fairness(fairness);
    Arc::new(builder.hasher(Hasher::default()).build())
}

/// A key gets a limit of its own, and loses it, while another thread acquires and releases its only permit.
#[test]
fn the_limit_of_a_key_comes_and_goes_while_it_is_acquired() {
    model(|| {
        let (hosts, shared) = (semaphore(1, Fairness::Adaptive), Shared::new());
        let other = {
            let (hosts, shared) = (Arc::clone(&hosts), Arc::clone(&shared));
            thread::spawn(move || {
                let _permit = block_on(hosts.acquire(&7));
                shared.bump();
            })
        };
        hosts.set_permits(&7, 1);
        if let Some(_permit) = hosts.try_acquire(&7) {
            shared.bump();
        }
        assert!(hosts.reset_permits(&7));
        other.join().unwrap();
        assert!(hosts.is_empty());
    });
}

/// A request either begins after the new default limit, or is found by the call that sets it.
#[test]
fn a_higher_default_limit_reaches_a_request_that_begins_to_wait() {
    for fairness in [Fairness::Adaptive, Fairness::Fifo] {
        model(move || {
            let hosts = semaphore(1, fairness);
            let first = hosts.try_acquire_arc(&7).unwrap();
            let waiter = {
                let hosts = Arc::clone(&hosts);
                thread::spawn(move || drop(block_on(hosts.acquire(&7))))
            };
            hosts.set_default_permits(2);
            waiter.join().unwrap();
            drop(first);
            assert!(hosts.is_empty());
        });
    }
}

/// Two threads set and reset the limit of one key: the limit releases its claim on the entry exactly once.
#[test]
fn two_threads_set_and_take_away_the_limit_of_a_key() {
    model(|| {
        let hosts = semaphore(1, Fairness::Adaptive);
        let other = {
            let hosts = Arc::clone(&hosts);
            thread::spawn(move || {
                hosts.set_permits(&7, 2);
                hosts.reset_permits(&7)
            })
        };
        hosts.set_permits(&7, 3);
        let had = hosts.reset_permits(&7);
        assert!(other.join().unwrap() || had);
        hosts.reset_permits(&7);
        assert!(hosts.is_empty());
    });
}

/// A split hold is released in two parts, while a request for both permits waits.
#[test]
fn split_permits_are_released_one_by_one() {
    for fairness in [Fairness::Adaptive, Fairness::Fifo] {
        model(move || {
            let builder = KeyedSemaphore::builder(2).shards(1).fairness(fairness);
            let hosts: Arc<KeyedSemaphore<u64, Hasher>> = Arc::new(builder.hasher(Hasher::default()).build());
            let mut both = hosts.try_acquire_n_arc(&7, 2).unwrap();
            let one = both.split(1).unwrap();
            let releaser = thread::spawn(move || drop(one));
            let waiter = {
                let hosts = Arc::clone(&hosts);
                thread::spawn(move || drop(block_on(hosts.acquire_n(&7, 2))))
            };
            drop(both);
            releaser.join().unwrap();
            waiter.join().unwrap();
            assert!(hosts.is_empty());
        });
    }
}

/// Makes room for two keys in one allocation: several keys are locked in the order of their entries in memory, and that
/// order must not depend on an allocator.
fn one_chunk<T: Kind>(builder: Builder<T, u64>) -> Builder<T, u64, Hasher> {
    builder.hasher(Hasher::default()).shards(1).capacity(2).pool_capacity(2)
}

/// Lets two callers lock both keys, each in its own order: they do not deadlock.
fn two_callers_lock_both(
    fairness: Fairness,
    lock_and_bump: impl Fn(&Locks, &Shared, [u64; 2]) + Send + Sync + Copy + 'static,
) {
    model(move || {
        let (locks, shared) = (Arc::new(one_chunk(KeyedMutex::builder()).fairness(fairness).build()), Shared::new());
        let other = {
            let (locks, shared) = (Arc::clone(&locks), Arc::clone(&shared));
            thread::spawn(move || lock_and_bump(&locks, &shared, [2, 1]))
        };
        lock_and_bump(&locks, &shared, [1, 2]);
        other.join().unwrap();
        assert_eq!(shared.count(), 2);
        assert!(locks.is_empty());
    });
}

#[test]
fn two_tasks_lock_two_keys_in_opposite_order() {
    for fairness in [Fairness::Adaptive, Fairness::Fifo] {
        two_callers_lock_both(fairness, |locks, shared, keys| {
            let _guards = block_on(locks.lock_many(&keys));
            shared.bump();
        });
    }
}

#[test]
fn two_threads_lock_two_keys_in_opposite_order() {
    for fairness in [Fairness::Adaptive, Fairness::Fifo] {
        two_callers_lock_both(fairness, |locks, shared, keys| {
            let _guards = locks.lock_many_blocking(&keys);
            shared.bump();
        });
    }
}

/// A future is dropped while it waits for the first of two keys, or while it holds that key and waits for the other, or
/// after it has been handed a key. At the same time a thread wants both keys in the opposite order.
#[test]
fn a_future_for_two_keys_is_dropped_while_a_thread_locks_both() {
    for last in [1, 2] {
        model(move || {
            let (locks, shared) = (Arc::new(one_chunk(KeyedMutex::builder()).build()), Shared::new());
            let guard = locks.try_lock(&last).unwrap();
            let mut future = locks.lock_many([&1, &2]);
            assert!(poll(&mut future).is_pending());
            let other = {
                let (locks, shared) = (Arc::clone(&locks), Arc::clone(&shared));
                thread::spawn(move || {
                    let _guards = block_on(locks.lock_many([&2, &1]));
                    shared.bump();
                })
            };
            drop(guard);
            drop(future);
            other.join().unwrap();
            assert!(locks.is_empty());
        });
    }
}

/// A release of two entries keeps both until they are free and all waiters have been woken; then it drops their keys.
/// Meanwhile another thread locks one of the keys, and finds its entry or creates a new one.
#[test]
fn two_keys_that_own_memory_are_released_at_once() {
    for waits in [false, true] {
        model(move || {
            let locks: Arc<KeyedMutex<Arc<u64>, Hasher>> = Arc::new(
                KeyedMutex::builder().shards(1).capacity(2).pool_capacity(0).hasher(Hasher::default()).build(),
            );
            let (keys, shared) = ([Arc::new(1), Arc::new(2)], Shared::new());
            let held = if waits { locks.try_lock(&keys[1]) } else { None };
            let mut future = locks.lock_many(&keys);
            let guards = poll(&mut future);
            assert_eq!(guards.is_pending(), waits);
            let other = {
                let (locks, key, shared) = (Arc::clone(&locks), Arc::clone(&keys[0]), Arc::clone(&shared));
                thread::spawn(move || {
                    let guard = block_on(locks.lock(&key));
                    assert_eq!(**guard.key(), 1);
                    shared.bump();
                })
            };
            drop((guards, future, held));
            other.join().unwrap();
            assert!(locks.is_empty());
            drop(locks);
            assert!(keys.iter().all(|key| Arc::strong_count(key) == 1), "a copy of a key was not dropped exactly once");
        });
    }
}

/// A call for two keys runs beside a caller that locks one of them, and only tries the other while it holds the first.
#[test]
fn a_call_for_two_keys_beside_calls_for_one_key() {
    model(move || {
        let (locks, shared) = (Arc::new(one_chunk(KeyedMutex::builder()).build()), [Shared::new(), Shared::new()]);
        let other = {
            let (locks, shared) = (Arc::clone(&locks), shared.clone());
            thread::spawn(move || {
                let _guards = block_on(locks.lock_many([&0, &1]));
                shared.iter().for_each(|shared| shared.bump());
            })
        };
        {
            let _guard = block_on(locks.lock(&1));
            shared[1].bump();
            if let Some(_guard) = locks.try_lock(&0) {
                shared[0].bump();
            }
        }
        other.join().unwrap();
        assert!((1..=2).contains(&shared[0].count()) && shared[1].count() == 2);
        assert!(locks.is_empty());
    });
}

/// Values that are written together are read together.
#[test]
fn readers_of_two_keys_beside_a_writer_of_both() {
    model(move || {
        let locks = Arc::new(one_chunk(KeyedRwLock::builder()).build());
        let shared = [Shared::new(), Shared::new()];
        let writer = {
            let (locks, shared) = (Arc::clone(&locks), shared.clone());
            thread::spawn(move || {
                let _guards = block_on(locks.write_many([&0, &1]));
                shared.iter().for_each(|shared| shared.bump());
            })
        };
        {
            let _guards = block_on(locks.read_many([&1, &0]));
            assert_eq!(shared[0].count(), shared[1].count());
        }
        writer.join().unwrap();
        assert!(locks.is_empty());
    });
}

/// A key that is listed twice takes one of two permits: a caller that tries always gets the other.
#[test]
fn a_duplicate_key_takes_one_permit() {
    for asks in [true, false] {
        model(move || {
            let hosts = Arc::new(one_chunk(KeyedSemaphore::builder(2)).build());
            let other = {
                let hosts = Arc::clone(&hosts);
                thread::spawn(move || {
                    drop(if asks {
                        block_on(hosts.acquire_many([&7, &7]))
                    } else {
                        hosts.acquire_many_blocking([&7, &7])
                    });
                })
            };
            assert!(hosts.try_acquire(&7).is_some());
            other.join().unwrap();
            assert!(hosts.is_empty());
        });
    }
}

type TrackedGuard = Tracked<MutexGuardArc<u64, Hasher>>;

fn tracked(party: &Party, locks: &Arc<Locks>, key: u64) -> Result<TrackedGuard, Deadlock> {
    block_on(party.acquire(locks.lock_arc(&key)))
}

/// Returns two parties, each of which holds one key.
fn two_parties(fairness: Fairness) -> (Arc<Locks>, [(Party, TrackedGuard); 2]) {
    let (locks, detector) = (locks(fairness), Detector::new());
    let [a, b] = [("a", 1), ("b", 2)].map(|(name, key)| {
        let party = detector.party(name);
        let held = tracked(&party, &locks, key).unwrap();
        (party, held)
    });
    (locks, [a, b])
}

/// Each party requests the other's key. One request fails, and the other acquires its key when the failed party
/// releases.
#[test]
fn two_requests_that_complete_a_cycle_at_once_deadlock() {
    for (fairness, blocking) in [(Fairness::Adaptive, false), (Fairness::Fifo, false), (Fairness::Adaptive, true)] {
        model(move || {
            let (locks, [(a, one), (b, two)]) = two_parties(fairness);
            let ask = move |party: Party, locks: &Arc<Locks>, key| match blocking {
                true => party.acquire_blocking(locks.lock_arc(&key)).is_err(),
                false => tracked(&party, locks, key).is_err(),
            };
            let other = {
                let locks = Arc::clone(&locks);
                thread::spawn(move || {
                    let failed = ask(b, &locks, 1);
                    drop(two);
                    failed
                })
            };
            let failed = ask(a, &locks, 2);
            drop(one);
            assert!(failed ^ other.join().unwrap(), "not exactly one request failed");
            assert!(locks.is_empty());
        });
    }
}

/// While one request completes the cycle, the other gives up and releases its key: the first request fails or acquires
/// its key.
#[test]
fn a_request_gives_up_while_another_closes_the_cycle() {
    for fairness in [Fairness::Adaptive, Fairness::Fifo] {
        model(move || {
            let (locks, [(a, one), (b, two)]) = two_parties(fairness);
            let mut waits = b.acquire(locks.lock_arc(&1));
            assert!(poll(&mut waits).is_pending());
            let other = thread::spawn(move || {
                drop(waits);
                drop(two);
            });
            drop(tracked(&a, &locks, 2));
            other.join().unwrap();
            drop(one);
            assert!(locks.is_empty());
        });
    }
}

/// A party that waits for another key requests a key that an untracked holder is just releasing, and may pass another
/// waiter for that key. If it does, there is a cycle, and its request elsewhere fails.
#[test]
fn an_acquisition_beside_an_untracked_release_may_complete_a_cycle() {
    model(|| {
        let (locks, detector) = (locks(Fairness::Adaptive), Detector::new());
        let (a, b) = (detector.party("a"), detector.party("b"));
        let one = tracked(&b, &locks, 1).unwrap();
        let untracked = locks.try_lock_arc(&2).unwrap();
        let mut first = a.acquire(locks.lock_arc(&1));
        let mut of_b = b.acquire(locks.lock_arc(&2));
        assert!(poll(&mut first).is_pending() && poll(&mut of_b).is_pending());
        let other = thread::spawn(move || {
            drop(untracked);
            let two = block_on(of_b).expect("party b was first in the queue");
            drop((one, two));
        });
        let second = tracked(&a, &locks, 2).expect("the party it waits for has all that it wants, or will");
        // Party a passed b, or b has finished.
        match poll(&mut first) {
            Poll::Ready(result) => drop(result),
            Poll::Pending => drop(first),
        }
        drop(second);
        other.join().unwrap();
        assert!(locks.is_empty());
    });
}

/// A party adopts a guard while another begins to wait for its key, and so completes a cycle. One of the two requests
/// that wait fails.
#[test]
fn a_guard_is_adopted_while_another_party_begins_to_wait_for_it() {
    model(|| {
        let (locks, detector) = (locks(Fairness::Adaptive), Detector::new());
        let (a, b) = (detector.party("a"), detector.party("b"));
        let two = tracked(&b, &locks, 2).unwrap();
        let plain = locks.try_lock_arc(&1).unwrap();
        let mut of_a = a.acquire(locks.lock_arc(&2));
        assert!(poll(&mut of_a).is_pending());
        let other = {
            let locks = Arc::clone(&locks);
            thread::spawn(move || {
                let failed = tracked(&b, &locks, 1).is_err();
                drop(two);
                failed
            })
        };
        let one = a.adopt(plain);
        let failed = block_on(of_a).is_err();
        drop(one);
        assert!(failed ^ other.join().unwrap(), "not exactly one request failed");
        assert!(locks.is_empty());
    });
}

/// A party requests two keys in one call, while another party holds one of them and wants the other.
#[test]
fn a_request_for_two_keys_completes_a_cycle_with_a_party_that_holds_one() {
    for held in [1, 2] {
        model(move || {
            let (locks, detector) = (Arc::new(one_chunk(KeyedMutex::builder()).build()), Detector::new());
            let (a, b) = (detector.party("a"), detector.party("b"));
            let own = tracked(&b, &locks, held).unwrap();
            let other = {
                let locks = Arc::clone(&locks);
                thread::spawn(move || block_on(a.acquire(locks.lock_many_arc([&1, &2]))).is_err())
            };
            let failed = tracked(&b, &locks, 3 - held).is_err();
            drop(own);
            let other_failed = other.join().unwrap();
            assert!(!(failed && other_failed), "two requests of one cycle failed");
            assert!(locks.is_empty());
        });
    }
}
