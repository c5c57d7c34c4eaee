//! Random schedules on the three tables without values, checked step by step against the contract.

#[path = "../common/mod.rs"]
mod common;
mod schedule;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 11000, ..ProptestConfig::default() })]
    #[test]
    fn a_random_schedule_follows_the_contract(bytes in proptest::collection::vec(any::<u8>(), 3..400)) {
        schedule::run(&bytes);
    }
}
