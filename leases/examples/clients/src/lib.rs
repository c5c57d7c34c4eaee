//! Writes under a lease with clients that the engines do not use themselves.
//!
//! Each module is one client. `docs/leases-guide.md` has the same code, and the tests compare the two.

pub mod diesel;
pub mod fred;
pub mod pooled;
pub mod sqlx;
