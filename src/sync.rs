//! The one place that decides which atomics, which cell and which internal lock the crate is built on.
//!
//! | build | atomics | [`Lock`] |
//! |---|---|---|
//! | `std` | `core` | `spin`; after a few rounds a caller yields its time slice |
//! | no `std` | `core` | `spin` |
//! | `portable-atomic` | `portable-atomic` | as above |
//! | `critical-section` | `portable-atomic` | `spin` inside a critical section: never contended on one core |
//! | `cfg(loom)`, `cfg(shuttle)` | the checker's | the checker's mutex |
//!
//! A [`Lock`] is taken by closure, because that is the form that a critical section has without unsafe code.

pub(crate) use self::imp::*;

/// How many CPUs this process can use, asked once. `None` without `std`.
pub(crate) fn cpus() -> Option<usize> {
    #[cfg(not(feature = "std"))]
    return None;
    #[cfg(feature = "std")]
    {
        static CPUS: std::sync::OnceLock<Option<usize>> = std::sync::OnceLock::new();
        *CPUS.get_or_init(|| std::thread::available_parallelism().ok().map(usize::from))
    }
}

/// Whether this thread is panicking. Without `std` nobody knows.
pub(crate) fn panicking() -> bool {
    #[cfg(feature = "std")]
    return std::thread::panicking();
    #[cfg(not(feature = "std"))]
    false
}

/// Runs all of `calls`, even if some of them panic. With `std` the first panic goes on when all have run, unless the
/// thread is panicking already; without it a second panic aborts.
#[cfg(feature = "std")]
pub(crate) fn run_all<F: FnOnce()>(calls: impl Iterator<Item = F>) {
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    let mut first = None;
    for call in calls {
        let Err(panic) = catch_unwind(AssertUnwindSafe(call)) else { continue };
        if first.is_none() && !panicking() {
            first = Some(panic);
        } else if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
            // What it panicked with panics as well. There is no end to that.
            core::mem::forget(again);
        }
    }
    if let Some(panic) = first {
        resume_unwind(panic);
    }
}

/// Runs all of `calls`, even if some of them panic. With `std` the first panic goes on when all have run, unless the
/// thread is panicking already; without it a second panic aborts.
#[cfg(not(feature = "std"))]
pub(crate) fn run_all<F: FnOnce()>(mut calls: impl Iterator<Item = F>) {
    struct Rest<'a, F: FnOnce(), I: Iterator<Item = F>>(&'a mut I);
    impl<F: FnOnce(), I: Iterator<Item = F>> Drop for Rest<'_, F, I> {
        fn drop(&mut self) {
            for call in self.0.by_ref() {
                call();
            }
        }
    }
    let rest = Rest(&mut calls);
    for call in rest.0.by_ref() {
        call();
    }
}

#[cfg(not(any(loom, shuttle)))]
mod imp {
    #[cfg(not(feature = "portable-atomic"))]
    pub(crate) use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
    #[cfg(feature = "portable-atomic")]
    pub(crate) use portable_atomic::{AtomicU32, AtomicUsize, Ordering};
    #[cfg(feature = "std")]
    pub(crate) use std::thread_local;

    /// A spin lock for critical sections of a few dozen instructions.
    pub(crate) struct Lock<T>(spin::mutex::SpinMutex<T>);

    impl<T> Lock<T> {
        pub(crate) const fn new(value: T) -> Self {
            Lock(spin::mutex::SpinMutex::new(value))
        }

        /// Runs `f` with the lock held. A panic in `f` releases the lock.
        #[inline(always)]
        #[cfg(not(feature = "critical-section"))]
        pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
            f(&mut self.guard())
        }

        /// Runs `f` with the lock held. A panic in `f` releases the lock.
        #[cfg(feature = "critical-section")]
        pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
            critical_section::with(|_| f(&mut self.guard()))
        }

        #[inline(always)]
        fn guard(&self) -> spin::mutex::SpinMutexGuard<'_, T> {
            match self.0.try_lock() {
                Some(guard) => guard,
                None => self.guard_contended(),
            }
        }

        #[cold]
        fn guard_contended(&self) -> spin::mutex::SpinMutexGuard<'_, T> {
            // `snooze` pauses for some rounds and then, with `std`, yields: with more threads than cores the holder
            // may be off its core, and pure spinning would burn a whole time slice.
            let backoff = crossbeam_utils::Backoff::new();
            loop {
                if !self.0.is_locked() {
                    if let Some(guard) = self.0.try_lock() {
                        return guard;
                    }
                }
                backoff.snooze();
            }
        }
    }

    /// How long a thread goes on looking before it takes a more expensive way: pauses that grow, then a few time slices
    /// given away.
    ///
    /// That the pauses grow is what a hot key with short sections thrives on: each look takes the cache line from the
    /// holder, and one who looks seldom lets the other through many sections at full speed. Against pauses of one length
    /// (36 of them, about as long in all) the throughput of two threads that do nothing but lock and unlock one key rose from
    /// 1.0 to 2.1 times lockmap's; longer ones gain no more, and make the hand-over to a spinning thread slower.
    #[cfg(feature = "std")]
    pub(crate) struct Patience {
        looks: u32,
    }

    /// Pauses of 2, 4, 8, 16 and 32 spin hints: about a microsecond and a half in all.
    #[cfg(feature = "std")]
    const PAUSES: u32 = 5;

    #[cfg(feature = "std")]
    const YIELDS: u32 = 2;

    #[cfg(feature = "std")]
    impl Patience {
        pub(crate) fn new() -> Self {
            Patience { looks: 0 }
        }

        /// Waits a little. `false` when patience is at its end.
        pub(crate) fn wait(&mut self) -> bool {
            self.looks += 1;
            if self.looks <= PAUSES {
                (0..1 << self.looks).for_each(|_| core::hint::spin_loop());
            } else if self.looks <= PAUSES + YIELDS {
                std::thread::yield_now();
            } else {
                return false;
            }
            true
        }
    }
}

#[cfg(not(loom))]
pub(crate) use self::cell::UnsafeCell;

#[cfg(not(loom))]
mod cell {
    /// `core`'s cell with the face of loom's.
    #[derive(Debug)]
    pub(crate) struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) const fn new(value: T) -> Self {
            UnsafeCell(core::cell::UnsafeCell::new(value))
        }

        #[inline(always)]
        pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        #[inline(always)]
        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}

#[cfg(loom)]
pub(crate) use loom::cell::UnsafeCell;

/// Under a checker every step of the real thing is one that the checker can interleave.
#[cfg(any(loom, shuttle))]
mod imp {
    #[cfg(loom)]
    use loom as checker;
    #[cfg(shuttle)]
    use shuttle as checker;

    pub(crate) use checker::{
        sync::atomic::{AtomicU32, AtomicUsize, Ordering},
        thread_local,
    };

    pub(crate) struct Lock<T>(checker::sync::Mutex<T>);

    impl<T> Lock<T> {
        pub(crate) fn new(value: T) -> Self {
            Lock(checker::sync::Mutex::new(value))
        }

        pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
            f(&mut self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
        }
    }

    /// Looking again is no different from waiting, to a checker: there is no patience.
    pub(crate) struct Patience;

    impl Patience {
        pub(crate) fn new() -> Self {
            Patience
        }

        pub(crate) fn wait(&mut self) -> bool {
            false
        }
    }
}
