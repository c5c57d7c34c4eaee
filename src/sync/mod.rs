//! The one place that decides which atomics, which cell and which internal lock the crate is built on.
//!
//! | build | atomics | [`Lock`] |
//! |---|---|---|
//! | `std` | `core` | `spin`; after a few rounds a caller yields its time slice |
//! | no `std` | `core` | `spin` |
//! | `portable-atomic` | `portable-atomic` | as above |
//! | `critical-section` | `portable-atomic` | `spin` inside a critical section: never contended on one core |
//! | `cfg(keylatch_loom)`, `cfg(keylatch_shuttle)` | the checker's | the checker's mutex |
//!
//! The two `cfg`s in the last row are set by the package in `checks/`, which builds these sources and has the checkers
//! among its dependencies. `cfg(loom)` alone changes nothing here: it applies to all crates of a build, and users set
//! it for models of their own.
//!
//! A [`Lock`] runs a closure instead of returning a guard, because a critical section has no other form without unsafe
//! code.

#[cfg(not(keylatch_loom))]
mod cell;
#[cfg(any(keylatch_loom, keylatch_shuttle))]
mod checker;
#[cfg(feature = "std")]
mod cpus;
#[cfg(all(feature = "std", not(target_family = "wasm")))]
mod depth;
#[cfg(not(all(feature = "std", not(target_family = "wasm"))))]
#[path = "no_depth.rs"]
mod depth;
#[cfg(not(any(keylatch_loom, keylatch_shuttle)))]
mod lock;
#[cfg(all(feature = "std", not(target_family = "wasm"), not(any(keylatch_loom, keylatch_shuttle))))]
mod spin_wait;

#[cfg(not(keylatch_loom))]
pub(crate) use self::cell::UnsafeCell;
#[cfg(any(keylatch_loom, keylatch_shuttle))]
pub(crate) use self::checker::*;
#[cfg(feature = "std")]
pub(crate) use self::cpus::cpus;
pub(crate) use self::depth::{deeper, depth};
#[cfg(keylatch_loom)]
pub(crate) use loom::cell::UnsafeCell;

#[cfg(not(any(keylatch_loom, keylatch_shuttle)))]
pub(crate) use self::lock::{LOOKS_TO_REST, Lock, give_way};
#[cfg(all(feature = "std", not(target_family = "wasm"), not(any(keylatch_loom, keylatch_shuttle))))]
pub(crate) use self::spin_wait::{SpinWait, watch};
#[cfg(not(any(keylatch_loom, keylatch_shuttle, feature = "portable-atomic")))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
#[cfg(all(not(any(keylatch_loom, keylatch_shuttle)), feature = "portable-atomic"))]
pub(crate) use portable_atomic::{AtomicU32, AtomicUsize, Ordering};
#[cfg(all(feature = "std", not(target_family = "wasm"), not(any(keylatch_loom, keylatch_shuttle))))]
pub(crate) use std::thread_local;
