//! Fixtures.
#![allow(dead_code)] // each test has its own

pub(crate) mod memory;
pub(crate) mod nearby;
pub(crate) mod served;
