//! Models of protocols. The tests explore all orders in which the steps of a few clients, their server, the network and
//! time can follow each other, up to a limit, and check the same [`rules`] for each protocol.
//!
//! Where an engine's decisions are functions apart from its requests, a model uses those functions. Where they are
//! parts of its requests, or are made by a server, they are written here once more.

/// The time by which the clock of a slow client, and that of a fast one, advances in a tick, in milliseconds.
pub const SLOW: u64 = 496;
pub const FAST: u64 = 504;

/// The time by which a server's clock advances in a tick, in milliseconds.
const RATE: u64 = 500;

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
pub mod rules;
pub mod server;
pub mod stream;
