//! Tests of the wait layer that need access to its internals. Behaviour that is visible from outside is tested in
//! `tests/`.

mod machine;
mod paged;
mod policy;
mod queue;
mod turn;
mod word;
