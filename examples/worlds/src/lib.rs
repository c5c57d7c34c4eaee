//! The code in docs/migrating.md and docs/migrating-lockable.md, compiled and run as documentation tests:
//! `cargo test --doc`. The programs are in `src/bin`.

#[cfg(doctest)]
#[doc = include_str!("../../../docs/migrating.md")]
struct Migrating;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/migrating-lockable.md")]
struct MigratingLockable;
