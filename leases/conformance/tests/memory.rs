//! The suite on the engine in memory.

mod common;

/// With a clock that the suite moves, so that no case has to wait.
mod with_a_clock_that_is_moved {
    keylatch_lease_conformance::conformance!(crate::common::memory::Virtual::default());
}

/// With the system's clock.
mod with_the_systems_clock {
    keylatch_lease_conformance::conformance!(crate::common::memory::Real);
}
