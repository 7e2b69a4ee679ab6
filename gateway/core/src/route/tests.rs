use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::*;
use crate::fleet::{Event, Readiness, Report, Source};
use crate::health::{Fault, Outcome, Rules, Usage};
use crate::load::{Sample, Ticket};
use crate::prefix_index::{Matches, PrefixIndex, Settlement};
use crate::replica::{Engine, Identity, WARMING};

/// Replicas are ready, warmed up and known by fresh reports from here on.
const START: Instant = Instant(100_000_000_000);

fn fleet_of(samples: &[Sample]) -> Fleet {
    let mut fleet = Fleet::new(Rules::default());
    for number in 0..samples.len() {
        let endpoint = format!("127.0.0.1:{number}");
        fleet.apply(
            Event::Joined { endpoint, source: Source::Config, models: vec![], running_max: None },
            START,
        );
    }
    for (number, sample) in samples.iter().enumerate() {
        // What it said of its warm-up was another rate than that of its work.
        let warm_up =
            Sample { prefill_tokens_per_s: sample.prefill_tokens_per_s.map(|rate| rate / 2.0), ..*sample };
        for (sample, at) in [(warm_up, START - WARMING), (*sample, START)] {
            report(&mut fleet, ReplicaId(number as u32), sample, at);
        }
    }
    fleet
}

fn report(fleet: &mut Fleet, id: ReplicaId, sample: Sample, at: Instant) {
    let identity = Identity {
        instance: format!("instance-{}", id.0),
        engine: Engine::Flotilla,
        models: vec!["m".to_owned()],
        ..Identity::default()
    };
    fleet.apply(Event::Reported(id, Report { identity, readiness: Readiness::Ready, sample, at }), at);
}

fn rated(rate: f64) -> Sample {
    Sample {
        running: Some(0),
        waiting: Some(0),
        waiting_tokens: Some(0),
        prefill_tokens_per_s: Some(rate),
        ..Sample::default()
    }
}

fn demand(tokens: u32) -> Demand<'static> {
    Demand {
        model: ModelKey(0),
        prompt_bytes: tokens * 4,
        answer_tokens_max: Some(100),
        is_batch: false,
        session: None,
        tried: &[],
    }
}

fn rng() -> SmallRng {
    SmallRng::seed_from_u64(7)
}

/// Prompt tokens, then (rate, tokens queued, pieces held) of each replica, then who wins.
fn check(tokens: u32, replicas: &[(f64, u64, u32)], winner: u32) {
    let samples: Vec<_> = replicas
        .iter()
        .map(|&(rate, queued, _)| Sample { waiting_tokens: Some(queued), ..rated(rate) })
        .collect();
    let matched = |id: ReplicaId| replicas[id.0 as usize].2;
    let decision = Router::default().choose(&demand(tokens), &fleet_of(&samples), matched, START, &mut rng());
    assert_eq!(decision.unwrap().replica, ReplicaId(winner));
}

#[test]
fn a_long_prefix_beats_a_short_queue() {
    check(900, &[(900.0, 0, 0), (900.0, 300, 6)], 1);
}

#[test]
fn a_long_queue_beats_a_long_prefix() {
    check(900, &[(900.0, 0, 0), (900.0, 2000, 6)], 0);
}

#[test]
fn a_faster_replica_gets_more_of_the_work() {
    check(1000, &[(1000.0, 1000, 0), (8000.0, 6000, 0)], 1);
    check(1000, &[(1000.0, 0, 0), (8000.0, 9000, 0)], 0);
}

/// One that warmed up beside others looks slow for a while only: else the one that began in a quiet moment gets all.
#[test]
fn a_slow_warm_up_is_forgiven() {
    let mut fleet = fleet_of(&[rated(300.0)]);
    let endpoint = "127.0.0.1:1".to_owned();
    fleet.apply(Event::Joined { endpoint, source: Source::Config, models: vec![], running_max: None }, START);
    report(&mut fleet, ReplicaId(1), rated(100.0), START - WARMING);
    let later = START + Duration::from_mins(1);
    let mut choose = |at: Instant| {
        for (id, rate, waiting) in [(0, 300.0, 300), (1, 100.0, 0)] {
            report(&mut fleet, ReplicaId(id), Sample { waiting_tokens: Some(waiting), ..rated(rate) }, at);
        }
        Router::default().choose(&demand(400), &fleet, |_| 0, at, &mut rng()).unwrap().replica
    };
    assert_eq!((choose(START), choose(later)), (ReplicaId(0), ReplicaId(1)));
}

#[test]
fn a_miss_goes_to_the_least_load_not_to_the_smallest_cache() {
    check(100, &[(900.0, 5000, 0), (900.0, 0, 0)], 1);
}

#[test]
fn nobody_there_nobody_left_and_nobody_free_are_told_apart() {
    let mut router = Router::default();
    let mut choose = |fleet: &Fleet, demand| {
        router.choose(&demand, fleet, |_| 0, START, &mut rng()).map(|decision| decision.replica)
    };
    let full = Sample { running: Some(2), running_max: Some(2), ..rated(1000.0) };
    assert_eq!(choose(&fleet_of(&[]), demand(1)), Err(Refusal::NoReplica));
    assert_eq!(choose(&fleet_of(&[full]), demand(1)), Err(Refusal::Saturated));
    let fleet = fleet_of(&[rated(1000.0)]);
    assert_eq!(choose(&fleet, Demand { tried: &[ReplicaId(0)], ..demand(1) }), Err(Refusal::AllTried));
    assert_eq!(choose(&fleet, Demand { model: ModelKey(9), ..demand(1) }), Err(Refusal::NoReplica));
}

/// A replica that asked for a pause is full, not broken: one waits for it instead of trying it blindly.
#[test]
fn a_replica_at_rest_is_waited_for() {
    let mut fleet = fleet_of(&[rated(1000.0)]);
    let (mut router, mut rng) = (Router::default(), rng());
    let ticket = send(&mut router, &mut fleet, &demand(10), &mut rng).unwrap();
    fleet.end(ticket, Outcome::Refused { retry_after: Some(Duration::from_secs(2)) }, START);
    let mut choose =
        |now| router.choose(&demand(10), &fleet, |_| 0, now, &mut rng).map(|decision| decision.reason);
    assert_eq!(choose(START), Err(Refusal::Saturated));
    assert_eq!(choose(START + Duration::from_secs(2)), Ok(Reason::Soonest));
}

#[test]
fn a_long_prompt_goes_where_the_context_is_long_enough() {
    let short = Sample { context_tokens_max: Some(1000), ..rated(9000.0) };
    let long = Sample { context_tokens_max: Some(8000), ..rated(1000.0) };
    let winner = |samples: &[Sample]| {
        Router::default().choose(&demand(2000), &fleet_of(samples), |_| 0, START, &mut rng()).unwrap().replica
    };
    assert_eq!(winner(&[short, long]), ReplicaId(1));
    assert_eq!(winner(&[short]), ReplicaId(0), "it says itself that this is too long");
}

fn send(router: &mut Router, fleet: &mut Fleet, demand: &Demand<'_>, rng: &mut SmallRng) -> Option<Ticket> {
    let decision = router.choose(demand, fleet, |_| 0, START, rng).ok()?;
    fleet.begin(&decision, START)
}

fn requests(fleet: &Fleet) -> Vec<u32> {
    fleet.replicas().iter().map(|replica| replica.load().requests()).collect()
}

/// Sends prompts with a prefix held by replica 0 (if `is_warm`), 95 of 100 sharing it; returns requests a replica.
fn burst(count: u64, sample: Sample, is_warm: bool) -> Vec<u32> {
    let (mut fleet, mut router, mut rng) = (fleet_of(&[sample; 4]), Router::default(), rng());
    let (mut index, mut matches) = (PrefixIndex::new(100_000), Matches::default());
    let shared: Vec<u128> = (1..=16).collect();
    if is_warm {
        index.guess(ReplicaId(0), &shared);
        index.settle(ReplicaId(0), &shared, Settlement { is_computed: true, predicted: 0, reported: None });
    }
    for request in 0..u128::from(count) {
        let own = (request + 1) << 32;
        let pieces: Vec<u128> = if request % 20 == 19 {
            (own..own + 17).collect()
        } else {
            shared.iter().copied().chain([own]).collect()
        };
        index.lookup(&pieces, &mut matches);
        let matched = |id| index.trusted(&matches, id);
        let decision = router.choose(&demand(2100), &fleet, matched, START, &mut rng).unwrap();
        let _ticket = fleet.begin(&decision, START).unwrap();
        index.guess(decision.replica, &pieces);
    }
    fleet.check_invariants();
    requests(&fleet)
}

/// U074: 64 at once over four equal replicas spread, also when one of them holds the prefix they share.
#[test]
fn a_burst_with_a_shared_prefix_spreads() {
    for (sample, is_warm) in
        [(rated(2000.0), false), (Sample { running_max: Some(20), ..rated(2000.0) }, true)]
    {
        let spread = burst(64, sample, is_warm);
        let most = spread.iter().max().copied().unwrap();
        assert!(f64::from(most) <= 1.5 * 16.0, "warm {is_warm}: {spread:?}");
    }
}

/// A hit costs 52 tokens here and a miss 2,100: some 40 hits wait as long as one miss.
#[test]
fn a_hot_prefix_spreads_once_waiting_costs_more_than_computing_it_again() {
    let spread = burst(64, rated(2000.0), true);
    assert!(spread[0] <= 41, "{spread:?}");
    assert!(spread[1..].iter().sum::<u32>() > 64 - 42, "{spread:?}");
}

/// U074 with four places each: nobody idles while another queues.
#[test]
fn nobody_idles_while_another_queues() {
    let spread = burst(16, Sample { running_max: Some(4), ..rated(2000.0) }, true);
    assert_eq!(spread, vec![4; 4]);
}

#[test]
fn a_hot_prefix_stays_where_it_is_while_that_is_sooner() {
    let spread = burst(8, rated(2000.0), true);
    assert!(spread[0] >= 6, "{spread:?}");
}

/// Requests that all hold no prefix but of replica 0, which runs as many as it can.
fn beside_a_full_home(waiting_max: u32, kv_usage: f64) -> u32 {
    let home = Sample {
        running: Some(4),
        running_max: Some(4),
        waiting_max: Some(waiting_max),
        kv_usage: Some(kv_usage),
        kv_tokens_max: Some(10_000),
        ..rated(1000.0)
    };
    let other = Sample { running: Some(1), kv_usage: Some(0.1), ..home };
    let mut fleet = fleet_of(&[home, other]);
    // Answers there end at once, so a place comes free soon.
    for _ in 0..8 {
        let decision = Router::default().choose(
            &Demand { tried: &[ReplicaId(1)], ..demand(10) },
            &fleet,
            |_| 0,
            START,
            &mut rng(),
        );
        let Ok(decision) = decision else { break };
        let ticket = fleet.begin(&decision, START).unwrap();
        fleet.end(ticket, Outcome::Answered(Usage::default()), START + Duration::from_millis(1));
    }
    let matched = |id| if id == ReplicaId(0) { 31 } else { 0 };
    Router::default().choose(&demand(4000), &fleet, matched, START, &mut rng()).unwrap().replica.0
}

#[test]
fn a_short_line_where_the_prefix_is_beats_computing_it_elsewhere() {
    assert_eq!(beside_a_full_home(8, 0.3), 0);
}

#[test]
fn nobody_lines_up_where_no_line_is_kept_or_for_blocks() {
    assert_eq!(beside_a_full_home(0, 0.3), 1);
    assert_eq!(beside_a_full_home(8, 0.99), 1);
}

/// While many wait everywhere, a second of prefill delays them all: what is cached weighs more than a short queue.
#[test]
fn a_busy_fleet_computes_no_prefix_anew_to_spare_one_request_a_little() {
    let choose = |waiting: u32| {
        let mut fleet = fleet_of(&[rated(1000.0); 2]);
        let mut router = Router::new(Policy::RoundRobin);
        for _ in 0..2 * waiting {
            let _ticket = send(&mut router, &mut fleet, &demand(10), &mut rng()).unwrap();
        }
        for _ in 0..10 {
            // Only replica 0 is left to it.
            let only_first = Demand { tried: &[ReplicaId(1)], ..demand(120) };
            let _ticket = send(&mut router, &mut fleet, &only_first, &mut rng()).unwrap();
        }
        let matched = |id| if id == ReplicaId(0) { 7 } else { 0 };
        Router::default().choose(&demand(1000), &fleet, matched, START, &mut rng()).unwrap().replica.0
    };
    assert_eq!(choose(0), 1);
    assert_eq!(choose(4), 0);
}

#[test]
fn equals_are_drawn_by_lot() {
    let mut winners = std::collections::BTreeSet::new();
    let (fleet, mut router, mut rng) = (fleet_of(&[rated(1000.0); 4]), Router::default(), rng());
    for _ in 0..64 {
        winners.insert(router.choose(&demand(10), &fleet, |_| 0, START, &mut rng).unwrap().replica);
    }
    assert_eq!(winners.len(), 4);
}

/// U080: what failed this request is left out, whatever it has cached.
#[test]
fn a_replica_that_failed_the_request_is_not_tried_again() {
    let fleet = fleet_of(&[rated(1000.0); 2]);
    let demand = Demand { tried: &[ReplicaId(0)], ..demand(1000) };
    let matched = |id| if id == ReplicaId(0) { 7 } else { 0 };
    for _ in 0..20 {
        let decision = Router::default().choose(&demand, &fleet, matched, START, &mut rng()).unwrap();
        assert_eq!(decision.replica, ReplicaId(1));
    }
}

/// U087: with every circuit open the last one is still tried.
#[test]
fn the_last_one_is_never_ejected_blindly() {
    let mut fleet = fleet_of(&[rated(1000.0)]);
    let (mut router, mut rng) = (Router::default(), rng());
    for _ in 0..3 {
        let ticket = send(&mut router, &mut fleet, &demand(10), &mut rng).unwrap();
        fleet.end(ticket, Outcome::Failed { fault: Fault::ServerError, retry_after: None }, START);
    }
    let decision = router.choose(&demand(10), &fleet, |_| 0, START, &mut rng).unwrap();
    assert_eq!(decision.reason, Reason::Panic);
}

/// U086: an open circuit gets nothing while another replica is there; later one request probes it.
#[test]
fn an_open_circuit_gets_nothing_but_a_probe() {
    let mut fleet = fleet_of(&[rated(100_000.0), rated(1000.0)]);
    let (mut router, mut rng) = (Router::default(), rng());
    for _ in 0..3 {
        let ticket = send(&mut router, &mut fleet, &demand(1000), &mut rng).unwrap();
        assert_eq!(ticket.replica(), ReplicaId(0));
        fleet.end(ticket, Outcome::Failed { fault: Fault::ServerError, retry_after: None }, START);
    }
    let at = |seconds| START + Duration::from_secs(seconds);
    let mut choose = |fleet: &Fleet, now| router.choose(&demand(1000), fleet, |_| 0, now, &mut rng).unwrap();
    assert_eq!(choose(&fleet, at(1)).replica, ReplicaId(1));
    let probe = choose(&fleet, at(11));
    assert_eq!((probe.replica, probe.reason), (ReplicaId(0), Reason::Probe));
    let ticket = fleet.begin(&probe, at(11)).unwrap();
    assert_eq!(choose(&fleet, at(11)).replica, ReplicaId(1), "one probe at a time");
    fleet.end(ticket, Outcome::Answered(Usage::default()), at(12));
    assert_eq!(choose(&fleet, at(12)).reason, Reason::Soonest);
}

#[test]
fn a_request_that_failed_once_is_not_gambled_with() {
    let mut fleet = fleet_of(&[rated(100_000.0), rated(1000.0), rated(1000.0)]);
    let (mut router, mut rng) = (Router::default(), rng());
    for _ in 0..3 {
        let ticket = send(&mut router, &mut fleet, &demand(1000), &mut rng).unwrap();
        fleet.end(ticket, Outcome::Failed { fault: Fault::ServerError, retry_after: None }, START);
    }
    let later = START + Duration::from_secs(11);
    let mut choose = |tried: &[ReplicaId]| {
        let demand = Demand { tried, ..demand(1000) };
        let decision = router.choose(&demand, &fleet, |_| 0, later, &mut rng).unwrap();
        (decision.replica.0, decision.reason)
    };
    assert_eq!(choose(&[ReplicaId(1)]), (2, Reason::Soonest));
    assert_eq!(choose(&[ReplicaId(1), ReplicaId(2)]), (0, Reason::Probe), "there is no choice");
}

#[test]
fn a_session_comes_home_unless_home_is_much_slower() {
    let fleet = fleet_of(&[rated(1000.0); 4]);
    let mut router = Router::default();
    let with_session = Demand { session: Some(42), ..demand(100) };
    let mut home = || router.choose(&with_session, &fleet, |_| 0, START, &mut rng()).unwrap();
    let first = home();
    assert_eq!(first.reason, Reason::Session);
    assert!((0..20).all(|_| home().replica == first.replica));
    let mut samples = [rated(1000.0); 4];
    samples[first.replica.0 as usize].waiting_tokens = Some(10_000);
    let decision = router.choose(&with_session, &fleet_of(&samples), |_| 0, START, &mut rng()).unwrap();
    assert_ne!(decision.replica, first.replica);
}

#[test]
fn batch_work_fills_idle_capacity_only() {
    let batch = Demand { is_batch: true, ..demand(100) };
    let choose = |running| {
        let sample = Sample { running: Some(running), running_max: Some(8), ..rated(1000.0) };
        Router::default().choose(&batch, &fleet_of(&[sample]), |_| 0, START, &mut rng()).is_ok()
    };
    assert!(choose(3));
    assert!(!choose(4));
}

#[test]
fn each_policy_follows_its_own_order_and_can_be_switched() {
    let busy =
        Sample { running: Some(3), kv_usage: Some(0.1), kv_tokens_max: Some(100_000), ..rated(9000.0) };
    let full = Sample { running: Some(1), kv_usage: Some(0.8), kv_tokens_max: Some(100_000), ..rated(500.0) };
    let fleet = fleet_of(&[busy, full]);
    let mut router = Router::new(Policy::RoundRobin);
    let winner = |router: &mut Router, policy| {
        router.set_policy(Some(ModelKey(0)), policy);
        assert_eq!(router.policy(ModelKey(0)), policy);
        let matched = |id| if id == ReplicaId(1) { 3 } else { 0 };
        router.choose(&demand(2000), &fleet, matched, START, &mut rng()).unwrap().replica.0
    };
    assert_eq!(winner(&mut router, Policy::LeastRequests), 1);
    assert_eq!(winner(&mut router, Policy::LeastKv), 0);
    assert_eq!(winner(&mut router, Policy::PrefixAffinity), 1);
    assert_eq!(winner(&mut router, Policy::ExpectedTtft), 0);
    assert_eq!(winner(&mut router, Policy::RoundRobin), 1);
    assert_eq!(winner(&mut router, Policy::RoundRobin), 0);
}

#[test]
fn an_unknown_kv_usage_is_not_an_empty_pool() {
    let unknown = Sample { running: Some(6), running_max: Some(8), ..rated(1000.0) };
    let known = Sample { kv_usage: Some(0.5), kv_tokens_max: Some(100_000), ..unknown };
    let mut router = Router::new(Policy::LeastKv);
    let decision = router.choose(&demand(10), &fleet_of(&[unknown, known]), |_| 0, START, &mut rng());
    assert_eq!(decision.unwrap().replica, ReplicaId(1));
}

proptest! {
    #[test]
    fn whoever_wins_may_have_it(
        samples in prop::collection::vec((0u32..5, 0u64..5000, 0.0f64..1.0, 1.0f64..10_000.0), 1..12),
        tried in prop::collection::vec(0u32..12, 0..4), tokens in 1u32..5000, seed: u64, policy in 0usize..5,
    ) {
        let samples: Vec<_> = samples.into_iter().map(|(running, waiting, usage, rate)| Sample {
            running: Some(running), running_max: Some(4), waiting_tokens: Some(waiting), kv_usage: Some(usage),
            kv_tokens_max: Some(10_000), ..rated(rate)
        }).collect();
        let tried: Vec<_> = tried.into_iter().map(ReplicaId).collect();
        let policy = [
            Policy::RoundRobin, Policy::LeastRequests, Policy::LeastKv, Policy::PrefixAffinity, Policy::ExpectedTtft,
        ][policy];
        let mut rng = SmallRng::seed_from_u64(seed);
        let demand = Demand { tried: &tried, ..demand(tokens) };
        let fleet = fleet_of(&samples);
        match Router::new(policy).choose(&demand, &fleet, |id| id.0, START, &mut rng) {
            Ok(decision) => {
                prop_assert!(!tried.contains(&decision.replica));
                prop_assert!(samples[decision.replica.0 as usize].running < Some(4));
                prop_assert!(decision.cached_tokens < tokens);
                prop_assert_eq!(decision.cached_tokens + decision.share.prompt_tokens, tokens);
            }
            Err(refusal) => prop_assert_ne!(refusal, Refusal::NoReplica),
        }
    }
}
