//! The suite on a server with the engine in memory: with connections that break, a server that dies, and other processes.

mod common;

use std::time::Duration;

use common::served::{Served, be_a_worker};

keylatch_lease_conformance::conformance!(Served::start(Duration::from_millis(1500)).expect("a server"));

/// In another process this is one; here it is nothing.
#[test]
fn is_a_worker() {
    be_a_worker();
}
