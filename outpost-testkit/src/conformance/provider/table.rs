use super::fixture::ProviderFixture;
use super::{ends, keeping, listing, removing, saving, starting, stopping};

/// The one list of the cases, handed to whatever macro is named.
#[doc(hidden)]
#[macro_export]
macro_rules! __provider_cases {
    ($apply:ident, $($arguments:tt)*) => {
        $crate::$apply! {
            $($arguments)*
            listing {
                L1 l1_a_listing_is_complete_or_an_error
                L2 l2_a_started_sandbox_is_listed_until_it_is_removed
                L3 l3_a_snapshot_is_listed_when_it_is_complete_and_not_before
                L4 l4_nothing_of_another_instance_or_role_is_listed
                L5 l5_what_was_there_before_this_process_is_listed
            }
            starting {
                S1 s1_starting_a_boot_twice_makes_one_sandbox
                S2 s2_a_restored_disk_is_what_the_snapshot_holds_and_another_is_fresh
                S3 s3_an_unusable_snapshot_is_answered_as_such_and_leaves_nothing
                S4 s4_a_failed_start_leaves_nothing
                S5 s5_a_worker_gets_exactly_its_environment_and_no_secret_shows
                S6 s6_a_boot_starts_while_an_older_one_is_being_removed
                S7 s7_a_network_policy_is_enforced_or_refused
            }
            stopping {
                W1 w1_a_stopped_worker_leaves_a_disk_and_no_process
                W2 w2_stopping_what_has_ended_or_never_was_is_success
                W3 w3_a_worker_that_ignores_term_is_killed_and_its_save_says_forced
            }
            saving {
                V1 v1_a_boot_is_saved_once_however_often_that_is_asked_for
                V2 v2_a_finished_save_survives_the_process
                V3 v3_a_live_or_unknown_sandbox_is_not_saved
                V4 v4_a_failed_save_changes_nothing
                V5 v5_no_secret_of_the_start_is_in_the_snapshot
                V6 v6_contents_modes_links_and_empty_directories_are_saved
            }
            removing {
                R1 r1_nothing_of_a_removed_sandbox_is_left
                R2 r2_removing_what_does_not_exist_is_success
                R3 r3_snapshots_outlive_their_sandbox
                R4 r4_a_removal_ends_a_start_that_is_under_way
            }
            ends {
                E1 e1_an_extension_is_what_is_listed_and_never_earlier
            }
            keeping {
                D1 d1_a_deleted_snapshot_is_gone_for_good
                D2 d2_sandboxes_outlive_the_snapshot_they_came_from
            }
        }
    };
}

crate::__provider_cases!(__conformance_table, ProviderFixture,);
