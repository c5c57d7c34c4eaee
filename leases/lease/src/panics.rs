//! Panics of user code, which must not prevent the rest of a call's work.

#[cfg(feature = "std")]
use std::{
    any::Any,
    boxed::Box,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

/// The first panic of several steps, all of which are run even if some panic. Without `std` panics are not caught.
#[derive(Default)]
pub(crate) struct Panics {
    #[cfg(feature = "std")]
    first: Option<Box<dyn Any + Send>>,
}

impl Panics {
    pub(crate) fn new() -> Self {
        Panics::default()
    }

    /// Runs a step. Returns `None` if it has panicked.
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
                // Dropping the payload may panic, too. The payload of that second panic is leaked, because dropping it
                // could panic again, and so on without end.
                core::mem::forget(catch_unwind(AssertUnwindSafe(|| drop(panic))));
                None
            }
        }
    }

    /// Resumes the first panic, if there was one and the thread is not panicking already.
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

/// Runs a step. If it panics, `otherwise` is run before the panic continues, with `std` and without it.
pub(crate) fn or_else<R>(step: impl FnOnce() -> R, otherwise: impl FnOnce()) -> R {
    struct Otherwise<F: FnOnce()>(Option<F>);
    impl<F: FnOnce()> Drop for Otherwise<F> {
        fn drop(&mut self) {
            if let Some(otherwise) = self.0.take() {
                otherwise();
            }
        }
    }
    let mut guard = Otherwise(Some(otherwise));
    let result = step();
    guard.0 = None;
    result
}

/// Calls `act` with each item, even if `act` panics for some. With `std` the first panic is resumed at the end, unless
/// the thread is panicking already; without `std` a second panic aborts.
pub(crate) fn each<T>(items: impl IntoIterator<Item = T>, mut act: impl FnMut(T)) {
    #[cfg(feature = "std")]
    {
        let mut panics = Panics::new();
        for item in items {
            panics.catch(|| act(item));
        }
        panics.resume();
    }
    #[cfg(not(feature = "std"))]
    {
        struct Rest<'a, I: Iterator, F: FnMut(I::Item)>(&'a mut I, &'a mut F);
        impl<I: Iterator, F: FnMut(I::Item)> Drop for Rest<'_, I, F> {
            fn drop(&mut self) {
                self.0.for_each(&mut self.1);
            }
        }
        let mut items = items.into_iter();
        let rest = Rest(&mut items, &mut act);
        for item in rest.0.by_ref() {
            (rest.1)(item);
        }
    }
}
