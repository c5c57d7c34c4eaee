//! keylatch beside its peers.
//!
//! - `cargo bench --bench suite`: each candidate in each scenario, with the goals that keylatch has set itself. It
//!   writes `results/suite.csv`.
//! - `cargo run --release --bin charts`: charts and tables for the docs, of that file.
//! - `cargo bench --bench growth`: how the time for each of many waiters grows with their number; `-- --check` fails
//!   if it does.
//! - `cargo bench --bench counts --bench map_counts`: instructions and allocations of single operations, with limits. It needs valgrind,
//!   and gungraun-runner in the version of gungraun.
//! - `cargo bench --bench many`: several keys at once, and tracked holds; `cargo bench --bench latch`: latches and stripes.
//! - `cargo bench --bench map`: a map of values under keyed locks beside other shared maps and caches.
//!
//! A new peer is an `impl` in [`candidates`] and a line in the lists of [`scenarios`]; a new scenario is an entry
//! there.

pub mod candidates;
pub mod cases;
pub mod chart;
pub mod conditions;
mod dash_map;
pub mod heap;
pub mod load;
pub mod maps;
mod references;
pub mod report;
pub mod scenarios;
mod std_map;
pub mod system;
