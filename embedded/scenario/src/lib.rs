//! What the firmware does, and how it judges itself: the same on every machine.
//!
//! | module | what it holds |
//! |---|---|
//! | [`machine`] | what a machine has to offer: an alarm, which interrupts |
//! | [`world`] | a bus, its devices, and the locks that keep their users apart |
//! | [`tasks`] | several tasks, and the interrupt, share that world for a while |
//! | [`sweep`] | every kind of call is interrupted after every instruction by another call on the same table |
//! | [`footprint`] | what the locks take: heap, stack, instructions |
//! | [`heap`] | the allocator; it counts, and notices allocations in an interrupt handler |
//! | `interrupt` | whether the code that asks runs in the interrupt handler |
//! | [`clock`] | ticks, and futures that wait for them |
//! | [`verdict`] | the checks, and the end |

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

/// Runs everything, prints what was seen, and ends the program: with success only if every check passed.
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
