//! The suite on the engine in memory.

mod common;

/// The suite with a clock that it moves, so that no case has to wait.
mod with_a_clock_that_is_moved {
    keylatch_lease_conformance::conformance!(crate::common::memory::Virtual::default());
}

/// The suite with the system's clock.
mod with_the_systems_clock {
    keylatch_lease_conformance::conformance!(crate::common::memory::Real);
}
