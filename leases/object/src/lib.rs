//! Leases in a bucket.
#![forbid(unsafe_code)]

mod bucket;
mod decide;
mod error;
mod names;
mod options;
mod place;
mod record;
mod session;
mod table;

pub use bucket::Bucket;
pub use error::Error;
pub use object_store;
pub use options::Options;
