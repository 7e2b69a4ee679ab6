use proptest::prelude::*;

use super::*;

const REFUSED: Outcome = Outcome::Failed { fault: Fault::Refused, retry_after: None };
const UNREACHABLE: Outcome = Outcome::Failed { fault: Fault::Unreachable, retry_after: None };
const ERROR: Outcome = Outcome::Failed { fault: Fault::ServerError, retry_after: None };
const GOOD: Outcome =
    Outcome::Answered(Usage { prompt_tokens: None, cached_tokens: None, answer_tokens: None });

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

fn breaker() -> Breaker {
    Breaker::new(Rules::default())
}

/// One request: asks, and records what came of it. False when it was not let through.
fn send(breaker: &mut Breaker, outcome: Outcome, now: Instant) -> bool {
    let admits = breaker.admits(now);
    if admits {
        let pass = breaker.begin(now);
        breaker.record(outcome, pass, now);
    }
    admits
}

/// U083: 50 answers of 400, 404, 413 and 422 leave it closed.
#[test]
fn what_clients_do_wrong_never_counts() {
    let mut breaker = breaker();
    for _ in 0..50 {
        assert!(send(&mut breaker, Outcome::Neutral, at(0)));
    }
    assert_eq!(breaker.circuit(at(0)), Circuit::Closed);
}

/// U086: where nobody listens, one failure is enough.
#[test]
fn a_refused_connection_opens_it_at_once() {
    let mut breaker = breaker();
    assert!(send(&mut breaker, REFUSED, at(0)));
    assert!(!breaker.admits(at(9)));
    assert_eq!(breaker.fault(), Some(Fault::Refused));
    breaker.probe_succeeded();
    assert!(breaker.admits(at(9)));
}

/// U086: a replica that can't be reached gets none after three failures.
#[test]
fn three_failures_in_a_row_open_it() {
    let mut breaker = breaker();
    for _ in 0..3 {
        assert!(send(&mut breaker, UNREACHABLE, at(0)));
    }
    assert!(!breaker.admits(at(9)));
    assert_eq!(breaker.fault(), Some(Fault::Unreachable));
}

#[test]
fn half_of_many_failing_opens_it_even_with_successes_between() {
    let mut breaker = breaker();
    for _ in 0..10 {
        send(&mut breaker, ERROR, at(0));
        send(&mut breaker, GOOD, at(0));
    }
    assert!(!breaker.admits(at(1)));
}

#[test]
fn a_failure_now_and_then_leaves_it_closed() {
    let mut breaker = breaker();
    for second in 0..200 {
        let outcome = if second % 5 == 0 { ERROR } else { GOOD };
        assert!(send(&mut breaker, outcome, at(second)));
    }
}

/// U086: a replica that always answers 500 gets under 5 % of the traffic.
#[test]
fn recovery_is_tried_by_one_request_and_less_often_each_time() {
    let mut breaker = breaker();
    let sent = (0..600).filter(|&second| send(&mut breaker, ERROR, at(second))).count();
    assert!(sent <= 15, "{sent} of 600");
}

#[test]
fn only_one_probe_is_out_at_a_time() {
    let mut breaker = breaker();
    breaker.trip(Fault::ServerError, at(0));
    assert_eq!(breaker.circuit(at(10)), Circuit::Probing { busy: false });
    let left = breaker.begin(at(10));
    assert!(!breaker.admits(at(10)));
    breaker.record(Outcome::Neutral, left, at(11));
    assert!(breaker.admits(at(11)), "the client left: the next one is the probe");
    let probe = breaker.begin(at(11));
    assert!(!breaker.admits(at(11)));
    breaker.record(GOOD, probe, at(12));
    assert_eq!(breaker.circuit(at(12)), Circuit::Closed);
}

/// U143: `Retry-After: 1`, then a failure without: out until 10 s after the last failure, and nothing in between.
#[test]
fn the_longer_of_retry_after_and_cooldown_counts_from_the_last_failure() {
    let mut breaker = Breaker::new(Rules { failures_max: 1, ..Rules::default() });
    let asked = Outcome::Failed { fault: Fault::ServerError, retry_after: Some(Duration::from_secs(1)) };
    let (first, second) = (breaker.begin(at(0)), breaker.begin(at(0)));
    breaker.record(asked, first, at(0));
    breaker.record(ERROR, second, at(1));
    assert!((1..=10).all(|second| !breaker.admits(at(second))));
    assert!(breaker.admits(at(11)));
}

#[test]
fn a_replica_that_asks_for_a_pause_gets_it_and_is_not_at_fault() {
    let mut breaker = breaker();
    send(&mut breaker, Outcome::Refused { retry_after: Some(Duration::from_secs(2)) }, at(0));
    assert_eq!(breaker.rests_until(at(1)), Some(at(2)));
    assert_eq!(breaker.rests_until(at(2)), None);
    assert_eq!(breaker.circuit(at(1)), Circuit::Closed);
    send(&mut breaker, Outcome::Refused { retry_after: None }, at(3));
    assert_eq!(breaker.rests_until(at(3)), None);
}

/// U053: N failed probes in a row eject, one that works readmits.
#[test]
fn missed_probes_open_it_and_one_success_closes_it() {
    let mut breaker = breaker();
    assert!(!breaker.probe_failed(at(0)));
    assert!(!breaker.probe_failed(at(1)));
    breaker.probe_succeeded();
    assert!(!breaker.probe_failed(at(2)));
    assert!(!breaker.probe_failed(at(3)));
    assert!(breaker.probe_failed(at(4)));
    assert!(!breaker.admits(at(5)));
    breaker.probe_succeeded();
    assert_eq!(breaker.circuit(at(5)), Circuit::Closed);
}

/// A busy replica that misses probes but sends tokens stays in.
#[test]
fn tokens_outweigh_missed_probes() {
    let mut breaker = breaker();
    for second in 0..20 {
        breaker.probe_failed(at(second));
        breaker.lives();
    }
    assert!(breaker.admits(at(20)));
}

#[test]
fn a_probe_does_not_excuse_bad_answers() {
    let mut breaker = breaker();
    for _ in 0..3 {
        send(&mut breaker, ERROR, at(0));
    }
    breaker.probe_succeeded();
    assert!(!breaker.admits(at(1)));
}

#[test]
fn an_answer_that_began_before_it_opened_does_not_close_it() {
    let mut breaker = breaker();
    let early = breaker.begin(at(0));
    breaker.trip(Fault::Stalled, at(1));
    breaker.record(GOOD, early, at(2));
    assert!(!breaker.admits(at(2)));
}

/// With every circuit open the last one is tried all the same; a good answer then is as good as a probe's.
#[test]
fn a_good_answer_in_spite_of_an_open_circuit_closes_it() {
    let mut breaker = breaker();
    breaker.trip(Fault::ServerError, at(0));
    let pass = breaker.begin(at(1));
    breaker.record(GOOD, pass, at(2));
    assert_eq!(breaker.circuit(at(2)), Circuit::Closed);
}

proptest! {
    #[test]
    fn it_always_lets_somebody_through_again(
        ops in prop::collection::vec((0u8..5, 0u64..20), 0..100),
    ) {
        let mut breaker = breaker();
        let mut now = 0;
        for (op, gap) in ops {
            now += gap;
            let outcome = match op {
                0 => GOOD,
                1 => ERROR,
                2 => UNREACHABLE,
                3 => Outcome::Refused { retry_after: Some(Duration::from_hours(1)) },
                _ => Outcome::Neutral,
            };
            send(&mut breaker, outcome, at(now));
            prop_assert!((0.0..=1.0).contains(&breaker.failure_rate(at(now))));
        }
        prop_assert!(breaker.admits(at(now) + Rules::default().cooldown_max));
    }
}
