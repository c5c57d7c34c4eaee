//! The one place that decides which atomics, which cell and which internal lock the crate is built on.
//!
//! | build | atomics | [`Lock`] |
//! |---|---|---|
//! | `std` | `core` | `spin`; after a few rounds a caller yields its time slice |
//! | no `std` | `core` | `spin` |
//! | `portable-atomic` | `portable-atomic` | as above |
//! | `critical-section` | `portable-atomic` | `spin` inside a critical section: never contended on one core |
//! | `cfg(loom)`, `cfg(shuttle)` | the checker's | the checker's mutex |
//!
//! A [`Lock`] is taken by closure, because that is the form that a critical section has without unsafe code.

#[cfg(not(loom))]
mod cell;
#[cfg(any(loom, shuttle))]
mod checker;
#[cfg(feature = "std")]
mod cpus;
#[cfg(not(any(loom, shuttle)))]
mod lock;
#[cfg(all(feature = "std", not(any(loom, shuttle))))]
mod spin_wait;

#[cfg(not(loom))]
pub(crate) use self::cell::UnsafeCell;
#[cfg(any(loom, shuttle))]
pub(crate) use self::checker::*;
#[cfg(feature = "std")]
pub(crate) use self::cpus::cpus;
#[cfg(loom)]
pub(crate) use loom::cell::UnsafeCell;

#[cfg(not(any(loom, shuttle)))]
pub(crate) use self::lock::Lock;
#[cfg(all(feature = "std", not(any(loom, shuttle))))]
pub(crate) use self::spin_wait::SpinWait;
#[cfg(not(any(loom, shuttle, feature = "portable-atomic")))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
#[cfg(all(not(any(loom, shuttle)), feature = "portable-atomic"))]
pub(crate) use portable_atomic::{AtomicU32, AtomicUsize, Ordering};
#[cfg(all(feature = "std", not(any(loom, shuttle))))]
pub(crate) use std::thread_local;
