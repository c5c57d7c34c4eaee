//! Leases in a JetStream stream.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod driver;
mod error;
mod known;
mod nats;
mod options;
mod record;
mod server_time;
mod session;
mod subjects;

pub use async_nats::ConnectOptions;
pub use error::Error;
pub use nats::Nats;
pub use options::Options;
