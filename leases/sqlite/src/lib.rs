//! Leases in a SQLite file.
#![forbid(unsafe_code)]

mod busy;
mod changes;
mod clock;
mod decide;
mod engine;
mod error;
mod guard;
mod messages;
mod options;
mod place;
mod session;
mod worker;

pub use engine::Sqlite;
pub use error::Error;
pub use guard::GuardError;
pub use options::{Options, Synchronous};
