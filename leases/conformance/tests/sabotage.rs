//! Tests that the suite notices faults: an engine with one of these faults fails the right cases.

mod common;

use common::nearby::{Fault, WithFault};
use keylatch_lease_conformance::{Report, run};

mod without_a_fault {
    use crate::common::nearby::{Fault, WithFault};

    keylatch_lease_conformance::conformance!(WithFault::new(Fault::None));
}

/// Checks that these cases fail with the fault; others may fail too.
#[track_caller]
fn fails(fault: Fault, cases: &[u32]) {
    // The random load (case 29) finds a fault nearly always, and has three tries.
    let mut reports = (0..3).map(|_| run(WithFault::new(fault)));
    let has_failed = |report: &Report| cases.iter().all(|case| report.failed().contains(case));
    let found = reports.find(has_failed);
    let report = found.unwrap_or_else(|| panic!("{cases:?} must fail\n{}", run(WithFault::new(fault))));
    let failed = report.failed();
    // The calls that every engine can do still work.
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
