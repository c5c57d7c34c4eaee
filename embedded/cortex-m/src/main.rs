//! The firmware for a Cortex-M3 or a Cortex-M0. The only machine-specific part is the timer: SysTick.

#![no_std]
#![no_main]

use core::cell::RefCell;

use cortex_m::Peripherals;
use cortex_m::peripheral::{SYST, syst::SystClkSource};
use cortex_m_rt::exception;
use critical_section::Mutex;
use embassy_executor::Spawner;
use scenario::machine::{Machine, alarm};

static TIMER: Mutex<RefCell<Option<SYST>>> = Mutex::new(RefCell::new(None));

fn with_timer(f: impl FnOnce(&mut SYST)) {
    critical_section::with(|cs| TIMER.borrow_ref_mut(cs).as_mut().map(f));
}

fn set_alarm(ticks: u32) {
    with_timer(|timer| {
        timer.set_reload(ticks);
        timer.clear_current();
        timer.enable_counter();
    });
}

#[exception]
fn SysTick() {
    with_timer(SYST::disable_counter);
    alarm();
}

#[embassy_executor::main]
async fn main(spawner: Spawner) {
    let mut timer = Peripherals::take().expect("taken once").SYST;
    timer.set_clock_source(SystClkSource::Core);
    timer.enable_interrupt();
    critical_section::with(|cs| TIMER.borrow(cs).replace(Some(timer)));
    scenario::run(spawner, Machine { set_alarm, instructions: None }).await
}
