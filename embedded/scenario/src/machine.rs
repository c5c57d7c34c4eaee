//! The capabilities of a machine: an alarm, which interrupts, and perhaps a counter.

use core::cell::Cell;

use critical_section::Mutex;

use crate::interrupt;
use crate::world::World;

/// A machine, described by its firmware.
#[derive(Clone, Copy)]
pub struct Machine {
    /// Makes the timer interrupt once, after this number of ticks of its own clock, each of which is shorter than an
    /// instruction. The interrupt handler calls [`alarm`].
    pub set_alarm: fn(u32),
    /// The instruction counter, if the machine has one.
    pub instructions: Option<Instructions>,
}

/// Counts of executed instructions.
#[derive(Clone, Copy)]
pub struct Instructions {
    /// The count since the start.
    pub so_far: fn() -> u32,
    /// The count in the longest critical section since the last call of this function.
    pub longest_section: fn() -> u32,
}

type Handler = (fn(&'static World), &'static World);

static MACHINE: Mutex<Cell<Option<Machine>>> = Mutex::new(Cell::new(None));
static HANDLER: Mutex<Cell<Option<Handler>>> = Mutex::new(Cell::new(None));

pub(crate) fn start(machine: Machine) {
    critical_section::with(|cs| MACHINE.borrow(cs).set(Some(machine)));
}

pub(crate) fn machine() -> Machine {
    critical_section::with(|cs| MACHINE.borrow(cs).get()).expect("the machine was started")
}

/// Sets the handler of the next alarms.
pub(crate) fn on_alarm(world: &'static World, handler: fn(&'static World)) {
    critical_section::with(|cs| HANDLER.borrow(cs).set(Some((handler, world))));
}

/// Called by the machine's interrupt handler.
pub fn alarm() {
    if let Some((handler, world)) = critical_section::with(|cs| HANDLER.borrow(cs).get()) {
        interrupt::run(|| handler(world));
    }
}
