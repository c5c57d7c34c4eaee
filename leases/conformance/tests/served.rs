//! The suite on a server with the engine in memory: with connections that break, a server that dies, and other processes.

mod common;

use common::served::{OnServed, be_a_worker};

keylatch_lease_conformance::conformance!(OnServed::start().expect("a server"));

/// In another process this is one; here it is nothing.
#[test]
fn is_a_worker() {
    be_a_worker();
}
