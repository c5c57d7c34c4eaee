//! Keyed locks: operations exclude each other only when they name the same key.
#![no_std]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]
#![warn(unreachable_pub)]

extern crate alloc;
#[cfg(any(feature = "std", loom))]
extern crate std;

#[cfg(feature = "std")]
mod blocking;
mod builder;
mod core;
mod fairness;
mod future;
mod guard;
mod handle;
pub mod mode;
mod mutex;
mod owner;
mod request;
mod status;
mod sync;

/// The futures of the async forms.
pub mod futures {
    #[cfg(target_has_atomic = "ptr")]
    pub use crate::future::LockArc;
    pub use crate::future::{Acquire, Lock};
}

pub use self::{
    builder::{Builder, Kind, MAX_CAPACITY},
    fairness::Fairness,
    futures::Lock,
    guard::{Guard, MutexGuard},
    handle::{Handle, KeyHandle},
    mutex::{KeyedMutex, MutexKind},
    owner::{Owner, Table, TableRef},
    status::Status,
};
#[cfg(target_has_atomic = "ptr")]
pub use self::{guard::MutexGuardArc, handle::KeyHandleArc};
pub use equivalent::Equivalent;

pub use hashbrown::DefaultHashBuilder;

/// The largest number of shards that a table can have.
pub const MAX_SHARDS: usize = 1 << 16;

/// How many holders one key can count, and how many waiters, handles and unfinished futures beside them: $2^{30} - 1$ each
/// on 64-bit targets, 16,383 on 32-bit ones. One more panics, whichever form asks.
pub const MAX_HOLDERS: usize = core::MAX_UNITS;
