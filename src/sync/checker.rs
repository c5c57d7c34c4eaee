//! The primitives under a model checker, which can interleave every step that they take.

#[cfg(keylatch_loom)]
use loom as checker;
#[cfg(keylatch_shuttle)]
use shuttle as checker;

pub(crate) use checker::{
    lazy_static,
    sync::atomic::{AtomicU32, AtomicUsize, Ordering},
    thread_local,
};

/// With 1, every use without a hold lets the value come to rest, so that short models see it.
pub(crate) const LOOKS_TO_REST: u32 = 1;

pub(crate) struct Lock<T>(checker::sync::Mutex<T>);

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Self {
        Lock(checker::sync::Mutex::new(value))
    }

    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }
}

/// Checks only once: under a checker, that is as good as spinning.
pub(crate) fn watch(mut has_happened: impl FnMut() -> bool) -> bool {
    has_happened()
}

/// A spin wait that never spins, because to a checker spinning is no different from waiting.
pub(crate) struct SpinWait;

impl SpinWait {
    pub(crate) fn new() -> Self {
        SpinWait
    }

    pub(crate) fn spin(&mut self) -> bool {
        false
    }
}

/// Does nothing, because a checker chooses the order of steps itself.
pub(crate) fn give_way() {}
