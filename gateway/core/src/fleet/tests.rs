use proptest::prelude::*;

use super::*;
use crate::load::{Sample, Share};
use crate::replica::{Engine, Identity};
use crate::route::Reason;

const ID: ReplicaId = ReplicaId(0);
const GOOD: Outcome =
    Outcome::Answered(Usage { prompt_tokens: None, cached_tokens: None, answer_tokens: None });

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

fn joined(endpoint: &str, source: Source) -> Event {
    Event::Joined { endpoint: endpoint.to_owned(), source, models: vec![], running_max: None }
}

fn left(endpoint: &str, source: Source) -> Event {
    Event::Left { endpoint: endpoint.to_owned(), source }
}

fn reported(instance: &str, model: &str, readiness: Readiness, now: Instant) -> Event {
    let identity = Identity {
        instance: instance.to_owned(),
        engine: Engine::Flotilla,
        models: vec![model.to_owned()],
        ..Identity::default()
    };
    Event::Reported(ID, Report { identity, readiness, sample: Sample::default(), at: now })
}

fn ready(now: Instant) -> Event {
    reported("i", "m", Readiness::Ready, now)
}

fn fleet() -> Fleet {
    let mut fleet = Fleet::new(Rules::default());
    fleet.apply(joined("a:1", Source::Config), at(0));
    fleet.apply(ready(at(0)), at(0));
    fleet.apply(ready(at(20)), at(20));
    fleet
}

fn decision(tokens: u32) -> Decision {
    Decision {
        replica: ID,
        model: ModelKey(0),
        prompt_bytes: tokens * 3,
        ttft: Duration::ZERO,
        cached_tokens: 0,
        share: Share { prompt_tokens: tokens, kv_tokens: tokens + 50 },
        reason: Reason::Soonest,
    }
}

fn state(fleet: &Fleet) -> State {
    fleet.get(ID).expect("it is there").state().0
}

/// U104: nothing is sent there before it said it is ready; then it is eased in.
#[test]
fn a_replica_joins_warms_up_and_is_ready() {
    let mut fleet = Fleet::new(Rules::default());
    assert_eq!(fleet.apply(joined("a:1", Source::Config), at(0)), vec![Change::Added(ID)]);
    fleet.apply(reported("i", "m", Readiness::Loading, at(1)), at(1));
    assert_eq!((state(&fleet), fleet.is_ready()), (State::Joining, false));
    fleet.apply(ready(at(2)), at(2));
    assert_eq!((state(&fleet), fleet.is_ready()), (State::Warming(at(2)), true));
    fleet.apply(ready(at(5)), at(5));
    assert_eq!(state(&fleet), State::Warming(at(2)));
    fleet.apply(ready(at(12)), at(12));
    assert_eq!(state(&fleet), State::Ready);
}

#[test]
fn an_endpoint_stays_as_long_as_one_source_names_it() {
    let mut fleet = fleet();
    fleet.apply(joined("a:1", Source::Redis), at(21));
    fleet.apply(left("a:1", Source::Config), at(22));
    assert_eq!(state(&fleet), State::Ready);
    assert!(fleet.apply(left("a:1", Source::Redis), at(23)).contains(&Change::Gone(ID)));
    assert!(fleet.replicas().is_empty());
}

#[test]
fn one_that_left_finishes_what_it_has() {
    let mut fleet = fleet();
    let ticket = fleet.begin(&decision(10), at(21)).unwrap();
    fleet.apply(left("a:1", Source::Config), at(22));
    assert_eq!(state(&fleet), State::Draining);
    fleet.apply(ready(at(23)), at(23));
    assert_eq!(state(&fleet), State::Draining);
    assert_eq!(fleet.end(ticket, GOOD, at(24)), vec![Change::Gone(ID)]);
}

#[test]
fn numbers_are_never_used_again() {
    let mut fleet = fleet();
    fleet.apply(Event::Remove(ID), at(21));
    fleet.apply(joined("a:1", Source::Config), at(22));
    assert_eq!(fleet.at("a:1").map(Replica::id), Some(ReplicaId(1)));
}

#[test]
fn an_operator_drains_and_takes_it_back() {
    let mut fleet = fleet();
    fleet.apply(Event::Drain(ID), at(21));
    fleet.apply(ready(at(22)), at(22));
    assert_eq!((state(&fleet), fleet.is_ready()), (State::Draining, false));
    fleet.apply(Event::Undrain(ID), at(23));
    fleet.apply(ready(at(24)), at(24));
    assert!(fleet.is_ready());
}

#[test]
fn a_replica_that_drains_itself_gets_nothing_new() {
    let mut fleet = fleet();
    fleet.apply(reported("i", "m", Readiness::Draining, at(21)), at(21));
    assert_eq!((state(&fleet), fleet.is_ready()), (State::Draining, false));
}

/// A restarted replica holds nothing of what the old one held; tickets of the old one change nothing.
#[test]
fn a_new_instance_starts_from_nothing() {
    let mut fleet = fleet();
    let ticket = fleet.begin(&decision(10), at(21)).unwrap();
    let changes = fleet.apply(reported("j", "m", Readiness::Ready, at(22)), at(22));
    assert!(changes.contains(&Change::Instance(ID)));
    assert_eq!(fleet.get(ID).unwrap().load().requests(), 0);
    fleet.begin(&decision(10), at(23)).map(|new| {
        fleet.end(ticket, Outcome::Failed { fault: Fault::Broken, retry_after: None }, at(24));
        assert_eq!(fleet.get(ID).unwrap().load().requests(), 1);
        fleet.end(new, GOOD, at(25))
    });
    fleet.check_invariants();
}

/// U103: somebody else on a recycled address, by model or by identity, never gets traffic.
#[test]
fn a_stranger_on_the_address_gets_nothing() {
    let mut fleet = Fleet::new(Rules::default());
    let models = vec!["m".to_owned()];
    let event =
        Event::Joined { endpoint: "a:1".to_owned(), source: Source::Config, models, running_max: None };
    fleet.apply(event, at(0));
    fleet.apply(ready(at(1)), at(1));
    assert!(fleet.is_ready());
    fleet.apply(reported("x", "other", Readiness::Ready, at(2)), at(2));
    assert!(!fleet.is_ready());
    assert_eq!(fleet.get(ID).unwrap().state().1, "other_models");
}

#[test]
fn a_source_that_demands_nothing_takes_back_no_demand() {
    let mut fleet = Fleet::new(Rules::default());
    let models = vec!["m".to_owned()];
    let event =
        Event::Joined { endpoint: "a:1".to_owned(), source: Source::Config, models, running_max: None };
    fleet.apply(event, at(0));
    fleet.apply(joined("a:1", Source::Redis), at(1));
    fleet.apply(reported("x", "other", Readiness::Ready, at(2)), at(2));
    assert!(!fleet.is_ready());
}

#[test]
fn a_stalled_replica_is_out_until_it_says_otherwise() {
    let mut fleet = fleet();
    let changes = fleet.apply(reported("i", "m", Readiness::Stalled, at(21)), at(21));
    assert!(changes.contains(&Change::Opened(ID, Fault::Stalled)));
    let changes = fleet.apply(ready(at(22)), at(22));
    assert!(changes.contains(&Change::Closed(ID)));
}

#[test]
fn unanswered_probes_take_it_out_and_one_answer_brings_it_back() {
    let mut fleet = fleet();
    let failed: Vec<_> = (21..24).map(|second| fleet.apply(Event::ProbeFailed(ID), at(second))).collect();
    assert_eq!(failed, vec![vec![], vec![], vec![Change::Opened(ID, Fault::Unreachable)]]);
    assert!(fleet.apply(ready(at(24)), at(24)).contains(&Change::Closed(ID)));
}

#[test]
fn rates_are_learned_from_answers() {
    let mut fleet = fleet();
    for _ in 0..50 {
        let mut ticket = fleet.begin(&decision(3000), at(30)).unwrap();
        fleet.first_token(&mut ticket, at(32));
        let usage = Usage { prompt_tokens: Some(2000), cached_tokens: None, answer_tokens: Some(11) };
        fleet.end(ticket, Outcome::Answered(usage), at(37));
    }
    let rates = fleet.get(ID).unwrap().rates();
    assert!((rates.prefill_tokens_per_s.value().unwrap() / 1500.0 - 1.0).abs() < 0.05);
    assert!((rates.tpot_s.value().unwrap() - 0.5).abs() < 0.01);
    assert_eq!(fleet.prompt_tokens(ModelKey(0), 9000), 2000);
    assert_eq!(fleet.answer_tokens(None), 11);
    assert_eq!(fleet.answer_tokens(Some(5)), 5);
}

#[test]
fn a_429_makes_it_full_until_a_report_or_an_end() {
    let mut fleet = fleet();
    let is_full = |fleet: &Fleet, now| fleet.get(ID).unwrap().outlook(&fleet.prior(), now).is_full;
    let refused = fleet.begin(&decision(1), at(21)).unwrap();
    let other = fleet.begin(&decision(1), at(21)).unwrap();
    fleet.end(refused, Outcome::Refused { retry_after: None }, at(21));
    assert!(is_full(&fleet, at(21)) && !is_full(&fleet, at(22)));
    fleet.end(other, GOOD, at(21));
    assert!(!is_full(&fleet, at(21)));
}

/// Six replicas; the last `slow` of them take a minute where the others take a second.
fn fleet_with_slow(slow: u32) -> Fleet {
    let mut fleet = Fleet::new(Rules::default());
    for number in 0..6 {
        fleet.apply(joined(&format!("a:{number}"), Source::Config), at(0));
        let Event::Reported(_, report) = ready(at(0)) else { unreachable!("it is a report") };
        fleet.apply(Event::Reported(ReplicaId(number), report), at(0));
        let mut ticket =
            fleet.begin(&Decision { replica: ReplicaId(number), ..decision(10) }, at(0)).unwrap();
        fleet.first_token(&mut ticket, if number >= 6 - slow { at(60) } else { at(1) });
        fleet.end(ticket, GOOD, at(60));
    }
    fleet
}

#[test]
fn the_one_far_slower_than_the_rest_is_taken_out() {
    let changes = fleet_with_slow(1).eject_outliers(at(60));
    assert_eq!(changes, vec![Change::Opened(ReplicaId(5), Fault::Outlier)]);
}

#[test]
fn when_many_are_slow_none_is_an_outlier() {
    assert!(fleet_with_slow(4).eject_outliers(at(60)).is_empty());
}

#[test]
fn what_was_slow_long_ago_is_no_outlier_now() {
    assert!(fleet_with_slow(1).eject_outliers(at(200)).is_empty());
}

#[test]
fn models_are_those_of_replicas_that_serve() {
    let mut fleet = fleet();
    let served = |fleet: &Fleet| fleet.models_served().map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
    assert_eq!(served(&fleet), vec!["m"]);
    fleet.apply(Event::Drain(ID), at(21));
    assert!(served(&fleet).is_empty());
    assert_eq!(fleet.model("m").map(|key| fleet.model_name(key)), Some("m"));
    assert_eq!(fleet.model("n"), None);
}

#[test]
fn a_model_may_be_waited_for_before_anybody_names_it() {
    let mut fleet = Fleet::new(Rules::default());
    let expected = fleet.expect("m").unwrap();
    assert_eq!(fleet.model("m"), None, "a name that a client made up is not served");
    fleet.apply(joined("a:1", Source::Config), at(0));
    fleet.apply(ready(at(0)), at(0));
    assert_eq!((fleet.model("m"), fleet.expect("m")), (Some(expected), Some(expected)));
    let known = (0..10_000).filter(|number| fleet.expect(&format!("x{number}")).is_some()).count();
    assert_eq!(known, EXPECTED_MAX);
    fleet.check_invariants();
}

proptest! {
    #[test]
    fn whatever_happens_the_books_balance(
        ops in prop::collection::vec((0u8..10, 0u32..4, 0u64..3), 1..200),
    ) {
        let mut fleet = Fleet::new(Rules::default());
        let mut tickets: Vec<Ticket> = Vec::new();
        let mut now = 0;
        for (op, pick, gap) in ops {
            now += gap;
            let (endpoint, id) = (format!("a:{pick}"), ReplicaId(pick));
            let report = |instance: u64, readiness| match reported(&instance.to_string(), "m", readiness, at(now)) {
                Event::Reported(_, report) => Event::Reported(id, report),
                other => other,
            };
            match op {
                0 => drop(fleet.apply(joined(&endpoint, Source::Dns), at(now))),
                1 => drop(fleet.apply(left(&endpoint, Source::Dns), at(now))),
                2 | 3 => drop(fleet.apply(report(now / 50, Readiness::Ready), at(now))),
                4 => drop(fleet.apply(report(now / 50, Readiness::Stalled), at(now))),
                5 => drop(fleet.apply(Event::ProbeFailed(id), at(now))),
                6 | 7 => {
                    let decision = Decision { replica: id, ..decision(100) };
                    if fleet.model("m").is_some() {
                        tickets.extend(fleet.begin(&decision, at(now)));
                    }
                }
                8 => {
                    if let Some(ticket) = tickets.last_mut() {
                        fleet.first_token(ticket, at(now));
                    }
                }
                _ => {
                    if let Some(ticket) = tickets.pop() {
                        let fault = Outcome::Failed { fault: Fault::Reset, retry_after: None };
                        fleet.end(ticket, if gap == 0 { fault } else { GOOD }, at(now));
                    }
                }
            }
            fleet.check_invariants();
        }
        for ticket in tickets {
            fleet.end(ticket, Outcome::Neutral, at(now));
        }
        fleet.check_invariants();
        prop_assert!(fleet.replicas().iter().all(|replica| replica.load().requests() == 0));
    }
}
