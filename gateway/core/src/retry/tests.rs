use proptest::prelude::*;

use super::*;

const FIRST: History = History { attempts: 1, deaths: 0, refreshed: false };
const LIMITS: Limits = Limits { attempts_max: 3, time_left_min: Duration::from_millis(50) };

fn world(is_other_there: bool) -> World {
    World { now: Instant::ZERO, deadline: Instant::ZERO + Duration::from_mins(1), is_other_there }
}

fn counts(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Failed { .. })
}

/// Failure, then the verdict with another replica there and without, and whether the breaker counts it.
fn check(failure: Failure, with_other: Verdict, alone: Verdict, is_counted: bool) {
    let judge = |is_other_there| judge(failure, FIRST, world(is_other_there), LIMITS, &mut Budget::default());
    assert_eq!(judge(true).verdict, with_other, "{failure:?} with another");
    assert_eq!(judge(false).verdict, alone, "{failure:?} alone");
    assert_eq!(counts(judge(true).outcome), is_counted, "{failure:?} counts");
}

#[test]
fn the_table_of_refusals_holds_row_by_row() {
    use GaveUp::{Cut, ReplicaFailed, TooLate};
    use Verdict::{Continue, Elsewhere, GiveUp, Refresh, Relay, Wait};
    for status in [400, 401, 403, 404, 408, 413, 422] {
        check(Failure::Status(status, None), Relay, Relay, false);
    }
    for status in [429, 503] {
        check(Failure::Status(status, None), Elsewhere, Wait, false);
    }
    for status in [500, 502, 504] {
        check(Failure::Status(status, None), Elsewhere, GiveUp(ReplicaFailed), true);
    }
    check(Failure::Refused, Elsewhere, GiveUp(ReplicaFailed), true);
    check(Failure::Unreachable, Elsewhere, GiveUp(ReplicaFailed), true);
    check(Failure::Stranger, Elsewhere, GiveUp(ReplicaFailed), true);
    check(Failure::Reset { reused: false }, Elsewhere, GiveUp(ReplicaFailed), true);
    check(Failure::Reset { reused: true }, Refresh, Refresh, false);
    check(Failure::FirstByteLate, Elsewhere, GiveUp(TooLate), true);
    check(Failure::Broken, Continue, GiveUp(Cut), true);
}

/// U089: a reused connection that was closed is tried once more on a fresh one, then elsewhere.
#[test]
fn a_fresh_connection_is_tried_once() {
    let again = History { refreshed: true, ..FIRST };
    let judgement =
        judge(Failure::Reset { reused: true }, again, world(true), LIMITS, &mut Budget::default());
    assert_eq!(judgement.verdict, Verdict::Elsewhere);
}

#[test]
fn a_request_that_two_replicas_died_of_is_not_tried_a_third_time() {
    let mut budget = Budget::default();
    let first = judge(Failure::Reset { reused: false }, FIRST, world(true), LIMITS, &mut budget);
    assert!(first.is_death && counts(first.outcome));
    let history = History { attempts: 2, deaths: 1, refreshed: false };
    let second = judge(Failure::Reset { reused: false }, history, world(true), LIMITS, &mut budget);
    assert_eq!(second.verdict, Verdict::GiveUp(GaveUp::Poison));
    assert!(!counts(second.outcome), "only the first counts");
    let second = judge(Failure::Broken, history, world(true), LIMITS, &mut budget);
    assert_eq!(second.verdict, Verdict::GiveUp(GaveUp::Cut));
}

#[test]
fn attempts_and_the_deadline_end_it() {
    let spent = History { attempts: 3, ..FIRST };
    let judgement = judge(Failure::Unreachable, spent, world(true), LIMITS, &mut Budget::default());
    assert_eq!(judgement.verdict, Verdict::GiveUp(GaveUp::ReplicaFailed));
    let late = World { deadline: Instant::ZERO + Duration::from_millis(10), ..world(true) };
    let judgement = judge(Failure::FirstByteLate, FIRST, late, LIMITS, &mut Budget::default());
    assert_eq!(judgement.verdict, Verdict::GiveUp(GaveUp::TooLate));
    let judgement = judge(Failure::Status(503, None), FIRST, late, LIMITS, &mut Budget::default());
    assert_eq!(judgement.verdict, Verdict::Relay);
}

#[test]
fn a_replicas_retry_after_reaches_its_circuit() {
    let wait = Some(Duration::from_secs(7));
    let outcome = |status| {
        judge(Failure::Status(status, wait), FIRST, world(true), LIMITS, &mut Budget::default()).outcome
    };
    assert_eq!(outcome(429), Outcome::Refused { retry_after: wait });
    assert_eq!(outcome(500), Outcome::Failed { fault: Fault::ServerError, retry_after: wait });
}

#[test]
fn without_budget_nothing_is_tried_elsewhere() {
    let mut budget = Budget::new(0.2, 0.0, 1);
    let mut verdict = || judge(Failure::Unreachable, FIRST, world(true), LIMITS, &mut budget).verdict;
    assert_eq!(verdict(), Verdict::Elsewhere);
    assert_eq!(verdict(), Verdict::GiveUp(GaveUp::ReplicaFailed));
}

#[test]
fn a_verdict_that_needs_no_budget_spends_none() {
    let mut budget = Budget::new(0.2, 0.0, 5);
    for failure in [Failure::Status(400, None), Failure::Reset { reused: true }] {
        judge(failure, FIRST, world(true), LIMITS, &mut budget);
    }
    judge(Failure::Unreachable, FIRST, world(false), LIMITS, &mut budget);
    assert_eq!(budget.left(), 5);
}

proptest! {
    /// Law 6: second tries stay within their share of the requests, plus the trickle and the burst.
    #[test]
    fn retries_stay_within_the_budget(gaps_ms in prop::collection::vec(0u64..200, 1..500)) {
        let (mut budget, mut now, mut retries) = (Budget::new(0.2, 1.0, 10), Instant::ZERO, 0.0);
        for (requests, gap) in (1_u32..).zip(gaps_ms) {
            now = now + Duration::from_millis(gap);
            budget.deposit();
            let world = World { now, deadline: now + Duration::from_mins(1), is_other_there: true };
            let verdict = judge(Failure::Unreachable, FIRST, world, LIMITS, &mut budget).verdict;
            retries += f64::from(u8::from(verdict == Verdict::Elsewhere));
            let allowed = 10.0 + 0.2 * f64::from(requests) + now.since(Instant::ZERO).as_secs_f64();
            prop_assert!(retries <= allowed + 1e-6);
        }
    }

    #[test]
    fn nothing_that_reached_the_client_is_sent_again(
        attempts in 1u32..5, deaths in 0u32..3, is_other_there: bool, refreshed: bool,
    ) {
        let history = History { attempts, deaths, refreshed };
        let judgement = judge(Failure::Broken, history, world(is_other_there), LIMITS, &mut Budget::default());
        prop_assert!(matches!(judgement.verdict, Verdict::Continue | Verdict::GiveUp(GaveUp::Cut)));
    }
}
