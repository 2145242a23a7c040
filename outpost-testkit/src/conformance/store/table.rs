use super::cases;
use super::fixture::StoreFixture;

/// The one list of the cases, handed to whatever macro is named.
#[doc(hidden)]
#[macro_export]
macro_rules! __store_cases {
    ($apply:ident, $($arguments:tt)*) => {
        $crate::$apply! {
            $($arguments)*
            cases {
                K1 k1_what_was_put_last_is_got_also_after_a_kill
                K2 k2_no_record_is_none_and_an_unreadable_one_is_an_error
                K3 k3_of_puts_with_one_expectation_exactly_one_succeeds
                K4 k4_a_failed_put_changes_nothing
                K5 k5_any_id_can_be_stored_and_none_reaches_anothers_record
                K6 k6_the_list_is_complete_or_an_error
                K7 k7_deleting_the_absent_is_success_and_the_changed_a_conflict
            }
        }
    };
}

crate::__store_cases!(__conformance_table, StoreFixture,);
