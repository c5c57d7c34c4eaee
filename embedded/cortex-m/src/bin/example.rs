//! The example in docs/embedded.md, unchanged.

#![no_std]
#![no_main]

#[cfg(not(feature = "locks"))]
extern crate no_locks as keylatch;

include!(concat!(env!("OUT_DIR"), "/example.rs"));
