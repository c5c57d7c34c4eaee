//! Tests of the core that need its inside. What can be seen from outside is tested in `tests/`.

mod overflow;
mod pool;
mod queue;
mod slab;
mod table;
mod word;
