//! The adapters between the core and the public forms: each drives the same request in its own way.
//!
//! ```text
//! request   an operation, before it is decided how to wait; and what waits
//! future    polled by a task
//! many      several requests, one after another
//! park      what a thread sleeps on
//! blocking  polled by a thread that sleeps in between
//! manner    either, for operations of several steps
//! ```

#[cfg(all(feature = "std", not(target_family = "wasm")))]
pub(crate) mod blocking;
pub(crate) mod future;
pub(crate) mod manner;
pub(crate) mod many;
#[cfg(all(feature = "std", not(target_family = "wasm")))]
mod park;
pub(crate) mod request;
