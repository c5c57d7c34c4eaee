//! The conformance suite, with engines without a session that share two sessions of a private server, which is killed,
//! paused and cut off. There is no server that refuses `LISTEN` to a role, because that needs no right; a pooler in
//! transaction mode is how a program comes to a server without notifications.

mod common;

keylatch_lease_conformance::on_server!(common::Pooled);
