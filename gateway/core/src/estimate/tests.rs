use proptest::prelude::*;

use super::*;

const IDLE: Outlook = Outlook {
    queued_tokens: 0.0,
    prefill_tokens_per_s: 1000.0,
    overhead_s: 0.0,
    answer_s: 10.0,
    occupancy: 0,
    running_max: None,
    waiting_max: None,
    kv: None,
    cold: 0.0,
    is_full: false,
};

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-6
}

#[test]
fn work_divided_by_rate_is_the_time() {
    assert!(close(Outlook { queued_tokens: 500.0, ..IDLE }.ttft_s(1500.0, 0.0), 2.0));
}

#[test]
fn decoding_neighbours_slow_the_prompt() {
    let busy = Outlook { occupancy: 8, running_max: Some(16), ..IDLE };
    assert!(close(busy.ttft_s(1000.0, 0.0), 1.5));
}

#[test]
fn without_a_free_place_one_waits_for_answers_to_end() {
    let full = Outlook { occupancy: 4, running_max: Some(4), ..IDLE };
    assert!(close(full.place_wait_s(), 2.5));
    assert!(!full.has_room(0.0));
}

#[test]
fn kv_pressure_is_a_price_that_grows_without_a_cliff() {
    let at = |used| Outlook { kv: Some((used, 1000.0)), occupancy: 1, ..IDLE }.kv_wait_s(0.0);
    assert!(at(500.0) < 0.06);
    assert!(at(900.0) < 0.5 && at(900.0) > at(500.0));
    assert!(at(1000.0) < 5.1);
    let step = (900..1000).map(|used| at(f64::from(used + 1)) - at(f64::from(used))).fold(0.0, f64::max);
    assert!(step < 2.6, "{step}");
}

#[test]
fn what_does_not_fit_waits_for_blocks() {
    let nearly = Outlook { kv: Some((900.0, 1000.0)), occupancy: 1, ..IDLE };
    assert!(nearly.has_room(100.0) && !nearly.has_room(101.0));
    assert!(nearly.kv_wait_s(600.0) > nearly.kv_wait_s(100.0) + 4.0);
}

/// A replica that reports 99 % KV with nothing running is tried, not starved.
#[test]
fn a_full_pool_with_nothing_running_costs_nothing() {
    let odd = Outlook { kv: Some((990.0, 1000.0)), ..IDLE };
    assert!(odd.has_room(500.0));
    assert!(close(odd.kv_wait_s(500.0), 0.0));
}

#[test]
fn a_cold_replica_looks_slower_and_a_refusing_one_has_no_room() {
    assert!(close(Outlook { cold: 1.0, ..IDLE }.ttft_s(1000.0, 0.0), 4.0));
    assert!(!Outlook { is_full: true, ..IDLE }.has_room(0.0));
}

proptest! {
    #[test]
    fn more_work_never_looks_sooner(
        queued in 0.0f64..1e6, more in 0.0f64..1e6, uncached in 0.0f64..1e5, kv in 0.0f64..1e5,
        occupancy in 0u32..500, places in 1u32..300, used in 0.0f64..1e5,
    ) {
        let outlook = Outlook {
            queued_tokens: queued, occupancy, running_max: Some(places), kv: Some((used, 1e5)), ..IDLE
        };
        let more_queued = Outlook { queued_tokens: queued + more, ..outlook };
        let more_running = Outlook { occupancy: occupancy + 1, ..outlook };
        let now = outlook.ttft_s(uncached, kv);
        prop_assert!(now.is_finite() && now >= 0.0);
        prop_assert!(more_queued.ttft_s(uncached, kv) >= now);
        prop_assert!(more_running.ttft_s(uncached, kv) >= now);
        prop_assert!(outlook.ttft_s(uncached + more, kv) >= now);
    }
}
