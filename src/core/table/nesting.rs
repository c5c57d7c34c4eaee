//! How deep the disposals of a thread are nested: see [`sweep`](super::sweep).

#[cfg(all(feature = "std", not(target_family = "wasm")))]
use core::cell::Cell;

#[cfg(all(feature = "std", not(target_family = "wasm")))]
use crate::sync::thread_local;

/// The number of disposals of a thread, one within the other, from which on a sweep leaves its part to another one of
/// the shard. So many maps can store in each other what they evict.
#[cfg(all(feature = "std", not(target_family = "wasm")))]
const DEEPEST: usize = 4;

#[cfg(all(feature = "std", not(target_family = "wasm")))]
thread_local! {
    // Loom's macro cannot be `const`.
    #[allow(clippy::missing_const_for_thread_local)]
    static DEPTH: Cell<usize> = Cell::new(0);
}

/// Runs a disposal, which catches panics itself.
#[cfg(all(feature = "std", not(target_family = "wasm")))]
pub(super) fn deeper(dispose: impl FnOnce()) {
    DEPTH.with(|depth| depth.set(depth.get() + 1));
    dispose();
    DEPTH.with(|depth| depth.set(depth.get() - 1));
}

/// Returns whether a sweep of a shard with so many other ones leaves its part to them.
#[cfg(all(feature = "std", not(target_family = "wasm")))]
pub(super) fn is_too_deep(others: u8) -> bool {
    others > 0 && (others == u8::MAX || DEPTH.with(Cell::get) >= DEEPEST)
}

#[cfg(not(all(feature = "std", not(target_family = "wasm"))))]
pub(super) fn deeper(dispose: impl FnOnce()) {
    dispose();
}

/// Without a count of each thread's own, all of the others may be sweeps of the same thread.
#[cfg(not(all(feature = "std", not(target_family = "wasm"))))]
pub(super) fn is_too_deep(others: u8) -> bool {
    others > 1
}
