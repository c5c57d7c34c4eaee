//! The tests of [`engine_tests!`](crate::engine_tests): behaviour that all engines on servers share, and that [the
//! suite](crate#cases) cannot see.
//!
//! | test | behaviour | what the [`TestServer`](super::TestServer) needs |
//! |---|---|---|
//! | [`all_operations_agree_with_each_other`] | grants, refusals, status, lists, renewals and releases | |
//! | [`a_term_counts_from_the_call_and_from_the_start_of_the_tenure`] | and no end is brought forward | `pass` |
//! | [`each_renewal_of_a_batch_has_its_own_term`] | regardless of the others | |
//! | [`any_text_can_name_a_resource_or_an_owner`] | long, empty and odd names are read back | |
//! | [`owned_by_lists_the_policies`] | all but custom ones | |
//! | [`competing_owners_hold_the_resource_one_at_a_time`] | and tokens grow | |
//! | [`a_new_namespace_grants_nothing_until_it_is_opened_or_its_quarantine_has_ended`] | for servers on which a new namespace looks like one that was lost | `open` |
//! | [`a_waiter_is_notified_of_a_release`] | of every kind, long before the waiter would ask again | `is_wanted` |
//! | [`no_message_is_sent_about_a_resource_without_waiters`] | and a waiter is notified once | `listen` |
//! | [`a_waiter_is_notified_only_of_a_tenure_that_ends_sooner`] | not of one that ends later | `listen`, `is_wanted` |
//! | [`a_new_tenure_after_an_expiry_keeps_the_waiter_registered`] | the server still knows of the waiter | `pass`, `is_wanted` |
//! | [`a_dropped_held_lease_is_released`] | although its engine was dropped too | |
//! | [`the_release_of_a_dropped_lease_survives_a_broken_connection`] | which is cut just before the release | `cut` |
//! | [`a_silent_server_is_an_error_in_time`] | and is used again when it answers | |
//! | [`cut_connections_are_made_again_under_load`] | again and again | `cut` |
//! | [`a_lost_connection_wakes_all_watches`] | because messages may have been lost | `cut` |
//! | [`dropped_requests_leave_nothing_behind`] | after any number of polls: the next requests are served | |
//! | [`dropping_the_last_clone_of_an_engine_closes_the_connection`] | and dropping an earlier one does not | `connections` |
//!
//! The other functions are parts of tests whose beginning or end depends on the engine.

mod connection;
mod messages;
mod operations;

pub use self::{
    connection::{
        a_dropped_held_lease_is_released, a_lost_connection_wakes_all_watches, a_silent_server_is_an_error_in_time,
        an_engine_without_a_driver_is_stopped, an_unreachable_server_is_an_error_in_time,
        cut_connections_are_made_again_under_load, dropped_requests_leave_nothing_behind,
        dropping_the_last_clone_of_an_engine_closes_the_connection,
        the_driver_of_a_dropped_engine_ends_although_the_server_is_silent, the_engine_runs_on_another_runtime,
        the_release_of_a_dropped_lease_survives_a_broken_connection,
    },
    messages::{
        a_new_tenure_after_an_expiry_keeps_the_waiter_registered, a_waiter_is_notified_of_a_release,
        a_waiter_is_notified_only_of_a_tenure_that_ends_sooner, no_message_is_sent_about_a_resource_without_waiters,
    },
    operations::{
        a_new_namespace_grants_nothing_until_it_is_opened_or_its_quarantine_has_ended,
        a_term_counts_from_the_call_and_from_the_start_of_the_tenure, all_operations_agree_with_each_other,
        any_text_can_name_a_resource_or_an_owner, competing_owners_hold_the_resource_one_at_a_time,
        each_renewal_of_a_batch_has_its_own_term, owned_by_lists_the_policies,
    },
};

/// Makes tests of some [`cases`](crate::servers::cases). Each is run by a function in the engine's tests, which calls
/// [`at_desk`](crate::servers::at_desk).
///
/// `all` stands for all tests of the table there, except for three: `a_silent_server_is_an_error_in_time` needs a
/// server of its own, an engine adds checks of its server to `dropped_requests_leave_nothing_behind`, and not every
/// engine closes new namespaces, as `a_new_namespace_grants_nothing_until_it_is_opened_or_its_quarantine_has_ended`
/// expects.
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
/// // With such a function whose only argument is `test`, either of these:
/// // engine_tests! { at_desk; all }
/// // engine_tests! { at_desk; all_operations_agree_with_each_other owned_by_lists_the_policies }
/// ```
#[macro_export]
macro_rules! engine_tests {
    ($at_desk:path; all) => {
        $crate::engine_tests! { $at_desk;
            all_operations_agree_with_each_other
            a_term_counts_from_the_call_and_from_the_start_of_the_tenure
            each_renewal_of_a_batch_has_its_own_term
            any_text_can_name_a_resource_or_an_owner
            owned_by_lists_the_policies
            competing_owners_hold_the_resource_one_at_a_time
            a_waiter_is_notified_of_a_release
            no_message_is_sent_about_a_resource_without_waiters
            a_waiter_is_notified_only_of_a_tenure_that_ends_sooner
            a_new_tenure_after_an_expiry_keeps_the_waiter_registered
            a_dropped_held_lease_is_released
            the_release_of_a_dropped_lease_survives_a_broken_connection
            cut_connections_are_made_again_under_load
            a_lost_connection_wakes_all_watches
            dropping_the_last_clone_of_an_engine_closes_the_connection
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
