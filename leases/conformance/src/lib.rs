//! The suite that every engine of `keylatch-lease` must pass: those of the project, and yours.
//!
//! An [`Engine`](keylatch_lease::engine::Engine) decides who gets a lease, one atomic action at a time, and everything that `keylatch-lease` promises rests on
//! what it does when answers get lost, servers die and clocks disagree. This suite asks it, case by case, and says where it fails.
//!
//! # A fixture
//! What the suite has to know of an engine is in a [`Fixture`]: how to connect, what to expect, and what can be done to the server. The least
//! that there can be is this; [`conformance!`] makes a test of each case:
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
//!         Caps::new(Duration::from_secs(1)) // leases that are to end last for a second
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
//! // Or all at once, and a table:
//! // println!("{}", keylatch_lease_conformance::run(InMemory));
//!
//! // Or one:
//! let suite = keylatch_lease_conformance::Suite::new(InMemory);
//! assert!(suite.case(1).is_ok());
//! ```
//!
//! An engine with a server gives more, as far as it can: each method of [`Fixture`] that has a default makes some cases applicable.
//!
//! | method | what for | cases |
//! |---|---|---|
//! | [`address`](Fixture::address), and `through` in [`connect`](Fixture::connect) | a [`Proxy`] in between that can be told to misbehave | 23, 24, 25, 33, 36, 41; 29 gets worse |
//! | [`server`](Fixture::server) | killing, restarting and pausing it, making it forget, emptying it, putting it back to a copy | 21, 22, 34 |
//! | [`worker`](Fixture::worker) | other processes, see [`worker`] | 19, 26, 27, 28 |
//! | [`pass`](Fixture::pass) | a clock that can be moved; without one, time passes really | all that wait for an end |
//! | [`by_hand`](Fixture::by_hand), [`take_away`](Fixture::take_away) | what somebody deletes in the store | 40 |
//! | [`connections`](Fixture::connections) | seeing whether some are left behind | 20 |
//! | [`block_on`](Fixture::block_on) | the runtime that the engine needs | all |
//!
//! The client that it connects should ask a server that does not answer for no more than a few seconds, and connect anew when a connection
//! breaks: cases 21 to 25, 33, 34, 36 and 41 break them.
//!
//! [`served`] is an engine with all of that, for tests and demonstrations: the one in memory, behind a server.
//!
//! With the feature `servers` there is a fixture for engines on real servers, which a script starts: the module `servers`.
//!
//! # What comes of it
//! A case has an [`Outcome`]. It *passed*, or it *failed*. It was *weakened*, if something was wrong that the engine does not promise: see below.
//! Or it *does not apply*, since the fixture lacks the means. The tests of [`conformance!`] pass in these two cases, and say on the standard
//! error why; nothing is left out silently.
//!
//! # What may be excused
//! [`Caps::excuses`] names what an engine does not promise, by [guarantee](keylatch_lease#what-it-guarantees) or by case, with a reason that is in the
//! report. Good reasons are those of the engine's own page, as "an answer of a replica that has lost the last second" for 1, or "one poll each 500 ms"
//! for 8 (or rather a greater [`delta`](Caps::delta)). There are none for 3 and 5: where tokens do not grow no fence helps, and where others can
//! release there is no lease. An excuse of a guarantee goes for each check that is marked with it, and the rest of the case is demanded as
//! ever; one of a case goes for the whole of it, panics excepted. Where all leases of a namespace last equally long, say so with
//! [`is_ttl_fixed`](Caps::is_ttl_fixed).
//!
//! # Cases
//! *T* is [`Caps::ttl`], *δ* is [`Caps::delta`]; the numbers behind are those of the guarantees that a case is about. "Soon" allows for
//! [`Caps::noise`] on top: what is checked by time is that nothing comes too early, and that it comes at all.
//!
//! | | case | demands | |
//! |---|---|---|---|
//! | 1 | `a_free_resource_is_granted` | status and list of the owner say who, which token and how long | 1, 2, 7 |
//! | 2 | `a_second_owner_is_told_who_has_it` | and for how long; being refused changes nothing | 1 |
//! | 3 | `resources_and_owners_do_not_collide` | prefixes, empty names, zero bytes, quotes, wildcards, 1 KiB, unicode; and 300 names of whatever means something to some server | 1, 7 |
//! | 4 | `asking_again_resumes` | at once, from any client, with the same token and no earlier end | 4 |
//! | 5 | `a_fresh_token_makes_the_old_grant_stale` | it neither renews nor releases; nobody else gets one | 3, 5 |
//! | 6 | `tokens_grow_from_tenure_to_tenure` | a hundred times, whoever had it and however it ended | 3 |
//! | 7 | `another_owner_cannot_release_or_renew` | not by name, and not with a stolen token | 5 |
//! | 8 | `a_second_release_touches_nobody` | not held; and a successor keeps it | 5 |
//! | 9 | `a_grant_of_an_earlier_tenure_releases_nothing` | of the same owner, who has it again | 5 |
//! | 10 | `renewing_extends_and_never_shortens` | whatever the policies | 4, 6 |
//! | 11 | `what_has_expired_is_not_renewed` | though nobody has it, nobody sees it, and it is not counted as released | 6 |
//! | 12 | `what_was_taken_over_is_not_renewed` | and the successor's end stays where it is | 5, 6 |
//! | 13 | `it_ends_by_itself_and_not_before` | without a sweep: not before *T*, and by *T* + *δ* | 1, 8 |
//! | 14 | `policies_are_kept` | `Fixed`, `SlidingUpTo`, `Never`, `Custom` | 6, 8 |
//! | 15 | `release_all_releases_exactly_mine` | among 1,000 leases of ten owners, with others coming and going | 7 |
//! | 16 | `a_release_wakes_who_waits` | 200 times, in half of them within *δ* | 9 |
//! | 17 | `expiry_lets_in_who_waits` | not before *T*, and by *T* + *δ* | 1, 8 |
//! | 18 | `a_crowd_in_one_process_is_served` | 1,000 of them, with one question under way at a time and ten for each | 9 |
//! | 19 | `a_crowd_of_processes_is_served` | [many](Caps::processes) of them; who waits asks at most ten times a second | 9 |
//! | 20 | `a_request_that_is_dropped_leaves_nothing_behind` | after each number of polls: no waiter, no connection, at worst a lease of *T* | 11 |
//! | 21 | `a_server_that_is_killed_keeps_leases_or_loses_them` | and the holder is told which; who waits gets in | 1, 3, 9 |
//! | 22 | `a_server_that_forgot_waits_before_it_grants` | restarted with nothing, emptied, or put back to an older copy: until nobody may go by what it granted; with greater tokens | 1, 3 |
//! | 23 | `who_is_cut_off_learns_of_the_loss_alone` | with a connection that swallows everything: before its successor has it | 2, 10 |
//! | 24 | `a_lost_answer_to_an_acquire_is_made_good` | by asking again: the same tenure | 4 |
//! | 25 | `a_lost_answer_to_a_release_is_made_good` | by asking again: it is released, and a successor keeps it | 5 |
//! | 26 | `a_process_that_was_stopped_does_not_write` | it finds out first; a late write does not pass a fence | 2, 3, 10 |
//! | 27 | `a_killed_owner_is_succeeded` | by *T* + *δ*, though one who waited was killed, too | 8 |
//! | 28 | `the_time_of_day_does_not_matter` | an hour forward and back, while it is held and waited for (needs libfaketime, or its path in `KEYLATCH_FAKETIME`) | 1, 2, 8 |
//! | 29 | `a_random_load_is_linearizable` | all that is asked and said in a random load with faults is a history of leases | 1 to 7 |
//! | 30 | `a_set_loses_nothing_behind_a_fence` | whoever sleeps between reading and writing; without the fence it loses something | 3 |
//! | 31 | `a_sweep_forgets_what_has_expired_and_nothing_else` | and tokens go on growing | 3, 12 |
//! | 32 | `each_condition_is_kept` | what the engine itself says to each [`Want`](keylatch_lease::engine::Want) | 1, 3 to 7 |
//! | 33 | `what_arrives_late_does_no_harm` | renewals, releases and acquires that a network kept past the end | 1, 5, 6 |
//! | 34 | `a_server_that_was_paused_has_one_holder` | as in 23 | 2, 10 |
//! | 35 | `who_holds_renews_by_itself` | for a while, with others asking | 1, 2, 10 |
//! | 36 | `who_waits_outlives_its_connection` | which breaks while the lease is released | 9 |
//! | 37 | `who_waits_hears_of_an_earlier_end` | when the holder begins a shorter tenure: [`watch`](keylatch_lease::engine::Engine::watch) is told of that, too | 8 |
//! | 38 | `what_was_dropped_takes_nothing_along` | its owner asks again at once, and keeps what it is granted | 2, 5 |
//! | 39 | `who_is_released_by_another_learns_of_it` | by name, by `release_all`, by a token, or by a newer tenure: within [`notice`](Caps::notice), polled or not | 2, 10 |
//! | 40 | `what_is_taken_away_by_hand_is_lost` | each way of [`Fixture::by_hand`], as soon as the store tells, or somebody else asks | 2, 10 |
//! | 41 | `who_holds_outlives_its_connection` | which breaks while another releases what it holds | 2, 10 |
//!
//! Cases 21, 22 and 34 harm the server and run alone; the others run side by side, each in a namespace of its own.
//!
//! # Would it notice?
//! The suite's own tests run it on engines with a fault each (a token given out twice, no look at who releases, a renewal that revives, a
//! clock that is wrong, a wake-up that is forgotten, a release with any token, a holder that is not told), and each fails where it must.
mod caps;
mod cases;
mod failure;
mod fixture;
mod history;
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
pub use proxy::Proxy;
#[doc(hidden)]
pub use suite::{Kept, test};
pub use suite::{Outcome, Report, Row, Suite, run};
pub use turns::turns;

/// Makes a test of each [case](crate#cases), in the module where it stands, of an expression that makes the [`Fixture`].
///
/// It is evaluated once, by the test that comes first, and the fixture is never dropped. A module can have one of these.
///
/// # Examples
/// See the [crate's page](crate#a-fixture).
#[macro_export]
macro_rules! conformance {
    ($fixture:expr $(,)?) => {
        static SUITE: $crate::Kept = $crate::Kept::new();

        $crate::__tests! { $fixture;
            a_free_resource_is_granted
            a_second_owner_is_told_who_has_it
            resources_and_owners_do_not_collide
            asking_again_resumes
            a_fresh_token_makes_the_old_grant_stale
            tokens_grow_from_tenure_to_tenure
            another_owner_cannot_release_or_renew
            a_second_release_touches_nobody
            a_grant_of_an_earlier_tenure_releases_nothing
            renewing_extends_and_never_shortens
            what_has_expired_is_not_renewed
            what_was_taken_over_is_not_renewed
            it_ends_by_itself_and_not_before
            policies_are_kept
            release_all_releases_exactly_mine
            a_release_wakes_who_waits
            expiry_lets_in_who_waits
            a_crowd_in_one_process_is_served
            a_crowd_of_processes_is_served
            a_request_that_is_dropped_leaves_nothing_behind
            a_server_that_is_killed_keeps_leases_or_loses_them
            a_server_that_forgot_waits_before_it_grants
            who_is_cut_off_learns_of_the_loss_alone
            a_lost_answer_to_an_acquire_is_made_good
            a_lost_answer_to_a_release_is_made_good
            a_process_that_was_stopped_does_not_write
            a_killed_owner_is_succeeded
            the_time_of_day_does_not_matter
            a_random_load_is_linearizable
            a_set_loses_nothing_behind_a_fence
            a_sweep_forgets_what_has_expired_and_nothing_else
            each_condition_is_kept
            what_arrives_late_does_no_harm
            a_server_that_was_paused_has_one_holder
            who_holds_renews_by_itself
            who_waits_outlives_its_connection
            who_waits_hears_of_an_earlier_end
            what_was_dropped_takes_nothing_along
            who_is_released_by_another_learns_of_it
            what_is_taken_away_by_hand_is_lost
            who_holds_outlives_its_connection
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

    /// A case that is not listed is not run, and a case that is not described is unknown to users.
    #[test]
    fn each_case_is_listed_and_described() {
        let source = include_str!("lib.rs");
        let (docs, tests) = source.split_once("macro_rules! conformance").expect("the macro");
        for (at, case) in CASES.iter().enumerate() {
            assert_eq!(case.number as usize, at + 1);
            assert!(
                docs.contains(&format!("//! | {} | `{}` |", case.number, case.name)),
                "{} is not described",
                case.name
            );
            assert_eq!(tests.matches(&format!("            {}\n", case.name)).count(), 1, "{}", case.name);
        }
    }
}
