//! Tests of the table layer that need its inside. What can be seen from outside is tested in `tests/`.

mod overflow;
mod pool;
mod shard;
mod values;
