//! The fixtures of the tests.
#![allow(dead_code)] // each test binary uses some of it

pub(crate) mod memory;
pub(crate) mod nearby;
pub(crate) mod served;
