//! What each command does, as tables: `script.rs` says how a line is read.

use crate::script::check;

#[test]
fn a_consume_counts_up_to_the_limit_and_not_beyond() {
    check(
        "10:00     u/r consume            -> not found
         10:00     u/r set hourly 3       -> 0 of 3 hourly, 3 remaining
         10:01     u/r consume            -> 1 of 3 hourly, 2 remaining
         10:02     u/r consume            -> 2 of 3 hourly, 1 remaining
         10:03     u/r get                -> 2 of 3 hourly, 1 remaining
         10:59:59  u/r consume            -> 3 of 3 hourly, 0 remaining
         10:59:59  u/r get                -> 3 of 3 hourly, 0 remaining, not allowed
         10:59:59  u/r consume            -> denied: 3 of 3, 0 remaining, resets in 1 s
         10:59:59  u/r rows               -> 10:00=3
         // No later window serves fewer.
         11:00     u/r consume 2          -> 2 of 3 hourly, 1 remaining
         11:00     u/r consume            -> 3 of 3 hourly, 0 remaining
         11:00     u/r consume            -> denied: 3 of 3, 0 remaining, resets in 3600 s
         12:59:59  u/r consume 3          -> 3 of 3 hourly, 0 remaining
         12:59:59  u/r rows               -> 10:00=3 11:00=3 12:00=3",
    );
    check(
        "10:00     u/r set hourly 1       -> 0 of 1 hourly, 1 remaining
         10:00     u/r consume            -> 1 of 1 hourly, 0 remaining
         10:00     u/r consume            -> denied: 1 of 1, 0 remaining, resets in 3600 s",
    );
    check(
        "10:00     u/r set daily 1000000  -> 0 of 1000000 daily, 1000000 remaining
         10:00     u/r consume 1000000    -> 1000000 of 1000000 daily, 0 remaining",
    );
}

#[test]
fn a_window_is_a_calendar_window_however_late_its_policy_was_made() {
    check(
        "10:55:30  u/r set hourly 1
         10:55:31  u/r consume            -> 1 of 1 hourly, 0 remaining
         10:55:31  u/r consume            -> denied: 1 of 1, 0 remaining, resets in 269 s
         10:59:59.400  u/r consume        -> denied: 1 of 1, 0 remaining, resets in 1 s
         11:00     u/r consume            -> 1 of 1 hourly, 0 remaining
         11:00     u/r consume            -> denied: 1 of 1, 0 remaining, resets in 3600 s",
    );
    check(
        "12:00     u/r set daily 1
         23:59:59  u/r consume            -> 1 of 1 daily, 0 remaining
         23:59:59.999  u/r consume        -> denied: 1 of 1, 0 remaining, resets in 1 s
         24:00     u/r get                -> 0 of 1 daily, 1 remaining
         24:00     u/r consume            -> 1 of 1 daily, 0 remaining
         36:00     u/r consume            -> denied: 1 of 1, 0 remaining, resets in 43200 s",
    );
}

#[test]
fn a_consume_is_granted_whole_or_not_at_all() {
    check(
        "10:00     u/r set hourly 5
         10:00     u/r consume 3          -> 3 of 5 hourly, 2 remaining
         10:30     u/r consume 3          -> denied: 3 of 5, 2 remaining, resets in 1800 s
         10:30     u/r get                -> 3 of 5 hourly, 2 remaining
         10:30     u/r consume 2          -> 5 of 5 hourly, 0 remaining",
    );
}

#[test]
fn what_could_never_be_granted_is_told_apart() {
    check(
        "10:00     u/r consume 6          -> not found
         10:00     u/r set hourly 5
         10:00     u/r consume 6          -> exceeds limit: items [0]
         10:00     u/r rows               ->
         10:00     u/r consume 5          -> 5 of 5 hourly, 0 remaining
         // Exhausted or not, it stays what it is.
         10:00     u/r consume 6          -> exceeds limit: items [0]
         10:00     u/r consume 5          -> denied: 5 of 5, 0 remaining, resets in 3600 s",
    );
}

#[test]
fn pairs_do_not_meet() {
    check(
        "10:00     u/r set hourly 1
         10:00     u/s set hourly 1
         10:00     v/r set hourly 1
         10:00     U/r set hourly 1
         10:00     u/r consume            -> 1 of 1 hourly, 0 remaining
         10:00     u/s get                -> 0 of 1 hourly, 1 remaining
         10:00     v/r get                -> 0 of 1 hourly, 1 remaining
         10:00     U/r get                -> 0 of 1 hourly, 1 remaining",
    );
}

#[test]
fn a_batch_is_counted_whole_and_answered_in_the_order_of_its_items() {
    check(
        "10:00  v/r set hourly 5
         10:00  u/r set daily 9
         10:00  consume v/r 2 u/r 4  -> 2 of 5 hourly, 3 remaining; 4 of 9 daily, 5 remaining
         10:00  consume u/r 1 v/r 1  -> 5 of 9 daily, 4 remaining; 3 of 5 hourly, 2 remaining
         10:00  consume u/r 4 v/r 2  -> 9 of 9 daily, 0 remaining; 5 of 5 hourly, 0 remaining
         10:00  u/r rows             -> 00:00=9
         10:00  v/r rows             -> 10:00=5",
    );
}

#[test]
fn a_batch_with_one_item_that_does_not_fit_counts_nothing() {
    check(
        "10:00  a/r set hourly 5
         10:00  b/r set hourly 5
         10:00  a/r consume 5
         10:00  consume a/r 1 b/r 2  -> denied: 1 not at 5 of 5; 2 fits at 0 of 5
         10:00  consume b/r 2 a/r 1  -> denied: 2 fits at 0 of 5; 1 not at 5 of 5
         10:00  b/r rows             ->
         11:00  consume b/r 2 a/r 1  -> 2 of 5 hourly, 3 remaining; 1 of 5 hourly, 4 remaining",
    );
}

#[test]
fn the_same_pair_twice_in_a_batch_is_summed() {
    check(
        "10:00  u/r set hourly 5
         10:00  v/r set hourly 9
         10:00  consume u/r 1 v/r 1 u/r 2 \
                -> 3 of 5 hourly, 2 remaining; 1 of 9 hourly, 8 remaining; 3 of 5 hourly, 2 remaining
         // Each would fit alone; together they do not, and both are told so.
         10:00  consume u/r 1 v/r 1 u/r 2 -> denied: 1 not at 3 of 5; 1 fits at 1 of 9; 2 not at 3 of 5
         10:00  consume u/r 3 v/r 1 u/r 3 -> exceeds limit: items [0, 2]
         10:00  u/r get                   -> 3 of 5 hourly, 2 remaining
         10:00  v/r get                   -> 1 of 9 hourly, 8 remaining",
    );
}

#[test]
fn a_batch_fails_at_its_first_failing_stage_as_a_whole() {
    check(
        "10:00  u/r set hourly 5
         10:00  v/r set hourly 1
         10:00  v/r consume
         10:00  consume u/r 6 v/r 1 w/r 1 -> not found: w/r of items[2]
         10:00  consume w/r 1 v/r 1 w/r 1 -> not found: w/r of items[0], w/r of items[2]
         10:00  consume v/r 1 u/r 6       -> exceeds limit: items [1]
         10:00  consume v/r 1 u/r 5       -> denied: 1 not at 1 of 1; 5 fits at 0 of 5
         10:00  u/r rows                  ->",
    );
}

#[test]
fn a_rate_limit_call_counts_all_hits_or_none() {
    check(
        "10:00  u/r set hourly 1
         10:00  v/r set daily 6
         10:00  hit u/r 1 v/r 1  -> 1 of 1 hourly, 0 remaining; 1 of 6 daily, 5 remaining
         10:00  hit u/r 1 v/r 1  -> over limit: 1 of 1 hourly, 0 remaining, not allowed; 1 of 6 daily, 5 remaining
         10:00  hit v/r 1 u/r 1  -> over limit: 1 of 6 daily, 5 remaining; 1 of 1 hourly, 0 remaining, not allowed
         10:00  v/r rows         -> 00:00=1
         11:00  hit v/r 5 u/r 1  -> 6 of 6 daily, 0 remaining; 1 of 1 hourly, 0 remaining
         11:00  audit            -> u/r none to hourly 1; v/r none to daily 6",
    );
}

#[test]
fn the_same_pair_in_several_hits_is_summed_at_every_fill() {
    check(
        "10:00  u/r set hourly 5
         10:00  hit u/r 1 u/r 1  -> 2 of 5 hourly, 3 remaining; 2 of 5 hourly, 3 remaining
         10:00  hit u/r 1 u/r 1  -> 4 of 5 hourly, 1 remaining; 4 of 5 hourly, 1 remaining
         10:00  hit u/r 1 u/r 1 \
                -> over limit: 4 of 5 hourly, 1 remaining, not allowed; 4 of 5 hourly, 1 remaining, not allowed
         10:00  hit u/r 1 u/r 0  -> 5 of 5 hourly, 0 remaining; 5 of 5 hourly, 0 remaining
         10:00  hit u/r 1 u/r 1 \
                -> over limit: 5 of 5 hourly, 0 remaining, not allowed; 5 of 5 hourly, 0 remaining, not allowed
         10:00  u/r rows         -> 10:00=5",
    );
}

#[test]
fn a_peek_counts_nothing_and_tells_whether_anything_is_left() {
    check(
        "10:00  u/r set hourly 2
         10:00  hit u/r 0        -> 0 of 2 hourly, 2 remaining
         10:00  u/r rows         ->
         10:00  hit u/r 2        -> 2 of 2 hourly, 0 remaining
         10:00  hit u/r 0        -> over limit: 2 of 2 hourly, 0 remaining, not allowed
         // A peek that fails keeps the rest of the call from being counted.
         10:00  v/r set hourly 2
         10:00  hit v/r 1 u/r 0 \
                -> over limit: 0 of 2 hourly, 2 remaining; 2 of 2 hourly, 0 remaining, not allowed
         10:00  v/r rows         ->",
    );
}

#[test]
fn a_hit_above_what_is_left_is_over_limit_however_large() {
    check(
        "10:00  u/r set hourly 5
         10:00  u/r consume 2
         10:00  hit u/r 4        -> over limit: 2 of 5 hourly, 3 remaining, not allowed
         10:00  hit u/r 6        -> over limit: 2 of 5 hourly, 3 remaining, not allowed
         10:00  hit u/r 1000000 u/r 1000000 \
                -> over limit: 2 of 5 hourly, 3 remaining, not allowed; 2 of 5 hourly, 3 remaining, not allowed
         10:00  hit u/r 3        -> 5 of 5 hourly, 0 remaining
         // After the limit was lowered there is nothing left, and no less.
         10:00  u/r set hourly 4
         10:00  hit u/r 0        -> over limit: 5 of 4 hourly, 0 remaining, not allowed
         10:00  hit u/r 1        -> over limit: 5 of 4 hourly, 0 remaining, not allowed",
    );
}

#[test]
fn a_pair_that_nothing_limits_passes_and_leaves_nothing() {
    check(
        "10:00  hit u/r 1              -> no limit
         10:00  hit u/r 1000000 v/r 0  -> no limit; no limit
         10:00  u/r rows               ->
         10:00  v/r set hourly 1
         10:00  hit u/r 1 v/r 1        -> no limit; 1 of 1 hourly, 0 remaining
         10:00  hit u/r 1 v/r 1        -> over limit: no limit; 1 of 1 hourly, 0 remaining, not allowed
         10:00  default r set daily 3
         10:00  hit u/r 1              -> 1 of 3 daily, 2 remaining, by default
         10:00  u/r delete             -> not found
         10:00  default r delete
         10:00  hit u/r 1              -> no limit
         10:00  u/r rows               -> 00:00=1",
    );
}

#[test]
fn a_refund_takes_from_the_newest_row_first_and_stops_at_0() {
    check(
        "08:00  u/r set hourly 9
         08:00  u/r consume 2
         09:00  u/r consume 3
         09:30  u/r set daily 20
         09:30  u/r consume 1   -> 6 of 20 daily, 14 remaining
         09:30  u/r rows        -> 00:00=1 08:00=2 09:00=3
         09:30  u/r refund 4    -> 2 of 20 daily, 18 remaining
         09:30  u/r rows        -> 00:00=1 08:00=1 09:00=0
         09:30  u/r refund 9    -> 0 of 20 daily, 20 remaining
         09:30  u/r refund 1    -> 0 of 20 daily, 20 remaining
         09:30  u/r rows        -> 00:00=0 08:00=0 09:00=0",
    );
}

#[test]
fn a_refund_reaches_no_other_window() {
    check(
        "10:00  u/r refund 1    -> not found
         10:00  u/r set hourly 5
         10:00  u/r refund 1    -> 0 of 5 hourly, 5 remaining
         10:00  u/r rows        ->
         10:00  u/r consume 3
         11:00  u/r refund 1    -> 0 of 5 hourly, 5 remaining
         11:00  u/r rows        -> 10:00=3
         11:00  u/r consume 5
         11:00  u/r refund 1    -> 4 of 5 hourly, 1 remaining
         11:00  u/r consume     -> 5 of 5 hourly, 0 remaining",
    );
}

#[test]
fn a_reset_zeroes_every_row_of_the_window_and_no_other() {
    check(
        "10:00  u/r reset       -> not found
         09:00  u/r set hourly 9
         09:00  u/r consume 4
         10:00  u/r consume 3
         10:00  u/s set hourly 9
         10:00  u/s consume 2
         10:00  v/r set hourly 9
         10:00  v/r consume 2
         10:10  u/r reset       -> 0 of 9 hourly, 9 remaining
         10:10  u/r reset       -> 0 of 9 hourly, 9 remaining
         10:10  u/r rows        -> 09:00=4 10:00=0
         10:10  u/s get         -> 2 of 9 hourly, 7 remaining
         10:10  v/r get         -> 2 of 9 hourly, 7 remaining
         10:10  u/r consume     -> 1 of 9 hourly, 8 remaining
         10:20  u/r set daily 9 -> 5 of 9 daily, 4 remaining
         10:20  u/r reset       -> 0 of 9 daily, 9 remaining
         10:20  u/r rows        -> 09:00=0 10:00=0",
    );
    check(
        "10:00  u/r set hourly 9
         10:00  u/r reset       -> 0 of 9 hourly, 9 remaining
         10:00  u/r rows        ->",
    );
}

#[test]
fn a_changed_window_counts_what_was_counted_inside_it() {
    check(
        "10:30  u/r set hourly 10
         10:30  u/r consume 3
         10:30  u/r set daily 10   -> 3 of 10 daily, 7 remaining
         10:30  u/r consume        -> 4 of 10 daily, 6 remaining
         10:30  u/r rows           -> 00:00=1 10:00=3
         10:30  u/r set hourly 10  -> 3 of 10 hourly, 7 remaining
         10:30  u/r set daily 10   -> 4 of 10 daily, 6 remaining",
    );
}

#[test]
fn a_limit_lowered_below_the_usage_leaves_nothing_and_owes_nothing() {
    check(
        "10:00  u/r set daily 100
         10:00  u/r consume 40
         10:00  u/r set daily 10  -> 40 of 10 daily, 0 remaining, not allowed
         10:00  u/r get           -> 40 of 10 daily, 0 remaining, not allowed
         10:00  u/r consume       -> denied: 40 of 10, 0 remaining, resets in 50400 s
         10:00  u/r refund 31     -> 9 of 10 daily, 1 remaining
         10:00  u/r consume       -> 10 of 10 daily, 0 remaining",
    );
    check(
        "10:00  u/r set hourly 100
         10:00  u/r consume 2
         10:00  u/r set hourly 2  -> 2 of 2 hourly, 0 remaining, not allowed
         10:00  u/r consume       -> denied: 2 of 2, 0 remaining, resets in 3600 s
         10:00  u/r set hourly 3  -> 2 of 3 hourly, 1 remaining
         10:00  u/r consume       -> 3 of 3 hourly, 0 remaining",
    );
}

#[test]
fn what_was_denied_stays_uncounted_when_the_limit_is_raised() {
    check(
        "10:00  u/r set daily 2
         10:00  u/r consume 2
         10:00  u/r consume      -> denied: 2 of 2, 0 remaining, resets in 50400 s
         10:00  u/r consume      -> denied: 2 of 2, 0 remaining, resets in 50400 s
         10:00  u/r set daily 3  -> 2 of 3 daily, 1 remaining
         10:00  u/r consume      -> 3 of 3 daily, 0 remaining
         10:00  u/r consume      -> denied: 3 of 3, 0 remaining, resets in 50400 s",
    );
}

#[test]
fn saving_a_policy_again_changes_nothing() {
    check(
        "10:00  u/r set daily 5
         10:00  u/r consume 3
         11:00  u/r set daily 5   -> 3 of 5 daily, 2 remaining
         12:00  u/r set daily 5   -> 3 of 5 daily, 2 remaining
         12:00  u/r dates         -> created 10:00, updated 10:00
         13:00  u/r set daily 6   -> 3 of 6 daily, 3 remaining
         13:00  u/r dates         -> created 10:00, updated 13:00
         14:00  u/r set hourly 6  -> 0 of 6 hourly, 6 remaining
         14:00  u/r dates         -> created 10:00, updated 14:00
         15:00  u/r delete        -> deleted
         16:00  u/r set hourly 6
         16:00  u/r dates         -> created 16:00, updated 16:00",
    );
}

#[test]
fn a_deleted_policy_that_is_made_again_is_not_refilled() {
    check(
        "10:00  u/r delete        -> not found
         10:00  u/r set hourly 3
         10:00  u/r consume 2
         10:00  u/r delete        -> deleted
         10:00  u/r delete        -> not found
         10:00  u/r get           -> not found
         10:00  u/r consume       -> not found
         10:00  u/r refund 1      -> not found
         10:00  u/r reset         -> not found
         10:00  u/r rows          -> 10:00=2
         10:00  u/r set hourly 3  -> 2 of 3 hourly, 1 remaining",
    );
}

#[test]
fn a_default_serves_whoever_has_no_policy() {
    check(
        "10:00  default r delete          -> not found
         10:00  default r set hourly 2    -> hourly 2
         10:00  u/r get                   -> 0 of 2 hourly, 2 remaining, by default
         10:00  u/s get                   -> not found
         10:00  u/r consume               -> 1 of 2 hourly, 1 remaining, by default
         10:00  v/r consume 2             -> 2 of 2 hourly, 0 remaining, by default
         10:00  v/r consume               -> denied: 2 of 2, 0 remaining, resets in 3600 s
         10:00  v/r consume 3             -> exceeds limit: items [0]
         // Changing it changes the limit of all it serves, and keeps what they used.
         10:00  default r set daily 3     -> daily 3
         10:00  v/r get                   -> 2 of 3 daily, 1 remaining, by default
         10:00  u/r refund 1              -> 0 of 3 daily, 3 remaining, by default
         10:00  v/r reset                 -> 0 of 3 daily, 3 remaining, by default
         // A policy of one's own goes first.
         10:00  v/r set hourly 7          -> 0 of 7 hourly, 7 remaining
         10:00  v/r consume 5             -> 5 of 7 hourly, 2 remaining
         10:00  v/r delete                -> deleted
         10:00  v/r get                   -> 5 of 3 daily, 0 remaining, not allowed, by default
         10:00  v/r delete                -> not found
         10:00  default r delete          -> deleted
         10:00  v/r get                   -> not found
         10:00  v/r consume               -> not found",
    );
}

#[test]
fn a_batch_may_be_served_by_a_policy_and_a_default() {
    check(
        "10:00  default r set hourly 2
         10:00  u/r set daily 5
         10:00  consume u/r 1 v/r 2 \
                -> 1 of 5 daily, 4 remaining; 2 of 2 hourly, 0 remaining, by default
         10:00  consume u/r 1 v/r 1 -> denied: 1 fits at 1 of 5; 1 not at 2 of 2",
    );
}

#[test]
fn if_match_guards_a_policy_against_unseen_changes() {
    check(
        "10:00  u/r set hourly 5 if-match=*        -> precondition failed
         10:00  u/r set hourly 5 if-match=x        -> precondition failed
         10:00  u/r delete if-match=*              -> not found
         10:00  u/r delete if-match=x              -> not found
         10:00  u/r set hourly 5                   -> 0 of 5 hourly, 5 remaining
         10:00  u/r set hourly 6 if-match=x        -> precondition failed
         10:00  u/r delete if-match=x              -> precondition failed
         10:00  u/r get                            -> 0 of 5 hourly, 5 remaining
         10:00  u/r set hourly 6 if-match=present  -> 0 of 6 hourly, 6 remaining
         10:00  u/r set hourly 7 if-match=*        -> 0 of 7 hourly, 7 remaining
         // Usage is no part of a policy's state.
         10:00  u/r consume                        -> 1 of 7 hourly, 6 remaining
         10:00  u/r delete if-match=present        -> deleted",
    );
    // A pair that only a default serves has no policy that could match.
    check(
        "10:00  default r set hourly 5
         10:00  u/r set hourly 5 if-match=*        -> precondition failed
         10:00  u/r delete if-match=*              -> not found",
    );
}

#[test]
fn a_kept_answer_is_replayed_and_counts_nothing() {
    check(
        "10:00  u/r set hourly 5
         10:00  u/r consume 2 key=a  -> 2 of 5 hourly, 3 remaining
         10:00  u/r consume 2 key=a  -> replayed: 2 of 5 hourly, 3 remaining
         10:00  u/r consume 3        -> 5 of 5 hourly, 0 remaining
         10:00  u/r consume 2 key=a  -> replayed: 2 of 5 hourly, 3 remaining
         10:00  u/r refund 1 key=a   -> 4 of 5 hourly, 1 remaining
         10:00  u/r refund 1 key=a   -> replayed: 4 of 5 hourly, 1 remaining
         10:00  u/r reset key=a      -> 0 of 5 hourly, 5 remaining
         10:00  u/r consume          -> 1 of 5 hourly, 4 remaining
         10:00  u/r reset key=a      -> replayed: 0 of 5 hourly, 5 remaining
         10:00  u/r get              -> 1 of 5 hourly, 4 remaining",
    );
}

#[test]
fn a_kept_answer_outlives_its_window_its_usage_and_its_policy() {
    check(
        "10:00  u/r set hourly 5
         10:00  u/r consume 2 key=a  -> 2 of 5 hourly, 3 remaining
         10:00  u/r reset
         10:00  u/r consume 2 key=a  -> replayed: 2 of 5 hourly, 3 remaining
         11:00  u/r consume 2 key=a  -> replayed: 2 of 5 hourly, 3 remaining
         11:00  u/r set daily 1
         11:00  u/r consume 2 key=a  -> replayed: 2 of 5 hourly, 3 remaining
         33:00  u/r delete
         33:00  u/r consume 2 key=a  -> replayed: 2 of 5 hourly, 3 remaining
         33:00  u/r rows             -> 10:00=0",
    );
}

#[test]
fn the_same_key_with_another_request_is_refused() {
    check(
        "10:00  u/r set hourly 5
         10:00  u/r consume key=a    -> 1 of 5 hourly, 4 remaining
         10:00  u/r consume 2 key=a  -> key reused
         10:00  u/r consume 9 key=a  -> key reused
         // No amount is an amount of 1.
         10:00  u/r consume 1 key=a  -> replayed: 1 of 5 hourly, 4 remaining
         10:00  u/r delete
         10:00  u/r consume 2 key=a  -> key reused",
    );
    check(
        "10:00  u/r set hourly 9
         10:00  v/r set hourly 9
         10:00  consume u/r 1 v/r 2 key=a        -> 1 of 9 hourly, 8 remaining; 2 of 9 hourly, 7 remaining
         10:00  consume v/r 2 u/r 1 key=a        -> key reused
         10:00  consume u/r 1 v/r 3 key=a        -> key reused
         10:00  consume u/r 1 key=a              -> key reused
         10:00  consume u/r 1 v/r 2 u/r 1 key=a  -> key reused
         10:00  consume u/r 1 v/r 2 key=a \
                -> replayed: 1 of 9 hourly, 8 remaining; 2 of 9 hourly, 7 remaining",
    );
}

#[test]
fn a_refusal_is_not_kept() {
    check(
        "10:00  u/r consume 3 key=a  -> not found
         10:00  u/r set hourly 2
         10:00  u/r consume 3 key=a  -> exceeds limit: items [0]
         10:00  u/r set hourly 3
         10:00  u/r consume
         10:00  u/r consume 3 key=a  -> denied: 1 of 3, 2 remaining, resets in 3600 s
         11:00  u/r consume 3 key=a  -> 3 of 3 hourly, 0 remaining
         11:00  u/r consume 3 key=a  -> replayed: 3 of 3 hourly, 0 remaining",
    );
}

#[test]
fn a_key_belongs_to_the_operation_and_the_pair_or_to_the_caller_of_a_batch() {
    check(
        "10:00  u/r set hourly 5
         10:00  u/s set hourly 5
         10:00  v/r set hourly 5
         10:00  u/r consume key=a       -> 1 of 5 hourly, 4 remaining
         10:00  u/s consume 2 key=a     -> 2 of 5 hourly, 3 remaining
         10:00  v/r consume 3 key=a     -> 3 of 5 hourly, 2 remaining
         10:00  u/r consume key=a by=y  -> replayed: 1 of 5 hourly, 4 remaining
         10:00  u/r consume key=b       -> 2 of 5 hourly, 3 remaining
         10:00  consume u/r 1 key=a by=x  -> 3 of 5 hourly, 2 remaining
         10:00  consume u/r 1 key=a by=y  -> 4 of 5 hourly, 1 remaining
         10:00  consume u/r 1 key=a by=x  -> replayed: 3 of 5 hourly, 2 remaining
         10:00  consume u/r 2 key=a by=y  -> key reused",
    );
}

#[test]
fn a_clock_that_steps_back_returns_to_the_earlier_count() {
    check(
        "10:59  u/r set hourly 2
         10:59  u/r consume 2    -> 2 of 2 hourly, 0 remaining
         11:00  u/r consume      -> 1 of 2 hourly, 1 remaining
         10:59  u/r consume      -> denied: 2 of 2, 0 remaining, resets in 60 s
         10:59  u/r get          -> 2 of 2 hourly, 0 remaining, not allowed
         09:30  u/r consume      -> 1 of 2 hourly, 1 remaining
         11:00  u/r consume      -> 2 of 2 hourly, 0 remaining
         11:00  u/r rows         -> 09:00=1 10:00=2 11:00=2",
    );
    check(
        "24:00  u/r set daily 2
         24:00  u/r consume 2    -> 2 of 2 daily, 0 remaining
         23:59  u/r get          -> 0 of 2 daily, 2 remaining
         23:59  u/r set daily 3  -> 0 of 3 daily, 3 remaining
         23:59  u/r consume      -> 1 of 3 daily, 2 remaining
         24:00  u/r get          -> 2 of 3 daily, 1 remaining",
    );
}

#[test]
fn a_stored_limit_above_the_settable_maximum_is_obeyed() {
    check(
        "10:00  u/r stored hourly 1500000
         10:00  u/r get              -> 0 of 1500000 hourly, 1500000 remaining
         10:00  u/r consume 1000000  -> 1000000 of 1500000 hourly, 500000 remaining
         10:00  u/r consume 1000000  -> denied: 1000000 of 1500000, 500000 remaining, resets in 3600 s
         10:00  u/r consume 500000   -> 1500000 of 1500000 hourly, 0 remaining",
    );
    check(
        "10:00  u/r stored daily 1500000
         10:00  consume u/r 1000000 u/r 600000  -> exceeds limit: items [0, 1]
         10:00  consume u/r 1000000 u/r 500000 \
                -> 1500000 of 1500000 daily, 0 remaining; 1500000 of 1500000 daily, 0 remaining",
    );
}

#[test]
fn sums_saturate() {
    let most = i64::MAX;
    check(&format!(
        "10:00  u/r stored daily {most}
         10:00  u/r row 08:00 {most}
         10:00  u/r get        -> {most} of {most} daily, 0 remaining, not allowed
         10:00  u/r consume    -> denied: {most} of {most}, 0 remaining, resets in 50400 s
         10:00  u/r row 09:00 {most}
         10:00  u/r row 10:00 {most}
         10:00  u/r get        -> {all} of {most} daily, 0 remaining, not allowed
         10:00  u/r refund 1   -> {all} of {most} daily, 0 remaining, not allowed
         10:00  u/r reset      -> 0 of {most} daily, {most} remaining
         10:00  u/r consume    -> 1 of {most} daily, {left} remaining",
        all = u64::MAX,
        left = most - 1,
    ));
}

#[test]
fn a_row_that_starts_inside_the_window_counts_wherever_it_starts() {
    check(
        "10:00  u/r set hourly 9
         10:00  u/r row 10:15 4
         10:00  u/r consume 2  -> 6 of 9 hourly, 3 remaining
         10:00  u/r rows       -> 10:00=2 10:15=4
         10:00  u/r refund 5   -> 1 of 9 hourly, 8 remaining
         10:00  u/r rows       -> 10:00=1 10:15=0",
    );
}

#[test]
fn the_audit_remembers_what_somebody_changed() {
    check(
        "10:00     u/r set hourly 5
         10:00     audit                  -> u/r none to hourly 5
         10:01     u/r set daily 5
         10:02     u/r set daily 7
         10:02     audit                  -> u/r hourly 5 to daily 5; u/r daily 5 to daily 7
         10:03     u/r delete
         10:03     audit                  -> u/r daily 7 to none
         10:04     default r set hourly 2
         10:05     default r set daily 2
         10:06     default r delete
         10:06     audit                  -> default r none to hourly 2; \
                                             default r hourly 2 to daily 2; default r daily 2 to none",
    );
}

#[test]
fn the_audit_remembers_resets_and_refunds_also_of_nothing() {
    check(
        "10:00     u/r set hourly 5
         10:00     audit
         10:10     u/r consume 4
         10:20     u/r refund 1
         10:20     u/r refund 9
         10:20     u/r refund 1
         10:20     audit                  -> u/r refund 4 to 3 of 10:00; u/r refund 3 to 0 of 10:00; \
                                             u/r refund 0 to 0 of 10:00
         10:30     u/r consume 4
         10:40     u/r reset
         10:40     u/r reset
         10:40     audit                  -> u/r reset 4 to 0 of 10:00; u/r reset 0 to 0 of 10:00
         // A daily window is the day's, and a default's usage is given back like any other.
         10:50     u/r delete
         10:50     default r set daily 9
         10:50     audit
         10:50     u/r consume 5
         10:50     u/r refund 2 key=a
         10:50     audit                  -> u/r refund 5 to 3 of 00:00",
    );
}

#[test]
fn the_audit_remembers_nothing_of_what_changed_nothing() {
    check(
        "10:00     u/r set hourly 5
         10:00     default s set daily 5
         10:00     audit
         // The same again, units counted, and refusals of each kind.
         10:01     u/r set hourly 5       -> 0 of 5 hourly, 5 remaining
         10:01     default s set daily 5  -> daily 5
         10:01     u/r consume 5          -> 5 of 5 hourly, 0 remaining
         10:01     u/r consume            -> denied: 5 of 5, 0 remaining, resets in 3540 s
         10:01     consume u/s 2 v/s 1    -> 2 of 5 daily, 3 remaining, by default; \
                                             1 of 5 daily, 4 remaining, by default
         10:01     u/r set daily 9 if-match=other  -> precondition failed
         10:01     u/r delete if-match=other       -> precondition failed
         10:01     u/t delete             -> not found
         10:01     u/t reset              -> not found
         10:01     u/t refund 1           -> not found
         10:01     default t delete       -> not found
         10:01     audit                  ->
         // A replay did nothing, and neither did a key that was reused.
         10:02     u/r refund 1 key=a     -> 4 of 5 hourly, 1 remaining
         10:02     audit                  -> u/r refund 5 to 4 of 10:00
         10:02     u/r refund 1 key=a     -> replayed: 4 of 5 hourly, 1 remaining
         10:02     u/r refund 2 key=a     -> key reused
         10:02     audit                  ->",
    );
}
