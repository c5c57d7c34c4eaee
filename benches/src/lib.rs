//! keylatch compared with its peers.
//!
//! - `cargo bench --bench suite`: every candidate in every scenario, with keylatch's goals. It writes
//!   `results/suite.csv`.
//! - `cargo run --release --bin charts`: charts and tables for the docs, from that file.
//! - `cargo bench --bench growth`: how the time per waiter grows with the number of waiters. With `-- --check` it fails
//!   if the time grows too much.
//! - `cargo bench --bench counts --bench map_counts`: instructions and allocations of single operations, with limits.
//!   Both need valgrind, and gungraun-runner in the same version as the gungraun dependency.
//! - `cargo bench --bench many`: several keys at once, and tracked holds; `cargo bench --bench latch`: latches and
//!   stripes.
//! - `cargo bench --bench map`: a map of values under keyed locks compared with other shared maps and caches.
//!
//! To add a peer, write an `impl` in [`candidates`] and a line in the lists of [`scenarios`]; to add a scenario, an
//! entry there.

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
