//! The suite for engines, on a private server that is killed, paused and cut off.

mod common;

keylatch_lease_conformance::on_server!(common::Server);
