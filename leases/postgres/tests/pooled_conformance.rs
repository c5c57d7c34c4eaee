//! The conformance suite, for engines without a session. They share two sessions of a private server, which is killed,
//! paused and cut off. A server cannot refuse `LISTEN` to a role, because `LISTEN` needs no right. So a program goes
//! without notifications only behind a pooler in transaction mode.

mod common;

keylatch_lease_conformance::on_server!(common::Pooled);
