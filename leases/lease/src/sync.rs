//! The locks and atomics of this crate. No other module knows which ones are used: the system's with `std`, spin locks
//! without it, and those of a model checker when its cfg is set.

use core::ops::DerefMut;

#[cfg(lease_loom)]
use loom::sync::Mutex as Inner;
#[cfg(lease_shuttle)]
use shuttle::sync::Mutex as Inner;
#[cfg(all(not(feature = "std"), not(any(lease_loom, lease_shuttle))))]
use spin::Mutex as Inner;
#[cfg(all(feature = "std", not(any(lease_loom, lease_shuttle))))]
use std::sync::Mutex as Inner;

/// A lock that the model checkers do not see, for a value that is read or written in one step and guards nothing else.
/// Exploring its interleavings would only multiply the runs.
pub(crate) use spin::Mutex as Unseen;

pub(crate) mod atomic {
    #[cfg(not(any(lease_loom, lease_shuttle)))]
    pub(crate) use core::sync::atomic::{AtomicUsize, Ordering};
    #[cfg(lease_loom)]
    pub(crate) use loom::sync::atomic::{AtomicUsize, Ordering};
    #[cfg(lease_shuttle)]
    pub(crate) use shuttle::sync::atomic::{AtomicUsize, Ordering};
}

/// The greatest number of calls that may process due resources at the same time. Such a call asks policies. A policy
/// may itself call the leases; that call, too, processes due resources, and asks the next policy. Without a limit,
/// these calls could nest once for each resource. Under a checker the limit is one, so that the checker explores how a
/// call leaves resources to another.
pub(crate) const MAX_WORKERS: usize = if cfg!(any(lease_loom, lease_shuttle)) { 1 } else { 8 };

/// The number of parts into which [`Attendance`](crate::attendance::Attendance) divides hashes; zero under a checker.
/// The counts of the parts are written and read together with the number of places, in the same order, and would only
/// double what the checker has to explore.
pub(crate) const SIEVE: usize = if cfg!(any(lease_loom, lease_shuttle)) { 0 } else { 64 };

/// A mutex without poisoning: a panic in one call must not break all later calls.
pub(crate) struct Mutex<T> {
    inner: Inner<T>,
    /// The number of threads that wait for the lock.
    #[cfg(all(feature = "std", not(any(lease_loom, lease_shuttle))))]
    waiting: atomic::AtomicUsize,
}

#[cfg(all(feature = "std", not(any(lease_loom, lease_shuttle))))]
impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { inner: Inner::new(value), waiting: atomic::AtomicUsize::new(0) }
    }

    #[inline]
    pub(crate) fn lock(&self) -> impl DerefMut<Target = T> {
        match self.inner.try_lock() {
            Ok(guard) => guard,
            Err(std::sync::TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(std::sync::TryLockError::WouldBlock) => self.wait(),
        }
    }

    #[cold]
    fn wait(&self) -> std::sync::MutexGuard<'_, T> {
        self.waiting.fetch_add(1, atomic::Ordering::Relaxed);
        let guard = self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.waiting.fetch_sub(1, atomic::Ordering::Relaxed);
        guard
    }

    /// Lets the waiting threads take the lock first. A thread that locks again and again calls this: it would otherwise
    /// get the lock each time, because the waiting threads have to wake up first.
    pub(crate) fn give_way(&self) {
        for _ in 0..100 {
            if self.waiting.load(atomic::Ordering::Relaxed) == 0 {
                break;
            }
            std::thread::yield_now();
        }
    }
}

#[cfg(not(all(feature = "std", not(any(lease_loom, lease_shuttle)))))]
impl<T> Mutex<T> {
    #[cfg(not(any(lease_loom, lease_shuttle)))]
    pub(crate) const fn new(value: T) -> Self {
        Self { inner: Inner::new(value) }
    }

    #[cfg(any(lease_loom, lease_shuttle))]
    pub(crate) fn new(value: T) -> Self {
        Self { inner: Inner::new(value) }
    }

    #[cfg(any(lease_loom, lease_shuttle))]
    pub(crate) fn lock(&self) -> impl DerefMut<Target = T> {
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    #[cfg(not(any(lease_loom, lease_shuttle)))]
    pub(crate) fn lock(&self) -> impl DerefMut<Target = T> {
        self.inner.lock()
    }

    /// Does nothing: spinning threads do not have to wake up first.
    pub(crate) fn give_way(&self) {}
}

#[cfg(all(test, feature = "std", not(any(lease_loom, lease_shuttle))))]
mod tests {
    use super::Mutex;

    #[test]
    fn a_panic_under_the_lock_does_not_poison_it() {
        let mutex = Mutex::new(1);
        std::thread::scope(|scope| {
            let panics = scope.spawn(|| {
                let mut value = mutex.lock();
                *value = 2;
                panic!("under the lock");
            });
            assert!(panics.join().is_err());
        });
        assert_eq!(*mutex.lock(), 2);
    }
}
