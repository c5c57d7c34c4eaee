//! Benchmarks of keylatch-lease and its peers.
//!
//! - `cargo bench --bench leases`: the cost of leases in memory, compared with the goals of keylatch-lease.
//!   `-- --check` fails if a goal is missed.
//! - `cargo bench --bench postgres`: the cost of leases in Postgres, compared with its advisory locks. It needs the
//!   server's binaries.
//! - `cargo bench --bench nats`: likewise for NATS, compared with two messages.
//! - `cargo bench --bench etcd`: likewise for etcd, compared with its own locks.
//! - `cargo bench --bench redis`: likewise for Redis, compared with the crate rslock.
//! - `cargo bench --bench sqlite`: likewise for a SQLite file, compared with two `UPDATE`s. It needs no server.
//! - `cargo bench --bench crowds`: the behaviour of leases on engines when many owners want one resource, when holders
//!   are killed, and when very many leases are held.
//! - `./figures`: measures leases on engines, and writes the figures to `docs/leases.md`.
//!
//! The timing code, and the locks with which leases are compared, are those of `keylatch-benches`.

pub mod figures;
pub mod hand_over;
pub mod heap;
pub mod map_and_queue;
mod processes;
pub mod remote;
pub mod server;
pub mod storm;
pub mod table;
pub mod time;
