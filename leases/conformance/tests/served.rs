//! The suite on a server with the engine in memory: with connections that break, a server that dies, and other
//! processes.

mod common;

use common::served::{OnServed, be_a_worker};

keylatch_lease_conformance::conformance!(OnServed::start().expect("a server"));

/// Serves the suite if this binary was started as a worker. As a test it does nothing.
#[test]
fn is_a_worker() {
    be_a_worker();
}
