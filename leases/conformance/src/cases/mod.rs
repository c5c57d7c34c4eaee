//! The cases. Each is a function that calls clients of the engine, and fails if an answer is wrong.

mod basic;
mod crowds;
mod ended;
mod expiry;
mod faults;
mod load;
mod processes;

use crate::{Failure, Fixture, trial::Trial};

#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) number: u32,
    pub(crate) name: &'static str,
    /// Whether the case harms the server, so that other cases would notice.
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
    2 basic a_second_owner_is_told_who_has_it false
    3 basic resources_and_owners_do_not_collide false
    4 basic asking_again_resumes false
    5 basic a_fresh_token_makes_the_old_grant_stale false
    6 basic tokens_grow_from_tenure_to_tenure false
    7 basic another_owner_cannot_release_or_renew false
    8 basic a_second_release_touches_nobody false
    9 basic a_grant_of_an_earlier_tenure_releases_nothing false
    10 expiry renewing_extends_and_never_shortens false
    11 expiry what_has_expired_is_not_renewed false
    12 expiry what_was_taken_over_is_not_renewed false
    13 expiry it_ends_by_itself_and_not_before false
    14 expiry policies_are_kept false
    15 basic release_all_releases_exactly_mine false
    16 crowds a_release_wakes_who_waits false
    17 expiry expiry_lets_in_who_waits false
    18 crowds a_crowd_in_one_process_is_served false
    19 processes a_crowd_of_processes_is_served false
    20 crowds a_request_that_is_dropped_leaves_nothing_behind false
    21 faults a_server_that_is_killed_keeps_leases_or_loses_them true
    22 faults a_server_that_forgot_waits_before_it_grants true
    23 faults who_is_cut_off_learns_of_the_loss_alone false
    24 faults a_lost_answer_to_an_acquire_is_made_good false
    25 faults a_lost_answer_to_a_release_is_made_good false
    26 processes a_process_that_was_stopped_does_not_write false
    27 processes a_killed_owner_is_succeeded false
    28 processes the_time_of_day_does_not_matter false
    29 load a_random_load_is_linearizable false
    30 load a_set_loses_nothing_behind_a_fence false
    31 expiry a_sweep_forgets_what_has_expired_and_nothing_else false
    32 basic each_condition_is_kept false
    33 faults what_arrives_late_does_no_harm false
    34 faults a_server_that_was_paused_has_one_holder true
    35 expiry who_holds_renews_by_itself false
    36 faults who_waits_outlives_its_connection false
    37 expiry who_waits_hears_of_an_earlier_end false
    38 basic what_was_dropped_takes_nothing_along false
    39 ended who_is_released_by_another_learns_of_it false
    40 ended what_is_taken_away_by_hand_is_lost false
    41 ended who_holds_outlives_its_connection false
}
