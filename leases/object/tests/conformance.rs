//! The conformance suite, on a store in memory.

mod common;

keylatch_lease_conformance::conformance!(common::Shared::new(common::Faults::default()));
