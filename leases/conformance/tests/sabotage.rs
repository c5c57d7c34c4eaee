//! Would the suite notice? An engine without a fault passes, and with each of these faults it fails where it must.

mod common;

use common::nearby::{Fault, WithFault};
use keylatch_lease_conformance::{Report, run};

mod without_a_fault {
    use crate::common::nearby::{Fault, WithFault};

    keylatch_lease_conformance::conformance!(WithFault::new(Fault::None));
}

/// These cases fail; others may.
#[track_caller]
fn fails(fault: Fault, cases: &[u32]) {
    // A load that is random (case 29) finds a fault nearly always, and has three tries.
    let mut reports = (0..3).map(|_| run(WithFault::new(fault)));
    let has_failed = |report: &Report| cases.iter().all(|case| report.failed().contains(case));
    let found = reports.find(has_failed);
    let report = found.unwrap_or_else(|| panic!("{cases:?} must fail\n{}", run(WithFault::new(fault))));
    let failed = report.failed();
    // What any engine can do it still does.
    assert!([1, 3, 4].iter().all(|case| !failed.contains(case)), "{report}");
}

#[test]
fn a_token_that_is_given_out_twice() {
    fails(Fault::TokenReused, &[2, 5, 6, 29, 30]);
}

#[test]
fn a_release_by_anybody() {
    fails(Fault::NoOwnerCheck, &[7, 29]);
}

#[test]
fn a_renewal_that_revives() {
    fails(Fault::Revival, &[11, 14, 29]);
}

#[test]
fn a_clients_clock_that_is_wrong() {
    fails(Fault::ClientClock, &[2, 13, 29]);
}

#[test]
fn a_wake_up_that_is_forgotten() {
    fails(Fault::ForgottenWakeUp, &[16, 18, 37]);
}

#[test]
fn a_release_with_any_token() {
    fails(Fault::NoTokenCheck, &[5, 9, 29, 32]);
}

#[test]
fn a_holder_that_is_not_told() {
    fails(Fault::UntoldHolder, &[39]);
}
