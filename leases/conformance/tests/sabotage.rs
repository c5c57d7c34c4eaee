//! Tests that the suite notices faults: an engine with one of these faults fails the right cases.

mod common;

use common::nearby::{Fault, WithFault};
use keylatch_lease_conformance::Suite;

mod without_a_fault {
    use crate::common::nearby::{Fault, WithFault};

    keylatch_lease_conformance::conformance!(WithFault::new(Fault::None));
}

/// The case that finds a fault by chance.
const RANDOM_LOAD: u32 = 29;

/// Checks that these cases fail with the fault; others may fail too. Each random load finds a fault with a probability
/// above 90 %, and up to ten loads are tried.
#[track_caller]
fn fails(fault: Fault, cases: &[u32]) {
    let suite = Suite::new(WithFault::new(fault));
    let report = suite.run();
    let failed = report.failed();
    let by_chance = |case: u32| case == RANDOM_LOAD && (1..10).any(|_| !suite.case(case).is_ok());
    assert!(cases.iter().all(|&case| failed.contains(&case) || by_chance(case)), "{cases:?} must fail\n{report}");
    // The basic cases pass with every fault.
    assert!([1, 3, 4].iter().all(|case| !failed.contains(case)), "{report}");
}

#[test]
fn a_token_that_is_given_out_twice_is_noticed() {
    fails(Fault::TokenReused, &[2, 5, 6, 29, 30]);
}

#[test]
fn a_release_by_another_owner_is_noticed() {
    fails(Fault::NoOwnerCheck, &[7, 29]);
}

#[test]
fn a_renewal_of_an_expired_lease_is_noticed() {
    fails(Fault::Revival, &[11, 14, 29]);
}

#[test]
fn a_wrong_clock_of_a_client_is_noticed() {
    fails(Fault::ClientClock, &[2, 13, 29]);
}

#[test]
fn a_forgotten_wake_up_is_noticed() {
    fails(Fault::ForgottenWakeUp, &[16, 18, 37]);
}

#[test]
fn a_release_with_any_token_is_noticed() {
    fails(Fault::NoTokenCheck, &[5, 9, 29, 32]);
}

#[test]
fn a_holder_that_is_not_notified_is_noticed() {
    fails(Fault::UntoldHolder, &[39]);
}
