//! Tells whether the caller runs in the interrupt handler.

use core::sync::atomic::{AtomicBool, Ordering};

/// Whether the interrupt handler uses the tables. It also uses them in a build without locks, which shows the harm that
/// locks prevent.
pub(crate) const LOCKS: bool = cfg!(any(feature = "interrupts", not(feature = "locks")));

static RUNNING: AtomicBool = AtomicBool::new(false);

/// Runs the interrupt handler.
pub(crate) fn run(handler: impl FnOnce()) {
    RUNNING.store(true, Ordering::Relaxed);
    handler();
    RUNNING.store(false, Ordering::Relaxed);
}

/// Returns whether the caller runs in the interrupt handler.
pub(crate) fn is_running() -> bool {
    RUNNING.load(Ordering::Relaxed)
}
