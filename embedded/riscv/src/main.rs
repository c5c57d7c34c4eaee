//! The firmware for a 32-bit RISC-V machine. Its only machine-specific part is the access to the hart's timer.

#![no_std]
#![no_main]

mod sections;

use core::ptr::with_exposed_provenance_mut;

use embassy_executor::Spawner;
use riscv::interrupt::Interrupt;
use riscv::register::{mie, mstatus};
use scenario::machine::{Instructions, Machine, alarm};

/// The addresses of the timer's registers in QEMU's `virt` machine: 64 bits each, accessed in halves.
const MTIMECMP: *mut u32 = with_exposed_provenance_mut(0x0200_4000);
const MTIME: *mut u32 = with_exposed_provenance_mut(0x0200_bff8);

fn set_alarm(ticks: u32) {
    // SAFETY: these are the timer's registers, which are used only here. The program ends long before the lower half
    // of the time overflows.
    unsafe {
        let now = MTIME.read_volatile();
        // The upper half has its maximum until the last write, so no alarm fires in between.
        MTIMECMP.write_volatile(now + ticks);
        MTIMECMP.add(1).write_volatile(0);
    }
}

fn no_alarm() {
    // SAFETY: as above.
    unsafe { MTIMECMP.add(1).write_volatile(u32::MAX) };
}

#[riscv_rt::core_interrupt(Interrupt::MachineTimer)]
fn timer() {
    no_alarm();
    alarm();
}

#[embassy_executor::main]
async fn main(spawner: Spawner) {
    no_alarm();
    // SAFETY: the handler is ready.
    unsafe {
        mie::set_mtimer();
        mstatus::set_mie();
    }
    let instructions = Instructions { so_far: sections::instructions, longest_section: sections::longest };
    scenario::run(spawner, Machine { set_alarm, instructions: Some(instructions) }).await
}
