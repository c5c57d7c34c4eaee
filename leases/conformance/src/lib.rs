//! The suite that every engine of `keylatch-lease` must pass: the engines of this project, and yours.
//!
//! An [`Engine`](keylatch_lease::engine::Engine) decides who gets a lease, one atomic action at a time. Everything that
//! `keylatch-lease` promises rests on how the engine acts when answers get lost, servers die and clocks disagree. This
//! suite tests that, case by case, and says where the engine fails.
//!
//! # A fixture
//! A [`Fixture`] tells the suite how to connect to an engine, what to expect of it, and what can be done to its server.
//! This is the smallest one; [`conformance!`] makes a test of each case:
//!
//! ```
//! use std::time::Duration;
//!
//! use keylatch_lease::{Memory, StdClock};
//! use keylatch_lease_conformance::{Caps, Failure, Fixture, Proxy};
//!
//! struct InMemory;
//!
//! impl Fixture for InMemory {
//!     type Engine = Memory;
//!
//!     fn name(&self) -> String {
//!         "memory".into()
//!     }
//!
//!     fn caps(&self) -> Caps {
//!         Caps::new(Duration::from_secs(1)) // the length of the leases that expire in a case
//!     }
//!
//!     async fn connect(&self, _namespace: &str, _through: Option<&Proxy>) -> Result<Memory, Failure> {
//!         Ok(Memory::new(StdClock::new()))
//!     }
//! }
//!
//! mod conformance {
//!     keylatch_lease_conformance::conformance!(super::InMemory);
//! }
//!
//! // Or run all cases at once, and print a table:
//! // println!("{}", keylatch_lease_conformance::run(InMemory));
//!
//! // Or run one case:
//! let suite = keylatch_lease_conformance::Suite::new(InMemory);
//! assert!(suite.case(1).is_ok());
//! ```
//!
//! A fixture for an engine with a server implements more methods, as far as it can. All methods in this table have a
//! default, and most of them make more cases applicable:
//!
//! | method | what it provides | cases |
//! |---|---|---|
//! | [`address`](Fixture::address), and `through` in [`connect`](Fixture::connect) | a [`Proxy`] in between that can be told to misbehave | 23, 24, 25, 33, 36, 41; 29 gets harder |
//! | [`server`](Fixture::server) | killing, restarting and pausing the server; making it forget, emptying it, putting it back to a copy | 21, 22, 34 |
//! | [`worker`](Fixture::worker) | other processes, see [`worker`] | 19, 26, 27, 28 |
//! | [`pass`](Fixture::pass) | a clock that can be moved; without one, the suite waits in real time | all that wait for a lease to end |
//! | [`by_hand`](Fixture::by_hand), [`take_away`](Fixture::take_away) | deletions in the store by hand | 40 |
//! | [`connections`](Fixture::connections) | the number of connections, to detect leaked ones | 20 |
//! | [`block_on`](Fixture::block_on) | the runtime that the engine needs | all |
//!
//! The fixture's client should wait for a silent server for no more than a few seconds, and should reconnect when a
//! connection breaks, because cases 21 to 25, 29, 33, 34, 36 and 41 break or block connections.
//!
//! [`served`] is an engine with all of that, for tests and demonstrations: the engine in memory behind a server.
//!
//! With the feature `servers`, the module `servers` has a fixture for engines on real servers, which a script starts.
//!
//! # Outcomes
//! A case has an [`Outcome`]. It *passed*, or it *failed*. It was *weakened* if it demanded something that the engine
//! does not promise and did not get it, if it could not check everything, or if the whole case is excused: see below.
//! Or it *does not apply*, because the fixture lacks the means. The tests of [`conformance!`] pass with the latter two
//! outcomes too, and write the reason to the standard error; no case is skipped silently.
//!
//! # Excuses
//! [`Caps::excuses`] names what an engine does not promise, by [guarantee](keylatch_lease#what-it-guarantees) or by
//! case, with a reason that the report contains. Good reasons are those of the engine's own page, such as "an answer of
//! a replica that has lost the last second" for 1, or "one poll each 500 ms" for 8 (although a greater
//! [`delta`](Caps::delta) is better for that). There are no good reasons for 3 and 5: if tokens do not grow, no fence
//! helps; and if others can release a lease, it is not a lease. An excuse for a guarantee applies to each check that is
//! marked with it, and the rest of the case is demanded in full. An excuse for a case applies to the whole case, except
//! for panics. If all leases of a namespace last equally long, declare that with [`is_ttl_fixed`](Caps::is_ttl_fixed).
//!
//! # Cases
//! *T* is [`Caps::ttl`], *δ* is [`Caps::delta`]; the last column has the numbers of the guarantees that a case is for.
//! A limit such as *T* + *δ* allows for [`Caps::noise`] in addition. In effect, the checks of times show only that
//! something does not happen too early, and that it does happen.
//!
//! | | case | demands | |
//! |---|---|---|---|
//! | 1 | `a_free_resource_is_granted` | the status and the owner's list have the right owner, token and time | 1, 2, 7 |
//! | 2 | `a_second_owner_is_refused_and_told_the_holder` | and for how long; the refusal changes nothing | 1 |
//! | 3 | `resources_and_owners_do_not_collide` | prefixes, empty names, zero bytes, quotes, wildcards, 1 KiB, unicode; and 300 names that are special to some server | 1, 7 |
//! | 4 | `acquiring_again_resumes_the_tenure` | at once, from any client, with the same token and no earlier end | 4 |
//! | 5 | `a_fresh_token_makes_the_old_grant_stale` | the old grant neither renews nor releases; no other owner gets a fresh token | 3, 5 |
//! | 6 | `tokens_grow_from_tenure_to_tenure` | a hundred times, whoever held the resource and however it was released | 3 |
//! | 7 | `another_owner_cannot_release_or_renew` | neither by its name nor with a stolen token | 5 |
//! | 8 | `a_second_release_releases_nothing` | it reports that the lease is not held; a successor keeps its lease | 5 |
//! | 9 | `a_grant_of_an_earlier_tenure_releases_nothing` | even if the same owner holds the resource again | 5 |
//! | 10 | `renewing_extends_and_never_shortens` | whatever the policies | 4, 6 |
//! | 11 | `an_expired_lease_is_not_renewed` | even if the resource is free; an expired lease is invisible, and `release_all` does not count it | 6 |
//! | 12 | `a_lease_that_was_taken_over_is_not_renewed` | and the successor's end stays where it is | 5, 6 |
//! | 13 | `a_lease_expires_by_itself_and_not_early` | without a sweep: not before *T*, and by *T* + *δ* | 1, 8 |
//! | 14 | `expiry_policies_are_followed` | `Fixed`, `SlidingUpTo`, `Never`, `Custom` | 6, 8 |
//! | 15 | `release_all_releases_exactly_the_owners_leases` | among 1,000 leases of ten owners, while others acquire and release | 7 |
//! | 16 | `a_release_wakes_a_waiter` | 200 times, in half of them within *δ* | 9 |
//! | 17 | `a_waiter_is_served_when_the_lease_expires` | not before *T*, and by *T* + *δ* | 1, 8 |
//! | 18 | `many_waiters_in_one_process_are_served` | 1,000 waiters, with at most one acquire under way at a time, and on average at most ten requests for each | 9 |
//! | 19 | `many_waiting_processes_are_served` | [many](Caps::processes) processes; on average each waiter makes at most ten requests a second | 9 |
//! | 20 | `a_dropped_acquire_leaves_no_waiter_and_no_connection` | after any number of polls: no waiter, no connection, at worst a lease of *T* | 11 |
//! | 21 | `leases_survive_a_killed_server_or_are_reported_lost` | the holder learns which; the waiter gets the resource | 1, 3, 9 |
//! | 22 | `a_server_that_forgot_leases_waits_before_granting` | restarted with nothing, emptied, or put back to an older copy, it waits until nobody can still rely on a forgotten lease; tokens are greater | 1, 3 |
//! | 23 | `a_holder_that_is_cut_off_notices_the_loss_by_itself` | with a connection that swallows everything: the holder knows before its successor has the resource | 2, 10 |
//! | 24 | `an_acquire_recovers_from_a_lost_answer` | the retry gets the same tenure | 4 |
//! | 25 | `a_release_recovers_from_a_lost_answer` | the retry succeeds, and a successor keeps its lease | 5 |
//! | 26 | `a_suspended_process_cannot_write_late` | it learns of the loss first; a fence refuses a late write | 2, 3, 10 |
//! | 27 | `a_killed_owners_lease_passes_to_a_waiter` | by 2 (*T* + *δ*), because a waiter was killed too, and may have been granted the lease | 8 |
//! | 28 | `the_time_of_day_does_not_matter` | one hour forward and back, while the resource is held and waited for (needs libfaketime, or its path in `KEYLATCH_FAKETIME`) | 1, 2, 8 |
//! | 29 | `a_random_load_is_linearizable` | all requests and answers of a random load with faults are a history of leases | 1 to 7 |
//! | 30 | `a_fenced_set_loses_no_element` | although writers sleep between reading and writing; without the fence it loses something | 3 |
//! | 31 | `a_sweep_removes_only_expired_leases` | and tokens keep growing | 3, 12 |
//! | 32 | `each_want_gets_the_right_answer` | the engine's own answers to each [`Want`](keylatch_lease::engine::Want) | 1, 3 to 7 |
//! | 33 | `late_requests_change_nothing` | renewals, releases and acquires that a network held back until after the end | 1, 5, 6 |
//! | 34 | `a_paused_server_never_has_two_holders` | as in 23 | 2, 10 |
//! | 35 | `a_held_lease_renews_itself` | for a while, against other requests | 1, 2, 10 |
//! | 36 | `a_waiter_survives_a_broken_connection` | which breaks while the lease is released | 9 |
//! | 37 | `a_waiter_is_notified_of_an_earlier_end` | when the holder begins a shorter tenure: [`watch`](keylatch_lease::engine::Engine::watch) is notified of that too | 8 |
//! | 38 | `a_dropped_lease_releases_no_later_tenure` | its owner acquires again at once, and keeps the new lease | 2, 5 |
//! | 39 | `a_holder_learns_that_another_client_ended_its_lease` | by owner, by `release_all`, by a token, or by a newer tenure: within [`notice`](Caps::notice), polled or not | 2, 10 |
//! | 40 | `a_holder_learns_that_its_lease_was_deleted_by_hand` | each way of [`Fixture::by_hand`], as soon as the store reports it, or another owner requests the resource | 2, 10 |
//! | 41 | `a_holder_learns_of_a_release_during_a_broken_connection` | by another client, although the notification is lost | 2, 10 |
//! | 42 | `release_all_includes_tenures_that_are_replaced_meanwhile` | the owner holds each lease throughout, by one fresh tenure after the other | 7 |
//! | 43 | `a_list_has_each_lease_once` | in pages, by owner and by the beginning of the entity; the times are right | 1 |
//! | 44 | `a_list_keeps_its_place_while_leases_change` | a lease that exists throughout is on exactly one page; expired leases are on none | 1 |
//! | 45 | `a_watch_reports_each_tenure` | and each time that the resource is free, but no renewal | 3, 9 |
//! | 46 | `a_watch_reports_an_expiry` | although nobody waits for the resource | 1, 9 |
//!
//! Cases 21, 22 and 34 harm the server and run alone; the others run side by side, each in its own namespace.
//!
//! # Tests of the suite
//! The suite's own tests run it on engines with one fault each (a token given out twice, no check of the owner at a
//! release, a renewal that revives, a wrong clock, a forgotten wake-up, a release with any token, a holder that is not
//! notified), and each engine fails where it must.
mod caps;
mod cases;
mod failure;
mod fixture;
mod history;
mod ledger;
mod observed;
mod proxy;
pub mod served;
#[cfg(feature = "servers")]
pub mod servers;
mod suite;
mod trial;
mod turns;
pub mod worker;

pub use caps::{Caps, Excuse};
pub use failure::Failure;
pub use fixture::{ByHand, Fixture, Heard, Server};
pub use ledger::{Ledger, Progress};
pub use proxy::Proxy;
#[doc(hidden)]
pub use suite::{Kept, test};
pub use suite::{Outcome, Report, Row, Suite, run};
pub use turns::turns;

/// Makes a test of each [case](crate#cases), in the module of the call. The argument is an expression that makes the
/// [`Fixture`].
///
/// The first test evaluates the expression, once, and the fixture is never dropped. A module can contain only one such
/// call.
///
/// # Examples
/// See the [crate's page](crate#a-fixture).
#[macro_export]
macro_rules! conformance {
    ($fixture:expr $(,)?) => {
        static SUITE: $crate::Kept = $crate::Kept::new();

        $crate::__tests! { $fixture;
            a_free_resource_is_granted
            a_second_owner_is_refused_and_told_the_holder
            resources_and_owners_do_not_collide
            acquiring_again_resumes_the_tenure
            a_fresh_token_makes_the_old_grant_stale
            tokens_grow_from_tenure_to_tenure
            another_owner_cannot_release_or_renew
            a_second_release_releases_nothing
            a_grant_of_an_earlier_tenure_releases_nothing
            renewing_extends_and_never_shortens
            an_expired_lease_is_not_renewed
            a_lease_that_was_taken_over_is_not_renewed
            a_lease_expires_by_itself_and_not_early
            expiry_policies_are_followed
            release_all_releases_exactly_the_owners_leases
            a_release_wakes_a_waiter
            a_waiter_is_served_when_the_lease_expires
            many_waiters_in_one_process_are_served
            many_waiting_processes_are_served
            a_dropped_acquire_leaves_no_waiter_and_no_connection
            leases_survive_a_killed_server_or_are_reported_lost
            a_server_that_forgot_leases_waits_before_granting
            a_holder_that_is_cut_off_notices_the_loss_by_itself
            an_acquire_recovers_from_a_lost_answer
            a_release_recovers_from_a_lost_answer
            a_suspended_process_cannot_write_late
            a_killed_owners_lease_passes_to_a_waiter
            the_time_of_day_does_not_matter
            a_random_load_is_linearizable
            a_fenced_set_loses_no_element
            a_sweep_removes_only_expired_leases
            each_want_gets_the_right_answer
            late_requests_change_nothing
            a_paused_server_never_has_two_holders
            a_held_lease_renews_itself
            a_waiter_survives_a_broken_connection
            a_waiter_is_notified_of_an_earlier_end
            a_dropped_lease_releases_no_later_tenure
            a_holder_learns_that_another_client_ended_its_lease
            a_holder_learns_that_its_lease_was_deleted_by_hand
            a_holder_learns_of_a_release_during_a_broken_connection
            release_all_includes_tenures_that_are_replaced_meanwhile
            a_list_has_each_lease_once
            a_list_keeps_its_place_while_leases_change
            a_watch_reports_each_tenure
            a_watch_reports_an_expiry
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __tests {
    ($fixture:expr; $($case:ident)+) => {
        $(
            #[test]
            fn $case() {
                $crate::test(&SUITE, || $fixture, stringify!($case));
            }
        )+
    };
}

#[cfg(test)]
mod tests {
    use crate::cases::CASES;

    /// A case that is not in the macro is not run, and a case that is not in the table is unknown to users.
    #[test]
    fn each_case_is_listed_and_described() {
        let source = include_str!("lib.rs");
        let (docs, tests) = source.split_once("macro_rules! conformance").expect("the macro");
        for (at, case) in CASES.iter().enumerate() {
            assert_eq!(case.number as usize, at + 1);
            assert!(
                docs.contains(&format!("//! | {} | `{}` |", case.number, case.name)),
                "{} is not in the table",
                case.name
            );
            assert_eq!(tests.matches(&format!("            {}\n", case.name)).count(), 1, "{}", case.name);
        }
    }
}
