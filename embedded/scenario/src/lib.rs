//! The work and the checks of the firmware: the same on every machine.
//!
//! | module | contents |
//! |---|---|
//! | [`machine`] | the capabilities of a machine: an alarm, which interrupts |
//! | [`world`] | a bus, its devices, and the locks that coordinate their users |
//! | [`tasks`] | several tasks, and the interrupt, share that world for a while |
//! | [`sweep`] | every kind of call is interrupted after every instruction by another call on the same table |
//! | [`footprint`] | the resources that the locks use: heap, stack, instructions |
//! | [`heap`] | the allocator, with counters, one of them for the interrupt handler |
//! | `interrupt` | tells whether the caller runs in the interrupt handler |
//! | [`clock`] | ticks, and futures that wait for them |
//! | [`verdict`] | the checks, and the end of the program |

#![no_std]

extern crate alloc;
#[cfg(not(feature = "locks"))]
extern crate no_locks as keylatch;

pub mod clock;
#[cfg(feature = "interrupts")]
pub mod footprint;
pub mod heap;
mod interrupt;
pub mod machine;
#[cfg(feature = "interrupts")]
pub mod sweep;
pub mod tasks;
pub mod verdict;
pub mod world;

use embassy_executor::Spawner;

use crate::machine::Machine;
use crate::verdict::Verdict;
use crate::world::World;

/// Runs everything, prints the results, and ends the program: with success only if every check passed.
pub async fn run(spawner: Spawner, machine: Machine) -> ! {
    heap::init();
    machine::start(machine);
    let world = World::leak();
    let mut verdict = Verdict::default();
    #[cfg(feature = "interrupts")]
    {
        footprint::print();
        footprint::churn(&mut verdict);
        sweep::run(world, &mut verdict);
    }
    tasks::run(spawner, world, &mut verdict).await;
    verdict.exit()
}
