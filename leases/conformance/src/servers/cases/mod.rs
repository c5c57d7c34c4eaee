//! The tests of [`engine_tests!`](crate::engine_tests): behaviour that all engines on servers share, and that [the
//! suite](crate#cases) cannot see.
//!
//! | test | behaviour | what the [`TestServer`](super::TestServer) needs |
//! |---|---|---|
//! | [`each_call_does_what_it_says`] | grants, refusals, status, lists, renewals and releases agree with each other | |
//! | [`a_term_is_counted_from_now_and_from_the_start`] | and no end is brought forward | `pass` |
//! | [`any_text_is_a_resource_and_an_owner`] | long, empty and odd names are read back | |
//! | [`owned_by_tells_the_policies`] | all but custom ones | |
//! | [`of_all_who_race_for_it_one_has_it_at_a_time`] | and tokens grow | |
//! | [`who_waits_is_told_of_a_release`] | of every kind, long before the waiter would ask again | `is_wanted` |
//! | [`nobody_is_told_of_what_nobody_waits_for`] | and a waiter is notified once | `listen` |
//! | [`a_waiter_is_told_of_a_tenure_that_ends_sooner_only`] | not of one that ends later | `listen`, `is_wanted` |
//! | [`a_new_tenure_after_an_expiry_does_not_forget_who_waits`] | the server still knows of the waiter | `pass`, `is_wanted` |
//! | [`a_held_lease_that_is_dropped_is_given_back`] | although its engine was dropped too | |
//! | [`what_is_given_back_is_not_forgotten_with_the_connection`] | which is cut during the release | `cut` |
//! | [`a_server_that_does_not_answer_is_an_error_in_time`] | and is used again when it answers | |
//! | [`connections_that_are_cut_are_made_again`] | again and again, under load | `cut` |
//! | [`who_watches_is_woken_when_the_connection_was_lost`] | because messages may have been lost | `cut` |
//! | [`requests_that_are_dropped_leave_nothing_behind`] | after any number of polls: the next requests are served | |
//! | [`the_last_engine_to_go_ends_the_connection`] | and none before it | `connections` |
//!
//! The other functions are parts of tests whose beginning or end depends on the engine.

mod connection;
mod messages;
mod operations;

pub use self::{
    connection::{
        a_held_lease_that_is_dropped_is_given_back, a_server_that_does_not_answer_is_an_error_in_time,
        a_server_that_is_not_there_is_an_error_in_time, connections_that_are_cut_are_made_again,
        it_runs_on_another_runtime, requests_that_are_dropped_leave_nothing_behind,
        the_driver_of_nobody_ends_although_the_server_does_not_answer, the_last_engine_to_go_ends_the_connection,
        what_is_given_back_is_not_forgotten_with_the_connection, who_watches_is_woken_when_the_connection_was_lost,
        without_a_driver_nothing_is_done,
    },
    messages::{
        a_new_tenure_after_an_expiry_does_not_forget_who_waits, a_waiter_is_told_of_a_tenure_that_ends_sooner_only,
        nobody_is_told_of_what_nobody_waits_for, who_waits_is_told_of_a_release,
    },
    operations::{
        a_term_is_counted_from_now_and_from_the_start, any_text_is_a_resource_and_an_owner,
        each_call_does_what_it_says, of_all_who_race_for_it_one_has_it_at_a_time, owned_by_tells_the_policies,
    },
};

/// Makes tests of some [`cases`](crate::servers::cases). Each is run by a function in the engine's tests, which calls
/// [`at_desk`](crate::servers::at_desk).
///
/// `all` stands for those of the table there, except for two: `a_server_that_does_not_answer_is_an_error_in_time` needs
/// a server of its own, and an engine adds checks of its server to `requests_that_are_dropped_leave_nothing_behind`.
///
/// # Examples
/// ```no_run
/// # use std::{net::SocketAddr, sync::Arc};
/// # use keylatch_lease_conformance::servers::{self, Desk, TestServer};
/// use keylatch_lease_conformance::{engine_tests, servers::{LATE, Settings, Shared, namespace}};
///
/// # struct Of<S>(S);
/// # impl<S: TestServer> Of<S> {
/// fn at_desk<F: Future<Output = ()>>(shared: &Shared<S>, test: impl FnOnce(Arc<Desk<S>>) -> F) {
///     let settings = Settings::new(namespace(), None).fallback(LATE); // no waiter asks again without a message
///     servers::at_desk(&shared.get(S::set_up), settings, test);
/// }
/// # }
///
/// // With such a function of `test` alone, either of these:
/// // engine_tests! { at_desk; all }
/// // engine_tests! { at_desk; each_call_does_what_it_says owned_by_tells_the_policies }
/// ```
#[macro_export]
macro_rules! engine_tests {
    ($at_desk:path; all) => {
        $crate::engine_tests! { $at_desk;
            each_call_does_what_it_says
            a_term_is_counted_from_now_and_from_the_start
            any_text_is_a_resource_and_an_owner
            owned_by_tells_the_policies
            of_all_who_race_for_it_one_has_it_at_a_time
            who_waits_is_told_of_a_release
            nobody_is_told_of_what_nobody_waits_for
            a_waiter_is_told_of_a_tenure_that_ends_sooner_only
            a_new_tenure_after_an_expiry_does_not_forget_who_waits
            a_held_lease_that_is_dropped_is_given_back
            what_is_given_back_is_not_forgotten_with_the_connection
            connections_that_are_cut_are_made_again
            who_watches_is_woken_when_the_connection_was_lost
            the_last_engine_to_go_ends_the_connection
        }
    };
    ($at_desk:path; $($case:ident)+) => {
        $(
            #[test]
            fn $case() {
                $at_desk($crate::servers::cases::$case);
            }
        )+
    };
}
