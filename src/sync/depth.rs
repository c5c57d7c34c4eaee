use core::cell::Cell;

use super::thread_local;

thread_local! {
    // Loom's macro cannot be `const`.
    #[allow(clippy::missing_const_for_thread_local)]
    static DEPTH: Cell<usize> = Cell::new(0);
}

/// A level of nesting on this thread, which ends when this value is dropped.
struct Level;

impl Level {
    fn add(by: isize) {
        // In the destructor of another thread-local variable the count may be gone already.
        let _ = DEPTH.try_with(|depth| depth.set(depth.get().wrapping_add_signed(by)));
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        Level::add(-1);
    }
}

/// Runs a call one level deeper.
pub(crate) fn deeper<R>(call: impl FnOnce() -> R) -> R {
    Level::add(1);
    let _level = Level;
    call()
}

/// Returns the number of nested calls that [`deeper`] is running on this thread; `None` if it is not known.
pub(crate) fn depth() -> Option<usize> {
    DEPTH.try_with(Cell::get).ok()
}
