//! Tests of the table layer that need access to its internals. Behaviour that is visible from outside is tested in
//! `tests/`.

mod overflow;
mod pool;
mod resting;
mod shard;
mod values;
