//! Under a checker every step of the real thing is one that the checker can interleave.

#[cfg(keylatch_loom)]
use loom as checker;
#[cfg(keylatch_shuttle)]
use shuttle as checker;

pub(crate) use checker::{
    lazy_static,
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

/// Looking once is as good as looking for long, to a checker.
pub(crate) fn watch(mut has_happened: impl FnMut() -> bool) -> bool {
    has_happened()
}

/// Looking again is no different from waiting, to a checker: there is no spinning.
pub(crate) struct SpinWait;

impl SpinWait {
    pub(crate) fn new() -> Self {
        SpinWait
    }

    pub(crate) fn spin(&mut self) -> bool {
        false
    }
}

/// A checker tries all orders without it.
pub(crate) fn give_way() {}
