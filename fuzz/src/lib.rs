//! Fuzz targets of `keylatch`. Each is a function of bytes, so that it can also be run without a fuzzer: `cargo test`
//! here replays the corpus on any toolchain.
//!
//! | target | bytes say | what is checked |
//! |---|---|---|
//! | [`schedule`] | who asks for which key, when, in which form, and who gives up | every outcome against the contract |
//! | [`hostile_keys`] | where a key's, a value's or a waker's code panics, or uses the table | the table stays usable, nothing is leaked or dropped twice |
//! | [`state_word`] | moves on the word of an entry | every bit against a struct with a field for each |
//!
//! `.ci/fuzz` in the root of the repository runs them.

#[path = "../../tests/common/mod.rs"]
mod common;
pub mod hostile_keys;
#[path = "../../tests/model/schedule.rs"]
pub mod schedule;
pub mod state_word;
