//! Leases in Redis: an engine for [`keylatch_lease`].
#![forbid(unsafe_code)]

mod convert;
mod driver;
mod engine;
mod error;
mod options;
mod scripts;
mod session;

pub use engine::Redis;
pub use error::Error;
pub use keylatch_lease_remote::BoxError;
pub use options::Options;
