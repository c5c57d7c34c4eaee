//! keylatch-lease beside its peers.
//!
//! - `cargo bench --bench leases`: what leases cost in memory, with the goals that keylatch-lease has set itself. `-- --check` fails if
//!   one is missed.
//! - `cargo bench --bench postgres`: what they cost in Postgres, beside its advisory locks. It needs the server's binaries.
//! - `cargo bench --bench nats`: what they cost in NATS, beside two messages. The same.
//! - `cargo bench --bench etcd`: what they cost in etcd, beside its own locks. The same.
//! - `cargo bench --bench redis`: what they cost in Redis, beside the crate rslock. The same.
//! - `cargo bench --bench crowds`: how leases on engines behave where many want one, holders are killed, or very many are held.
//! - `./figures`: measures leases on engines, and writes the figures down in `docs/leases.md`.
//!
//! How things are timed, and the locks that leases are compared with, are those of `keylatch-benches`.

pub mod figures;
pub mod hand_over;
pub mod heap;
pub mod map_and_queue;
pub mod remote;
pub mod server;
pub mod storm;
pub mod table;
pub mod time;
