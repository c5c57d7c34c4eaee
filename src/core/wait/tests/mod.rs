//! Tests of the wait layer that need its inside. What can be seen from outside is tested in `tests/`.

mod machine;
mod paged;
mod policy;
mod queue;
mod word;
