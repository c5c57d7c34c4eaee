//! The suite for engines, on a private server that is killed, paused, cut off, and made to forget.

mod common;

keylatch_lease_conformance::on_server!(common::Server);
