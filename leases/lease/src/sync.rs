//! The locks and atomics of this crate. No other module knows which they are: the system's with `std`, spinning ones
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

/// A lock that the model checkers do not see. For a value that is read or written in one step and guards nothing else:
/// to explore its interleavings would only multiply the runs.
pub(crate) use spin::Mutex as Unseen;

pub(crate) mod atomic {
    #[cfg(not(any(lease_loom, lease_shuttle)))]
    pub(crate) use core::sync::atomic::{AtomicUsize, Ordering};
    #[cfg(lease_loom)]
    pub(crate) use loom::sync::atomic::{AtomicUsize, Ordering};
    #[cfg(lease_shuttle)]
    pub(crate) use shuttle::sync::atomic::{AtomicUsize, Ordering};
}

/// How many calls attend to what is due at the same time. A policy that is asked then may call the table, which attends to what is
/// due, and asks the next policy: without a limit these calls would be nested in each other as deep as there are resources. Under a
/// checker there is one, so that what a call leaves to another is explored.
pub(crate) const MOST_ATTENDING: usize = if cfg!(any(lease_loom, lease_shuttle)) { 1 } else { 8 };

/// Into how many parts [`Attendance`](crate::attendance::Attendance) divides hashes. None under a checker: the counts of the parts are written
/// and read together with the number of places, in the same order, and would only double what the checker has to explore.
pub(crate) const SIEVE: usize = if cfg!(any(lease_loom, lease_shuttle)) { 0 } else { 64 };

/// A mutex without poison: a panic in one call must not close the leases to all others.
pub(crate) struct Mutex<T> {
    inner: Inner<T>,
    /// Returns the number of threads that wait for it.
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

    /// For who takes it again and again: lets those who wait have it first. It is the one who has just had it who gets it
    /// otherwise, for the others have to wake up.
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

    /// Those who spin get it as soon as anybody.
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
