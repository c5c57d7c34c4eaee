//! Models of latches and stripes.

use std::sync::Arc;

use keylatch::deadlock::Detector;
use keylatch::{Fairness, Latch, Striped};
use loom::future::block_on;
use loom::thread;

use crate::{Hasher, Shared, model, poll};

const POLICIES: [Fairness; 4] = [Fairness::Adaptive, Fairness::Fifo, Fairness::Bounded(1), Fairness::Barging];

/// Creates a latch that lives as long as the model.
fn latch() -> &'static Latch {
    Box::leak(Box::new(Latch::new()))
}

fn striped(stripes: usize, fairness: Fairness) -> &'static Striped<u64, Hasher> {
    Box::leak(Box::new(Striped::builder(stripes).fairness(fairness).hasher(Hasher::default()).build()))
}

fn two_threads(write_and_bump: impl Fn(&'static Striped<u64, Hasher>, &Shared) + Send + Sync + Copy + 'static) {
    for fairness in POLICIES {
        model(move || {
            let (striped, shared) = (striped(1, fairness), Shared::new());
            let other = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || write_and_bump(striped, &shared))
            };
            write_and_bump(striped, &shared);
            other.join().unwrap();
            assert_eq!(shared.count(), 2);
            assert!(!striped.is_locked(&7));
        });
    }
}

#[test]
fn two_tasks_write() {
    two_threads(|striped, shared| {
        let _writer = block_on(striped.write(&7));
        shared.bump();
    });
}

#[test]
fn two_threads_write() {
    two_threads(|striped, shared| {
        let _writer = striped.write_blocking(&7);
        shared.bump();
    });
}

#[test]
fn one_thread_tries_and_the_other_waits() {
    two_threads(|striped, shared| {
        if let Some(_writer) = striped.try_write(&7) {
            shared.bump();
        } else {
            let _writer = block_on(striped.write(&7));
            shared.bump();
        }
    });
}

/// The reader sees all of the writer's change, or none of it. A writer that downgrades still sees its own change.
#[test]
fn a_writer_downgrades_beside_a_reader() {
    model(|| {
        let (latch, shared) = (latch(), Shared::new());
        let reader = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let _reader = block_on(latch.read());
                assert!([0, 2].contains(&shared.count()));
            })
        };
        let writer = block_on(latch.write());
        shared.bump();
        shared.bump();
        let reading = writer.downgrade();
        assert_eq!(shared.count(), 2);
        drop(reading);
        reader.join().unwrap();
        assert!(!latch.is_locked());
    });
}

/// The holder releases while the first waiter gives up.
#[test]
fn a_waiter_that_gives_up_passes_the_latch_on() {
    for fairness in POLICIES {
        model(move || {
            let striped = striped(1, fairness);
            let guard = striped.try_write(&7).unwrap();
            let (mut first, mut next) = (striped.write(&7), striped.write(&7));
            assert!(poll(&mut first).is_pending());
            assert!(poll(&mut next).is_pending());
            let next = thread::spawn(move || drop(block_on(next)));
            let releaser = thread::spawn(move || drop(guard));
            drop(first);
            releaser.join().unwrap();
            next.join().unwrap();
            assert!(!striped.is_locked(&7));
        });
    }
}

/// The queue ends with its last waiter while another writer arrives, which may begin a new queue.
#[test]
fn the_last_waiter_leaves_as_another_arrives() {
    model(|| {
        let latch = latch();
        let guard = latch.try_read().unwrap();
        let mut writer = latch.write();
        assert!(poll(&mut writer).is_pending());
        let quitter = thread::spawn(move || drop(writer));
        let writes = thread::spawn(move || drop(block_on(latch.write())));
        drop(guard);
        quitter.join().unwrap();
        writes.join().unwrap();
        assert!(!latch.is_locked());
    });
}

/// Two latches whose queues are behind the same lock do not interfere.
#[test]
fn two_latches_share_a_queue_lock() {
    model(|| {
        let latches = [latch(), latch()];
        let guards = latches.map(|latch| latch.try_write().unwrap());
        let mut waiting = latches.map(Latch::write);
        assert!(waiting.iter_mut().all(|waiting| poll(waiting).is_pending()));
        let releasers = guards.map(|guard| thread::spawn(move || drop(guard)));
        let [one, two] = waiting;
        drop(block_on(one));
        drop(block_on(two));
        releasers.into_iter().for_each(|releaser| releaser.join().unwrap());
        assert!(latches.iter().all(|latch| !latch.is_locked()));
    });
}

#[test]
fn two_callers_lock_two_stripes_in_opposite_order() {
    model(|| {
        let (striped, shared) = (striped(2, Fairness::Adaptive), Shared::new());
        let [one, two] = [0, 1].map(|stripe| (0..).find(|key| striped.stripe_of(key) == stripe).unwrap());
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let _both = block_on(striped.write_many(&[two, one]));
                shared.bump();
            })
        };
        {
            let _both = striped.write_many_blocking(&[one, two]);
            shared.bump();
        }
        other.join().unwrap();
        assert_eq!(shared.count(), 2);
        assert!(!striped.is_locked(&one) && !striped.is_locked(&two));
    });
}

/// A future for two stripes is dropped while another caller holds one of them, and a third waits for the other.
#[test]
fn a_future_of_two_stripes_is_dropped() {
    model(|| {
        let striped = striped(2, Fairness::Adaptive);
        let [one, two] = [0, 1].map(|stripe| (0..).find(|key| striped.stripe_of(key) == stripe).unwrap());
        let guard = striped.try_write(&two).unwrap();
        let mut both = striped.write_many(&[one, two]);
        assert!(poll(&mut both).is_pending());
        let waits = thread::spawn(move || drop(block_on(striped.write(&one))));
        let releaser = thread::spawn(move || drop(guard));
        drop(both);
        waits.join().unwrap();
        releaser.join().unwrap();
        assert!(!striped.is_locked(&one) && !striped.is_locked(&two));
    });
}

/// The last reader leaves while the upgradable reader begins to wait for it; a writer waits behind both.
#[test]
fn an_upgrade_sees_the_last_reader_leave_and_no_writer_in_between() {
    for fairness in POLICIES {
        model(move || {
            let (striped, shared) = (striped(1, fairness), Shared::new());
            let upgradable = striped.try_upgradable_read(&7).unwrap();
            let reader = striped.try_read(&7).unwrap();
            let mut writer = striped.write(&7);
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
            assert!(!striped.is_locked(&7));
        });
    }
}

/// The last reader leaves while the upgrade gives up: by a limit, which returns the upgradable hold, or by a drop.
#[test]
fn an_upgrade_that_gives_up_while_the_last_reader_leaves_loses_nothing() {
    for (fairness, is_dropped) in POLICIES.map(|fairness| [(fairness, false), (fairness, true)]).concat() {
        model(move || {
            let striped = striped(1, fairness);
            let upgradable = striped.try_upgradable_read(&7).unwrap();
            let reader = striped.try_read(&7).unwrap();
            let leaver = thread::spawn(move || drop(reader));
            let mut upgrade = upgradable.upgrade();
            if is_dropped {
                drop(poll(&mut upgrade));
                drop(upgrade);
            } else {
                match block_on(upgrade.until(async {})) {
                    Ok(writer) => assert!(striped.try_read(&7).is_none(), "{writer:?}"),
                    Err(((), reader)) => {
                        assert!(striped.try_upgradable_read(&7).is_none(), "{reader:?}");
                        assert!(striped.try_write(&7).is_none());
                        assert_eq!(striped.status(&7).writers(), 0, "it holds the latch as a reader");
                    }
                }
            }
            leaver.join().unwrap();
            assert!(!striped.is_locked(&7));
            assert!(striped.try_write(&7).is_some());
        });
    }
}

/// A reader reads again while a writer begins to wait.
#[test]
fn a_recursive_reader_never_waits_for_a_waiting_writer() {
    for fairness in POLICIES {
        model(move || {
            let striped = striped(1, fairness);
            let held = striped.try_read(&7).unwrap();
            let writer = thread::spawn(move || drop(block_on(striped.write(&7))));
            assert!(striped.try_read_recursive(&7).is_some());
            assert!(poll(&mut striped.read_recursive(&7)).is_ready());
            drop(held);
            writer.join().unwrap();
            assert!(!striped.is_locked(&7));
        });
    }
}

/// An owned future gives up while the holder releases. The next waiter acquires the latch, and no `Arc` is leaked.
#[test]
fn an_owned_future_gives_up_while_the_holder_leaves() {
    model(|| {
        let latch = Arc::new(Latch::new());
        let held = latch.try_write_arc().unwrap();
        let (mut first, mut next) = (latch.write_arc(), latch.write_arc());
        assert!(poll(&mut first).is_pending());
        assert!(poll(&mut next).is_pending());
        let releaser = thread::spawn(move || drop(held));
        drop(first);
        drop(block_on(next));
        releaser.join().unwrap();
        assert!(!latch.is_locked());
        assert_eq!(Arc::strong_count(&latch), 1);
    });
}

/// Two parties hold a latch each and want the other's: one request fails.
#[test]
fn two_parties_that_close_a_cycle_of_latches_at_once() {
    model(|| {
        let (first, second, detector) = (latch(), latch(), Detector::new());
        let (a, b) = (detector.party("a"), detector.party("b"));
        let one = a.try_acquire(first.write()).unwrap();
        let two = b.try_acquire(second.read()).unwrap();
        let other = thread::spawn(move || {
            let failed = block_on(b.acquire(first.read())).is_err();
            drop(two);
            failed
        });
        let failed = block_on(a.acquire(second.write())).is_err();
        drop(one);
        assert!(failed ^ other.join().unwrap(), "not exactly one request failed");
        assert!(!first.is_locked() && !second.is_locked());
    });
}
