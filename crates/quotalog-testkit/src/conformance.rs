//! What every store does alike. Each case is a function of a fresh database; [`store_conformance!`] makes
//! a test of each.
//!
//! [`store_conformance!`]: crate::store_conformance
#![expect(
    clippy::missing_panics_doc,
    reason = "a case panics where a store does not conform"
)]

use std::future::Future;

use quotalog_domain::Timestamp;
use quotalog_ledger::store::Store;

pub mod audit;
pub mod counting;
mod desk;
pub mod erasure;
pub mod fullest;
pub mod keys;
pub mod lists;
pub mod policies;
pub mod pruning;
pub mod tokens;

pub use desk::{Desk, consume, pair};

/// When each case begins: 2026-11-30T18:20:00Z, in the middle of an hour.
pub const START: Timestamp = Timestamp::from_unix_s(1_796_062_800);

/// How long the stores under test keep answers.
pub const IDEMPOTENCY_RETENTION_S: i64 = 86_400;

/// A database of its own, empty at first, on which stores can be opened.
pub trait Database: Send + Sync + 'static {
    /// The store under test.
    type Store: Store + Clone;

    /// Opens a store on the database, as one more process would.
    fn open(&self) -> impl Future<Output = Self::Store> + Send;

    /// Ends a store, as the end of its process would.
    fn close(&self, store: Self::Store) -> impl Future<Output = ()> + Send;
}

/// Makes a test of each case.
///
/// It takes an async function that makes a fresh [`Database`] whose stores
/// go by the given `Arc<ManualClock>` and keep answers for
/// [`IDEMPOTENCY_RETENTION_S`]; `None`, if there is no server
/// to make one on.
#[macro_export]
macro_rules! store_conformance {
    ($fresh:expr) => {
        $crate::store_conformance! { @cases $fresh;
            counting::parallel_consumes_on_two_stores_grant_the_limit_exactly,
            counting::parallel_batches_grant_the_limit_exactly,
            counting::a_consume_counts_all_or_nothing,
            counting::a_batch_counts_all_or_nothing,
            counting::a_rate_limit_call_counts_all_or_nothing,
            counting::what_nothing_limits_passes_and_leaves_nothing,
            counting::commands_of_one_commit_see_each_other,
            counting::a_refund_stops_at_0_and_a_reset_zeroes,
            counting::an_hour_and_a_day_end,
            counting::a_clock_that_steps_back_finds_its_count,
            counting::a_change_of_window_keeps_the_count_of_the_day,
            counting::a_refund_takes_from_the_newest_rows_first,
            counting::a_reset_of_an_hour_leaves_the_hours_before,
            counting::the_first_hour_shares_its_row_with_the_day,
            counting::a_clock_of_another_age_counts_in_its_own_windows,
            policies::a_policy_is_set_changed_and_deleted,
            policies::a_policy_that_comes_back_is_not_refilled,
            policies::a_default_serves_who_has_no_policy,
            policies::ids_are_bytes,
            policies::a_precondition_is_judged_with_the_change,
            keys::a_kept_answer_outlives_what_it_told_of,
            keys::a_kept_answer_outlives_a_restart,
            keys::another_request_under_a_key_is_refused,
            keys::a_key_belongs_to_its_scope,
            keys::a_refusal_is_not_kept,
            keys::parallel_twins_count_once,
            keys::a_kept_answer_ends_with_its_retention,
            tokens::a_token_is_found_by_its_hash,
            tokens::a_revoked_token_is_refused_at_once_on_every_store,
            tokens::a_change_of_another_token_leaves_a_token_valid,
            tokens::an_expired_token_is_refused,
            tokens::a_jwt_holds_until_its_end_whatever_becomes_of_tokens,
            tokens::a_refused_command_leaves_its_neighbours_alone,
            tokens::an_end_in_the_past_is_refused,
            tokens::tokens_are_listed_by_page,
            tokens::the_first_admin_token_is_published_once,
            tokens::a_token_that_was_not_published_is_not_stored,
            audit::every_change_is_remembered,
            audit::what_changed_nothing_is_not_remembered,
            audit::an_entry_names_its_actor,
            audit::tokens_are_remembered_without_their_secret,
            audit::the_audit_is_listed_by_page_and_filter,
            erasure::an_erased_user_is_gone,
            erasure::an_unknown_user_is_erased_too,
            erasure::an_erased_user_starts_anew,
            erasure::kept_answers_that_name_an_erased_user_are_gone,
            erasure::an_erasure_outlives_who_began_it,
            erasure::two_stores_share_what_is_to_be_erased,
            fullest::the_fullest_come_first,
            fullest::a_pair_of_several_rows_counts_once,
            fullest::the_fullest_are_those_of_the_list,
            lists::quotas_are_listed_in_the_order_of_bytes,
            lists::a_walk_meets_every_quota_once_while_others_come,
            lists::a_pair_counted_under_a_default_is_listed,
            lists::all_quotas_are_listed_in_the_order_of_bytes,
            lists::a_walk_meets_every_pair_once_while_others_come,
            lists::a_walk_goes_on_where_its_last_entry_was,
            lists::a_filter_of_all_quotas_is_exact,
            lists::a_page_on_which_little_passes_is_short_and_goes_on,
            lists::defaults_are_listed_by_page,
            lists::the_usage_of_a_pair_is_listed_newest_first,
            lists::a_revoked_caller_reads_no_list,
            pruning::what_is_old_goes_step_by_step,
            pruning::what_is_in_retention_stays,
            pruning::the_audit_has_a_retention_of_its_own,
            pruning::an_entry_is_as_young_as_those_before_it,
            pruning::a_token_is_pruned_long_after_its_end,
            pruning::a_leap_of_the_clock_deletes_nothing_of_today,
            pruning::a_leap_that_lasts_is_believed,
        }
    };
    (@cases $fresh:expr; $($area:ident :: $case:ident),+ $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let clock = ::std::sync::Arc::new($crate::ManualClock::new(
                    $crate::conformance::START,
                ));
                match $fresh(::std::sync::Arc::clone(&clock)).await {
                    Some(database) => $crate::conformance::$area::$case(database, clock).await,
                    None => eprintln!("skipped: there is no database server"),
                }
            }
        )+
    };
}
