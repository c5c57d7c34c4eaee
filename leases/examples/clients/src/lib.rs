//! Writes under a lease with clients that the engines do not use themselves.
//!
//! Each module is one client. `docs/leases-guide.md` has the same code, and the tests compare the two.
#![allow(clippy::missing_errors_doc, reason = "all errors are those of the client, and the page shows the code")]

pub mod diesel;
pub mod fred;
pub mod pooled;
pub mod sqlx;
