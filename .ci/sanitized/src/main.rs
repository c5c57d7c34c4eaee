//! Deliberate faults, one for each kind that a sanitizer must find. A check that does not find them is broken.

use std::cell::UnsafeCell;
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

/// A spin lock that is correct except for one ordering: nothing is ever torn or lost on this machine, and still it is
/// a data race.
struct Lock {
    locked: AtomicBool,
    unlock: Ordering,
    value: UnsafeCell<u64>,
}

// SAFETY: only the holder accesses the value. (With a relaxed unlock the next holder may not see it; that is the
// fault.)
unsafe impl Sync for Lock {}

fn spin(unlock: Ordering) {
    let shared = Lock { locked: AtomicBool::new(false), unlock, value: UnsafeCell::new(0) };
    // Both threads exist before one begins: starting and joining threads would order their accesses.
    let start = Barrier::new(2);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (lock, start) = (&shared, &start);
            scope.spawn(move || {
                start.wait();
                for _ in 0..1000 {
                    while lock.locked.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
                        std::thread::yield_now();
                    }
                    // SAFETY: this thread holds the lock.
                    unsafe { *lock.value.get() += 1 };
                    lock.locked.store(false, lock.unlock);
                }
            });
        }
    });
    assert_eq!(shared.value.into_inner(), 2000);
}

fn use_after_free() {
    let freed = Box::into_raw(Box::new(7_u64));
    // SAFETY: none: this is the fault.
    unsafe {
        drop(Box::from_raw(black_box(freed)));
        println!("{}", black_box(freed).read_volatile());
    }
}

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("right") => spin(Ordering::Release),
        Some("race") => spin(Ordering::Relaxed),
        Some("leak") => std::mem::forget(black_box(Box::new([7_u8; 1000]))),
        Some("use-after-free") => use_after_free(),
        other => panic!("unknown fault {other:?}"),
    }
}
