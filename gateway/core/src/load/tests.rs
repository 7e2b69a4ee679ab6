use proptest::prelude::*;

use super::*;

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

const SHARE: Share = Share { prompt_tokens: 100, kv_tokens: 150 };

fn sample(running: u32, waiting_tokens: u64, kv_usage: f64) -> Sample {
    Sample {
        running: Some(running),
        waiting: Some(0),
        waiting_tokens: Some(waiting_tokens),
        kv_usage: Some(kv_usage),
        kv_tokens_max: Some(1000),
        ..Sample::default()
    }
}

#[test]
fn unknown_is_not_zero() {
    let mut load = Load::default();
    load.begin(0, SHARE, at(0));
    load.report(Sample::default(), at(10));
    assert_eq!(load.occupancy(at(20)), 1);
    assert!((load.queued_tokens(1000.0, 500.0, at(20)) - 100.0).abs() < 1e-9);
    assert_eq!(load.kv_tokens(at(20)), None);
}

#[test]
fn a_report_adds_what_others_sent_and_we_add_what_came_since() {
    let mut load = Load::default();
    load.begin(0, SHARE, at(0));
    load.report(sample(5, 300, 0.5), at(10));
    load.begin(1, SHARE, at(20));
    assert_eq!(load.occupancy(at(20)), 6);
    assert_eq!(load.kv_tokens(at(20)), Some((650.0, 1000.0)));
    load.end(0, at(30));
    assert_eq!(load.occupancy(at(30)), 5);
    assert_eq!(load.kv_tokens(at(30)), Some((500.0, 1000.0)));
}

#[test]
fn reported_work_melts_at_the_prefill_rate() {
    let mut load = Load::default();
    load.report(sample(1, 1000, 0.0), at(0));
    assert!((load.queued_tokens(1000.0, 500.0, at(400)) - 600.0).abs() < 1e-6);
    assert!(load.queued_tokens(1000.0, 500.0, at(1500)).abs() < 1e-6);
}

#[test]
fn a_stale_report_is_not_busy() {
    let mut load = Load::default();
    load.report(sample(50, 100_000, 0.9), at(0));
    let later = at(0) + FRESH + Duration::from_millis(1);
    assert_eq!(load.occupancy(later), 0);
    assert!(load.queued_tokens(1.0, 500.0, later).abs() < 1e-9);
}

#[test]
fn an_end_while_the_report_was_on_its_way_is_not_counted_as_running() {
    let mut load = Load::default();
    load.begin(0, SHARE, at(0));
    load.end(0, at(11));
    load.report(sample(1, 0, 0.15), at(10));
    assert_eq!(load.occupancy(at(12)), 0);
}

#[test]
fn an_older_report_is_ignored() {
    let mut load = Load::default();
    load.report(sample(1, 0, 0.0), at(10));
    load.report(sample(9, 0, 0.0), at(5));
    assert_eq!(load.occupancy(at(10)), 1);
}

#[test]
fn where_only_a_number_waits_each_is_taken_for_a_usual_one() {
    let mut load = Load::default();
    let counted = Sample { waiting: Some(3), waiting_tokens: None, ..sample(1, 0, 0.0) };
    load.report(counted, at(0));
    assert!((load.queued_tokens(1000.0, 500.0, at(0)) - 1500.0).abs() < 1e-6);
}

#[test]
fn a_share_of_a_pool_of_unknown_size_still_counts() {
    let mut load = Load::default();
    load.report(Sample { kv_tokens_max: None, ..sample(1, 0, 0.5) }, at(0));
    let (used, pool) = load.kv_tokens(at(0)).unwrap();
    assert!((used / pool - 0.5).abs() < 1e-9);
    load.report(Sample { kv_usage: None, ..sample(1, 0, 0.0) }, at(1));
    assert_eq!(load.kv_tokens(at(1)), Some((0.0, 1000.0)));
}

proptest! {
    /// Law 3 in small: whatever happens in whatever order, what was counted is taken back.
    #[test]
    fn counts_return_to_zero(ops in prop::collection::vec((0u8..4, 0u64..8, 0u32..500), 1..200)) {
        let mut load = Load::default();
        let (mut serial, mut now) = (0, 0);
        for (op, pick, tokens) in ops {
            now += pick;
            let share = Share { prompt_tokens: tokens, kv_tokens: tokens + 10 };
            match op {
                0 => {
                    load.begin(serial, share, at(now));
                    serial += 1;
                }
                1 => load.first_token(serial.saturating_sub(pick)),
                2 => load.end(serial.saturating_sub(pick), at(now)),
                _ => load.report(sample(tokens, 5, 0.5), at(now.saturating_sub(pick * 3))),
            }
            load.check_invariants();
        }
        for serial in 0..=serial {
            load.end(serial, at(now));
        }
        load.check_invariants();
        prop_assert_eq!((load.requests(), load.decoding(), load.prompt_tokens()), (0, 0, 0));
    }
}
