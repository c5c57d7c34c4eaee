//! A gate that is opened once and for good.

use crate::core::{Access, LatchWord, ReleaseFor};
use crate::fairness::Fairness;
use crate::mode::Shared;
use crate::sync::{AtomicUsize, Ordering};

use super::request::{LatchAcquire, Request};

/// A gate that is opened once. Its waiters are readers of a latch that a writer holds until then.
pub(crate) struct Gate {
    latch: LatchWord,
    /// 1 once the gate is open, or is about to be opened.
    is_open: AtomicUsize,
}

impl Gate {
    pub(crate) fn new() -> Self {
        let latch = LatchWord::new();
        // A new latch is free.
        let held = latch.hold(Access::Exclusive);
        debug_assert!(held.is_ok(), "a new latch is held");
        Gate { latch, is_open: AtomicUsize::new(0) }
    }

    /// Returns whether the gate is open. If it is, everything that was done before it was opened happens before
    /// whatever the caller does next, because the load is an acquire.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire) != 0
    }

    /// Opens the gate, and wakes its waiters. Later calls do nothing.
    pub(crate) fn open(&self) {
        if self.is_open.swap(1, Ordering::AcqRel) == 0 {
            self.latch.release(Access::Exclusive, ReleaseFor::Anybody, Fairness::Adaptive, None);
        }
    }

    /// Waits until the gate is open. The guard has no meaning, because there will be no other writer.
    #[inline]
    pub(crate) fn opened(&self) -> LatchAcquire<'_, Shared> {
        LatchAcquire::new(Request::new(&self.latch, Fairness::Adaptive, Shared::NEW))
    }
}
