//! The conformance suite, on one file for all processes.

mod common;

keylatch_lease_conformance::conformance!(common::OneFile::new());

#[test]
fn is_a_worker() {
    common::serve();
}
