//! Critical sections with interrupts off, like those of the `riscv` crate's `critical-section-single-hart`; these
//! also measure their length.

use core::sync::atomic::{AtomicU32, Ordering};

use critical_section::RawRestoreState;
use riscv::register::{mcycle, mstatus};

static BEGUN: AtomicU32 = AtomicU32::new(0);
static LONGEST: AtomicU32 = AtomicU32::new(0);

/// Returns the number of instructions so far. QEMU counts nanoseconds, and is set to 128 of them per instruction.
pub fn instructions() -> u32 {
    (mcycle::read64() / 128) as u32
}

/// Returns the length of the longest section since the last call, in instructions.
pub fn longest() -> u32 {
    let longest = LONGEST.load(Ordering::Relaxed);
    LONGEST.store(0, Ordering::Relaxed);
    longest
}

struct InterruptsOff;
critical_section::set_impl!(InterruptsOff);

// SAFETY: there is one hart, and a section runs with interrupts off.
unsafe impl critical_section::Impl for InterruptsOff {
    unsafe fn acquire() -> RawRestoreState {
        let were_on = mstatus::read().mie();
        // SAFETY: interrupts may be turned off.
        unsafe { mstatus::clear_mie() };
        if were_on {
            BEGUN.store(instructions(), Ordering::Relaxed);
        }
        were_on
    }

    unsafe fn release(were_on: RawRestoreState) {
        if were_on {
            let took = instructions().wrapping_sub(BEGUN.load(Ordering::Relaxed));
            LONGEST.store(LONGEST.load(Ordering::Relaxed).max(took), Ordering::Relaxed);
            // SAFETY: interrupts were on when the section began.
            unsafe { mstatus::set_mie() };
        }
    }
}
