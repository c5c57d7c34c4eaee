//! An allocator that counts on request.
#![allow(unsafe_code)] // an allocator

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

static COUNTING: AtomicBool = AtomicBool::new(false);
static BYTES: AtomicI64 = AtomicI64::new(0);

/// The system's allocator. While there is a [`Growth`], it counts the requested bytes, which are fewer than the
/// system uses for them. At other times it only checks a flag.
pub struct Counted;

/// The growth of the heap in bytes since this was created. Only one can exist at a time.
pub struct Growth(());

impl Growth {
    pub fn start() -> Self {
        BYTES.store(0, Relaxed);
        assert!(!COUNTING.swap(true, Relaxed), "another Growth exists");
        Growth(())
    }

    pub fn bytes(&self) -> f64 {
        BYTES.load(Relaxed) as f64
    }
}

impl Drop for Growth {
    fn drop(&mut self) {
        COUNTING.store(false, Relaxed);
    }
}

fn count(bytes: i64) {
    if COUNTING.load(Relaxed) {
        BYTES.fetch_add(bytes, Relaxed);
    }
}

// SAFETY: every call is forwarded unchanged.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller upholds the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: as above.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as i64 - layout.size() as i64);
        // SAFETY: as above.
        unsafe { System.realloc(ptr, layout, size) }
    }
}
