//! Fuzz targets of `keylatch`. Each is a function of bytes, so that it can also run without a fuzzer: `cargo test` in
//! this directory replays the corpus on any toolchain.
//!
//! | target | the bytes determine | what is checked |
//! |---|---|---|
//! | [`schedule`] | which request for which key is made, when and in which form, and which one gives up | every outcome against the contract |
//! | [`hostile_keys`] | where a key's, a value's or a waker's code panics, or uses the table | the table stays usable, nothing is leaked or dropped twice |
//! | [`state_word`] | moves on the state word of an entry | every bit, against a struct with a field for each |
//!
//! `.ci/fuzz` in the root of the repository runs them.

#[path = "../../tests/common/mod.rs"]
mod common;
pub mod hostile_keys;
#[path = "../../tests/model/schedule.rs"]
pub mod schedule;
pub mod state_word;
