//! keylatch beside its peers.
//!
//! - `cargo bench --bench ratios`: each peer in each scenario as a ratio, with the targets that keylatch has set
//!   itself.
//! - `cargo bench --bench locks`: the same scenarios with criterion.
//! - `cargo bench --bench counts`: instructions and allocations of single operations, with limits. It needs valgrind,
//!   and gungraun-runner in the version of gungraun.
//!
//! A new peer is an `impl` in [`candidates`] and a line in the lists of [`scenarios`]; a new scenario is a line there.

pub mod candidates;
pub mod scenarios;
mod std_map;
