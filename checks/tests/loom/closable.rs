//! Models of tables that are closed.

use std::sync::Arc;

use keylatch::{Closable, Fairness};
use loom::future::block_on;
use loom::sync::atomic::{AtomicBool, Ordering::Relaxed};
use loom::thread;

use crate::{Locks, Shared, locks, model, poll};

fn closable() -> Arc<Closable<Arc<Locks>>> {
    Arc::new(Closable::new(locks(Fairness::Adaptive)))
}

#[test]
fn a_waiter_is_released_by_closing() {
    model(|| {
        let locks = closable();
        let holder = locks.get_ref().try_lock(&7).unwrap();
        let waiting = {
            let locks = Arc::clone(&locks);
            thread::spawn(move || block_on(locks.acquire(|locks| locks.lock(&7))).is_err())
        };
        locks.close();
        assert!(waiting.join().unwrap());
        drop(holder);
        assert!(locks.get_ref().is_empty());
    });
}

/// The waiter sees everything that was done before the closing.
#[test]
fn closing_comes_before_its_error() {
    model(|| {
        let (locks, shared) = (closable(), Shared::new());
        let holder = locks.get_ref().try_lock(&7).unwrap();
        let waiting = {
            let (locks, shared) = (Arc::clone(&locks), Arc::clone(&shared));
            thread::spawn(move || {
                assert!(block_on(locks.acquire(|locks| locks.lock(&7))).is_err());
                assert_eq!(shared.count(), 1);
            })
        };
        shared.bump();
        locks.close();
        waiting.join().unwrap();
        drop(holder);
    });
}

#[test]
fn no_key_is_held_after_a_closed_table_was_empty() {
    model(|| {
        let (locks, is_done) = (closable(), Arc::new(AtomicBool::new(false)));
        let other = {
            let (locks, is_done) = (Arc::clone(&locks), Arc::clone(&is_done));
            thread::spawn(move || {
                if let Ok(_guard) = block_on(locks.acquire(|locks| locks.lock(&7))) {
                    assert!(!is_done.load(Relaxed));
                }
                if let Ok(_guard) = locks.try_acquire(|locks| locks.try_lock(&7)) {
                    assert!(!is_done.load(Relaxed));
                }
            })
        };
        locks.close();
        if locks.get_ref().is_empty() {
            is_done.store(true, Relaxed);
        }
        other.join().unwrap();
        assert!(locks.get_ref().is_empty());
    });
}

/// If the key is handed to a request while its table is being closed, the key passes on.
#[test]
fn a_handed_over_key_passes_on() {
    model(|| {
        let locks = closable();
        let holder = locks.get_ref().try_lock(&7).unwrap();
        let mut waiting = locks.acquire(|locks| locks.lock(&7));
        assert!(poll(&mut waiting).is_pending());
        let other = {
            let locks = Arc::clone(&locks);
            thread::spawn(move || locks.close())
        };
        drop(holder);
        // The request may have been granted first. In both cases nothing stays locked.
        drop(block_on(waiting));
        other.join().unwrap();
        assert!(locks.get_ref().is_empty());
    });
}
