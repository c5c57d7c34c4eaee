//! Panics in user code: if one of several calls panics, the others still run.

/// Returns whether this thread is panicking. Without `std` this is unknown, and the answer is `false`.
pub(crate) fn panicking() -> bool {
    #[cfg(feature = "std")]
    return std::thread::panicking();
    #[cfg(not(feature = "std"))]
    false
}

/// Runs all of `calls`, even if some of them panic. With `std` the first panic resumes when all have run, unless the
/// thread is already panicking; without `std` a second panic aborts.
#[cfg(feature = "std")]
pub(crate) fn run_all<F: FnOnce()>(calls: impl Iterator<Item = F>) {
    let mut panics = Panics::default();
    calls.for_each(|call| panics.run(call));
    panics.resume();
}

/// The first panic of several calls, kept until all have run. Without `std` a panic is not caught.
#[derive(Default)]
pub(crate) struct Panics {
    #[cfg(feature = "std")]
    first: Option<std::boxed::Box<dyn core::any::Any + Send>>,
}

#[cfg(feature = "std")]
impl Panics {
    pub(crate) fn run(&mut self, call: impl FnOnce()) {
        use std::panic::{AssertUnwindSafe, catch_unwind};
        let Err(panic) = catch_unwind(AssertUnwindSafe(call)) else { return };
        if self.first.is_none() && !panicking() {
            self.first = Some(panic);
        } else if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
            // The drop of the payload panicked, too. Dropping the new payload might panic again, without end.
            core::mem::forget(again);
        }
    }

    /// Resumes the first panic, if there was one.
    pub(crate) fn resume(self) {
        if let Some(panic) = self.first {
            std::panic::resume_unwind(panic);
        }
    }
}

#[cfg(not(feature = "std"))]
impl Panics {
    pub(crate) fn run(&mut self, call: impl FnOnce()) {
        call();
    }

    pub(crate) fn resume(self) {}
}

/// Runs all of `calls`, even if some of them panic. With `std` the first panic resumes when all have run, unless the
/// thread is already panicking; without `std` a second panic aborts.
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
