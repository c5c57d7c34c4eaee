//! The adapters between the core and the public forms: each drives the same request in its own way.
//!
//! ```text
//! request   an operation before the manner of waiting is chosen, and the request that waits
//! future    requests polled by a task
//! many      several requests, one after another
//! park      the primitive that a thread sleeps on
//! blocking  requests polled by a thread that sleeps in between
//! manner    waiting of either kind, for operations of several steps
//! ```

#[cfg(all(feature = "std", not(target_family = "wasm")))]
pub(crate) mod blocking;
pub(crate) mod future;
pub(crate) mod manner;
pub(crate) mod many;
#[cfg(all(feature = "std", not(target_family = "wasm")))]
mod park;
pub(crate) mod request;
