use core::cell::Cell;

use super::thread_local;

thread_local! {
    // Loom's macro cannot be `const`.
    #[allow(clippy::missing_const_for_thread_local)]
    static DEPTH: Cell<usize> = Cell::new(0);
}

/// A call that is nested within those of the same thread that are running.
struct Level;

impl Level {
    fn add(by: isize) {
        // In the destructor of another thread-local variable there may be no count any more.
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

/// Returns how many such calls of this thread are running, one within the other; `None` if that is not known.
pub(crate) fn depth() -> Option<usize> {
    DEPTH.try_with(Cell::get).ok()
}
