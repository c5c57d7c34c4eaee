//! The cases. Each is a function that calls clients of the engine, and fails if an answer is wrong.

mod basic;
mod crowds;
mod ended;
mod expiry;
mod faults;
mod lists;
mod load;
mod processes;

use crate::{Failure, Fixture, trial::Trial};

#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) number: u32,
    pub(crate) name: &'static str,
    /// Whether the case harms the server in a way that other cases would notice.
    pub(crate) is_harmful: bool,
}

macro_rules! cases {
    ($($number:literal $module:ident $name:ident $is_harmful:literal)+) => {
        pub(crate) const CASES: &[Case] =
            &[$(Case { number: $number, name: stringify!($name), is_harmful: $is_harmful },)+];

        pub(crate) fn run<F: Fixture>(number: u32, trial: &Trial<'_, F>) -> Result<(), Failure> {
            match number {
                $($number => trial.fixture.block_on($module::$name(trial)),)+
                _ => unreachable!("there is a case of this number"),
            }
        }
    };
}

cases! {
    1 basic a_free_resource_is_granted false
    2 basic a_second_owner_is_refused_and_told_the_holder false
    3 basic resources_and_owners_do_not_collide false
    4 basic acquiring_again_resumes_the_tenure false
    5 basic a_fresh_token_makes_the_old_grant_stale false
    6 basic tokens_grow_from_tenure_to_tenure false
    7 basic another_owner_cannot_release_or_renew false
    8 basic a_second_release_releases_nothing false
    9 basic a_grant_of_an_earlier_tenure_releases_nothing false
    10 expiry renewing_extends_and_never_shortens false
    11 expiry an_expired_lease_is_not_renewed false
    12 expiry a_lease_that_was_taken_over_is_not_renewed false
    13 expiry a_lease_expires_by_itself_and_not_early false
    14 expiry expiry_policies_are_followed false
    15 basic release_all_releases_exactly_the_owners_leases false
    16 crowds a_release_wakes_a_waiter false
    17 expiry a_waiter_is_served_when_the_lease_expires false
    18 crowds many_waiters_in_one_process_are_served false
    19 processes many_waiting_processes_are_served false
    20 crowds a_dropped_acquire_leaves_no_waiter_and_no_connection false
    21 faults leases_survive_a_killed_server_or_are_reported_lost true
    22 faults a_server_that_forgot_leases_waits_before_granting true
    23 faults a_holder_that_is_cut_off_notices_the_loss_by_itself false
    24 faults an_acquire_recovers_from_a_lost_answer false
    25 faults a_release_recovers_from_a_lost_answer false
    26 processes a_suspended_process_cannot_write_late false
    27 processes a_killed_owners_lease_passes_to_a_waiter false
    28 processes the_time_of_day_does_not_matter false
    29 load a_random_load_is_linearizable false
    30 load a_fenced_set_loses_no_element false
    31 expiry a_sweep_removes_only_expired_leases false
    32 basic each_want_gets_the_right_answer false
    33 faults late_requests_change_nothing false
    34 faults a_paused_server_never_has_two_holders true
    35 expiry a_held_lease_renews_itself false
    36 faults a_waiter_survives_a_broken_connection false
    37 expiry a_waiter_is_notified_of_an_earlier_end false
    38 basic a_dropped_lease_releases_no_later_tenure false
    39 ended a_holder_learns_that_another_client_ended_its_lease false
    40 ended a_holder_learns_that_its_lease_was_deleted_by_hand false
    41 ended a_holder_learns_of_a_release_during_a_broken_connection false
    42 basic release_all_includes_tenures_that_are_replaced_meanwhile false
    43 lists a_list_has_each_lease_once false
    44 lists a_list_keeps_its_place_while_leases_change false
    45 lists a_watch_reports_each_tenure false
    46 lists a_watch_reports_an_expiry false
}
