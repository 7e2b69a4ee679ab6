use proptest::prelude::*;

use super::*;
use crate::fleet::{Event, Readiness, Report, Source};
use crate::health::{Outcome, Rules, Usage};
use crate::load::{Sample, Share};
use crate::replica::Identity;
use crate::route::{Decision, Reason};
use shared::id::ReplicaId;

const DAMPING: Damping = Damping {
    replicas_min: 1,
    replicas_max: 20,
    target: 0.7,
    tolerance: 0.1,
    window: Duration::from_mins(5),
};
const SLO: Slo = Slo { ttft: Duration::from_secs(1), tpot: Duration::from_millis(100) };
const ABILITY: Ability =
    Ability { prefill_tokens_per_s: 4000.0, tpot_s: 0.02, running_max: 32.0, kv_tokens_max: None };
const REQUEST: MeanRequest = MeanRequest { uncached_tokens: 400.0, kv_tokens: 600.0, answer_tokens: 200.0 };

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

#[test]
fn prefill_bounds_long_prompts_and_places_bound_long_answers() {
    let rate = |request| requests_per_s(&ABILITY, &request, SLO);
    let usual = rate(REQUEST);
    assert!(usual > 1.0 && usual <= 10.0, "{usual}");
    assert!(rate(MeanRequest { uncached_tokens: 3000.0, ..REQUEST }) < usual);
    assert!(rate(MeanRequest { answer_tokens: 4000.0, ..REQUEST }) < usual);
}

#[test]
fn a_small_pool_bounds_what_runs_at_once() {
    let small = Ability { kv_tokens_max: Some(1200.0), ..ABILITY };
    assert!(requests_per_s(&small, &REQUEST, SLO) < requests_per_s(&ABILITY, &REQUEST, SLO));
}

#[test]
fn a_replica_that_cannot_meet_the_slo_counts_nothing() {
    let slow = Ability { tpot_s: 0.2, ..ABILITY };
    assert!(requests_per_s(&slow, &REQUEST, SLO) <= 0.0);
    let long = MeanRequest { uncached_tokens: 40_000.0, ..REQUEST };
    assert!(requests_per_s(&ABILITY, &long, SLO) <= 0.0);
}

fn fleet_of(samples: &[Sample]) -> Fleet {
    let mut fleet = Fleet::new(Rules::default());
    for (number, sample) in samples.iter().enumerate() {
        let endpoint = format!("a:{number}");
        fleet.apply(
            Event::Joined { endpoint, source: Source::Config, models: vec![], running_max: None },
            at(0),
        );
        let identity = Identity { models: vec!["m".to_owned()], ..Identity::default() };
        let report = Report { identity, readiness: Readiness::Ready, sample: *sample, at: at(0) };
        fleet.apply(Event::Reported(ReplicaId(number as u32), report), at(0));
    }
    fleet
}

fn sample(running: u32, kv_usage: f64) -> Sample {
    Sample {
        running: Some(running),
        running_max: Some(10),
        kv_usage: Some(kv_usage),
        kv_tokens_max: Some(100_000),
        prefill_tokens_per_s: Some(4000.0),
        ..Sample::default()
    }
}

#[test]
fn load_is_the_fuller_of_places_and_kv_and_what_waits() {
    let fleet = fleet_of(&[sample(5, 0.1), sample(1, 0.8)]);
    let model = fleet.model("m").unwrap();
    assert!((load(&fleet, model, 0, at(0)) - 1.3).abs() < 1e-9);
    assert!((load(&fleet, model, 7, at(0)) - 2.0).abs() < 1e-9);
}

#[test]
fn whoever_waits_for_nobody_wants_a_replica() {
    let mut fleet = fleet_of(&[sample(0, 0.0)]);
    let model = fleet.model("m").unwrap();
    fleet.apply(Event::Remove(ReplicaId(0)), at(1));
    assert!((load(&fleet, model, 1, at(1)) - 1.0).abs() < 1e-9);
}

#[test]
fn what_a_fleet_can_take_is_known_once_answers_were_seen() {
    let mut fleet = fleet_of(&[sample(0, 0.0), sample(0, 0.0)]);
    let model = fleet.model("m").unwrap();
    assert_eq!(fleet_requests_per_s(&fleet, model, SLO, at(0)), None);
    for replica in [ReplicaId(0), ReplicaId(1)] {
        let share = Share { prompt_tokens: 400, kv_tokens: 600 };
        let decision = Decision {
            replica,
            model,
            prompt_bytes: 1600,
            ttft: Duration::ZERO,
            cached_tokens: 0,
            share,
            reason: Reason::Soonest,
        };
        let mut ticket = fleet.begin(&decision, at(0)).unwrap();
        fleet.first_token(&mut ticket, at(0) + Duration::from_millis(100));
        let usage = Usage { answer_tokens: Some(201), ..Usage::default() };
        fleet.end(ticket, Outcome::Answered(usage), at(0) + Duration::from_millis(4100));
    }
    let rate = fleet_requests_per_s(&fleet, model, SLO, at(5)).unwrap();
    assert!(rate > 1.0 && rate < 20.0, "{rate}");
}

#[test]
fn more_load_wants_more_at_once_and_less_load_fewer_only_later() {
    let mut scale = Scale::new(DAMPING, 2);
    assert_eq!(scale.observe(4.1, at(0)), 6);
    for second in (10..300).step_by(10) {
        assert_eq!(scale.observe(0.5, at(second)), 6);
    }
    assert_eq!(scale.observe(0.5, at(300)), 6, "a window with the burst in it");
    assert_eq!((310..700).step_by(10).map(|second| scale.observe(0.5, at(second))).last(), Some(1));
}

#[test]
fn close_to_the_target_nothing_changes() {
    let mut scale = Scale::new(DAMPING, 10);
    for second in 0..1000 {
        let load = if second % 2 == 0 { 7.3 } else { 6.7 };
        assert_eq!(scale.observe(load, at(second)), 10);
    }
}

proptest! {
    /// U126: no more than one change of direction in a window.
    #[test]
    fn it_turns_at_most_once_a_window(loads in prop::collection::vec(0.0f64..16.0, 50..400)) {
        let mut scale = Scale::new(DAMPING, 3);
        let (mut last, mut turns) = (3, Vec::new());
        let mut was_up = None;
        for (step, load) in loads.into_iter().enumerate() {
            let now = at(step as u64 * 15);
            let wanted = scale.observe(load, now);
            prop_assert!((DAMPING.replicas_min..=DAMPING.replicas_max).contains(&wanted));
            if wanted != last {
                let is_up = wanted > last;
                if was_up.replace(is_up).is_some_and(|before| before != is_up) {
                    turns.push(now);
                }
                last = wanted;
            }
        }
        prop_assert!(turns.windows(2).all(|pair| pair[1].since(pair[0]) >= DAMPING.window));
    }
}
