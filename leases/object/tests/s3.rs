//! The conformance suite, on a private S3 that is killed, paused and cut off.

mod moto;

keylatch_lease_conformance::on_server!(moto::Server);
