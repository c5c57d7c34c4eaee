//! An allocator that counts requests for memory, and their bytes.
#![allow(unsafe_code)] // an allocator

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;

pub use keylatch_benches::heap::Growth;

thread_local! {
    // The counter is per thread, because other threads, such as one for timers, allocate, too.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Like [`keylatch_benches::heap::Counted`], which counts bytes for [`Growth`]. This also counts requests, for the
/// function [`allocations`].
pub struct Counted;

/// Returns the number of allocations and reallocations that this thread makes while it runs `work`.
pub fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

fn count() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

// SAFETY: every call is passed on unchanged to an allocator.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller upholds the same contract.
        unsafe { keylatch_benches::heap::Counted.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { keylatch_benches::heap::Counted.dealloc(ptr, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { keylatch_benches::heap::Counted.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { keylatch_benches::heap::Counted.realloc(ptr, layout, size) }
    }
}
