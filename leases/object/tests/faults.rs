//! The conformance suite, on a store that delays requests, loses them and their answers, carries them out late or
//! twice, and refuses some.

mod common;

keylatch_lease_conformance::conformance!(common::Shared::new(common::Faults {
    throttled: 5,
    lost: 5,
    unanswered: 15,
    late: 5,
    doubled: 30,
    slow: 5,
    careless: 0,
    millis: 0,
}));
