//! Models of protocols. Each explores all orders in which the steps of a few clients, their store, the network and time
//! can follow each other, up to a limit. The decisions are the engine's own code.

#[allow(dead_code, reason = "the model needs some of it")]
#[path = "../../object/src/decide.rs"]
mod decide;
#[allow(dead_code, reason = "the model needs some of it")]
#[path = "../../object/src/names.rs"]
mod names;
#[allow(dead_code, reason = "the model needs some of it")]
#[path = "../../object/src/record.rs"]
mod record;

pub mod bucket;
pub mod cluster;
pub mod server;
pub mod stream;
