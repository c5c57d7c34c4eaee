//! Panics of user code: nobody who is due is forgotten because somebody else panicked.

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
