//! The allocator: embedded-alloc's, with counters.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::Cell;
use core::mem::MaybeUninit;
use core::ptr::addr_of_mut;

use critical_section::Mutex;
use embedded_alloc::LlffHeap;

use crate::interrupt;

/// The size of the heap in bytes: as much as the smallest machine can spare.
const SIZE: usize = 6 * 1024;

/// The counts so far.
#[derive(Clone, Copy)]
pub(crate) struct Book {
    /// The requested bytes that are in use.
    pub(crate) in_use: usize,
    /// The number of allocations.
    pub(crate) allocations: usize,
    /// The number of allocations and deallocations in an interrupt handler, which should be zero.
    pub(crate) in_interrupts: usize,
}

struct Heap {
    memory: LlffHeap,
    book: Mutex<Cell<Book>>,
}

#[global_allocator]
static HEAP: Heap = Heap {
    memory: LlffHeap::empty(),
    book: Mutex::new(Cell::new(Book { in_use: 0, allocations: 0, in_interrupts: 0 })),
};

impl Heap {
    fn note(&self, more: usize, less: usize) {
        critical_section::with(|cs| {
            let book = self.book.borrow(cs);
            let Book { in_use, allocations, in_interrupts } = book.get();
            book.set(Book {
                in_use: in_use + more - less,
                allocations: allocations + usize::from(more > 0),
                in_interrupts: in_interrupts + usize::from(interrupt::is_running()),
            });
        });
    }
}

// SAFETY: every call is forwarded unchanged to an allocator.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.note(layout.size(), 0);
        // SAFETY: as above.
        unsafe { self.memory.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        self.note(0, layout.size());
        // SAFETY: as above.
        unsafe { self.memory.dealloc(memory, layout) }
    }
}

pub(crate) fn init() {
    static mut MEMORY: [MaybeUninit<u8>; SIZE] = [MaybeUninit::uninit(); SIZE];
    // SAFETY: the memory is not used elsewhere; `init` panics if it is called twice.
    unsafe { HEAP.memory.init(addr_of_mut!(MEMORY) as usize, SIZE) };
}

pub(crate) fn book() -> Book {
    critical_section::with(|cs| HEAP.book.borrow(cs).get())
}
