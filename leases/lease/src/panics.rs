//! Panics of user code, where others must not go without because of them.

#[cfg(feature = "std")]
use std::{
    any::Any,
    boxed::Box,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

/// The first panic of several steps, each of which is taken whatever became of those before it. Without `std` a panic is not
/// caught.
#[derive(Default)]
pub(crate) struct Panics {
    #[cfg(feature = "std")]
    first: Option<Box<dyn Any + Send>>,
}

impl Panics {
    pub(crate) fn new() -> Self {
        Panics::default()
    }

    /// Takes a step. `None`: it has panicked.
    pub(crate) fn catch<R>(&mut self, step: impl FnOnce() -> R) -> Option<R> {
        #[cfg(not(feature = "std"))]
        return Some(step());
        #[cfg(feature = "std")]
        match catch_unwind(AssertUnwindSafe(step)) {
            Ok(result) => Some(result),
            Err(panic) if self.first.is_none() => {
                self.first = Some(panic);
                None
            }
            Err(panic) => {
                // What it says is lost, and it may panic in turn when it is dropped.
                core::mem::forget(catch_unwind(AssertUnwindSafe(|| drop(panic))));
                None
            }
        }
    }

    /// Goes on with the first panic, if there was one; not if the thread is panicking anyway.
    pub(crate) fn resume(self) {
        #[cfg(feature = "std")]
        if let Some(panic) = self.first {
            if std::thread::panicking() {
                core::mem::forget(panic);
            } else {
                resume_unwind(panic);
            }
        }
    }
}
