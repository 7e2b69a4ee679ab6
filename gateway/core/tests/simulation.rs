//! A small fleet in virtual time: random replicas that die, come back, drain and lose reports. No expected values;
//! laws that hold for any seed. A failing seed is printed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gateway_core::admission::TenantId;
use gateway_core::fleet::{Change, Event, Fleet, Readiness, Report, Source};
use gateway_core::health::{Circuit, Outcome, Rules, Usage};
use gateway_core::load::{Sample, Ticket};
use gateway_core::prefix_index::{Matches, PrefixIndex, Settlement};
use gateway_core::queue::{Bounds, Class, Queue, Waiting};
use gateway_core::replica::{Engine, Identity};
use gateway_core::retry::{Budget, Failure, History, Limits, Verdict, World, judge};
use gateway_core::route::{Demand, Reason, Refusal, Router};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use shared::id::{ReplicaId, RequestId};
use shared::time::Instant;

const ARRIVALS_END: Duration = Duration::from_mins(1);
const PATIENCE: Duration = Duration::from_secs(40);
const BOUNDS: Bounds = Bounds { requests_max: 40, bytes_max: 40_000 };
const BURST: u32 = 20;

#[derive(Clone, Copy, Debug)]
enum Action {
    Arrive,
    FirstToken(usize, u32),
    Finish(usize, u32),
    Fail(usize, u32, Failure),
    Probe(usize),
    Heard(usize, u32, Instant, u32, u32),
    Unheard(usize),
    Die(usize),
    Revive(usize),
    Drain(usize, bool),
    Tick,
}

#[derive(Debug)]
struct SimReplica {
    instance: u32,
    is_alive: bool,
    tokens_per_s: f64,
    places: u32,
    prefilled_at: Instant,
    running: BTreeSet<usize>,
}

#[derive(Debug)]
struct SimRequest {
    pieces: Vec<u128>,
    deadline: Instant,
    tried: Vec<ReplicaId>,
    ticket: Option<Ticket>,
    predicted: u32,
    attempt: u32,
    deaths: u32,
    has_begun: bool,
    endings: u32,
}

struct Sim {
    now: Instant,
    agenda: BTreeMap<(Instant, u64), Action>,
    planned: u64,
    rng: SmallRng,
    fleet: Fleet,
    router: Router,
    index: PrefixIndex,
    matches: Matches,
    queue: Queue,
    budget: Budget,
    replicas: Vec<SimReplica>,
    requests: Vec<SimRequest>,
    retries: u32,
    answered: u32,
}

impl Sim {
    fn new(seed: u64) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let replicas = (0..rng.random_range(1..7)).map(|_| SimReplica {
            instance: 0,
            is_alive: true,
            tokens_per_s: rng.random_range(300.0..6000.0),
            places: rng.random_range(1..12),
            prefilled_at: Instant::ZERO,
            running: BTreeSet::new(),
        });
        let replicas: Vec<_> = replicas.collect();
        let mut sim = Self {
            now: Instant::ZERO,
            agenda: BTreeMap::new(),
            planned: 0,
            rng,
            fleet: Fleet::new(Rules::default()),
            router: Router::default(),
            index: PrefixIndex::new(400),
            matches: Matches::default(),
            queue: Queue::new(BOUNDS),
            budget: Budget::new(0.2, 1.0, BURST),
            replicas,
            requests: Vec::new(),
            retries: 0,
            answered: 0,
        };
        sim.plan_all();
        sim
    }

    fn plan_all(&mut self) {
        for number in 0..self.replicas.len() {
            let (endpoint, models) = (format!("r:{number}"), vec!["m".to_owned()]);
            let joined = Event::Joined { endpoint, source: Source::Config, models, running_max: None };
            self.fleet.apply(joined, self.now);
            self.plan(0.01 * number as f64, Action::Probe(number));
            for _ in 0..self.rng.random_range(0..4) {
                let at = self.rng.random_range(2.0..50.0);
                let pause = self.rng.random_range(0.5..15.0);
                let is_death = self.rng.random_bool(0.7);
                let (gone, back) = if is_death {
                    (Action::Die(number), Action::Revive(number))
                } else {
                    (Action::Drain(number, true), Action::Drain(number, false))
                };
                self.plan(at, gone);
                self.plan(at + pause, back);
            }
        }
        self.plan(0.5, Action::Arrive);
        self.plan(1.0, Action::Tick);
    }

    fn plan(&mut self, in_s: f64, action: Action) {
        self.planned += 1;
        self.agenda.insert((self.now + Duration::from_secs_f64(in_s), self.planned), action);
    }

    fn run(&mut self) {
        while let Some(((at, _), action)) = self.agenda.pop_first() {
            self.now = at;
            self.act(action);
            self.dispatch_waiting();
            self.fleet.check_invariants();
            self.queue.check_invariants();
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Arrive => self.arrive(),
            Action::FirstToken(request, attempt) => self.first_token(request, attempt),
            Action::Finish(request, attempt) => self.finish(request, attempt),
            Action::Fail(request, attempt, failure) => self.fail(request, attempt, failure),
            Action::Probe(number) => self.probe(number),
            Action::Heard(number, instance, at, running, places) => {
                let report = report(instance, running, places, at);
                self.apply(Event::Reported(ReplicaId(number as u32), report));
            }
            Action::Unheard(number) => self.apply(Event::ProbeFailed(ReplicaId(number as u32))),
            Action::Die(number) => self.die(number),
            Action::Revive(number) => {
                self.replicas[number].is_alive = true;
                self.replicas[number].prefilled_at = self.now;
            }
            Action::Drain(number, true) => self.apply(Event::Drain(ReplicaId(number as u32))),
            Action::Drain(number, false) => self.apply(Event::Undrain(ReplicaId(number as u32))),
            Action::Tick => self.tick(),
        }
    }

    fn apply(&mut self, event: Event) {
        for change in self.fleet.apply(event, self.now) {
            if let Change::Instance(id) | Change::Gone(id) = change {
                self.index.forget(id);
            }
        }
    }

    fn arrive(&mut self) {
        let group = self.rng.random_range(0..6) as u128;
        let length = self.rng.random_range(1..20);
        let own = (self.requests.len() as u128 + 1) << 64;
        let pieces = (0..length).map(|at| if at < 8 { group << 32 | at } else { own | at }).collect();
        self.requests.push(SimRequest {
            pieces,
            deadline: self.now + PATIENCE,
            tried: Vec::new(),
            ticket: None,
            predicted: 0,
            attempt: 0,
            deaths: 0,
            has_begun: false,
            endings: 0,
        });
        self.budget.deposit();
        self.place(self.requests.len() - 1);
        if self.now.since(Instant::ZERO) < ARRIVALS_END {
            let gap = self.rng.random_range(0.001..0.25);
            self.plan(gap, Action::Arrive);
        }
    }

    /// Sends a request somewhere, lets it wait, or ends it.
    fn place(&mut self, request: usize) {
        match self.start(request) {
            Ok(()) => {}
            Err(Refusal::Saturated) => self.wait(request),
            Err(Refusal::NoReplica | Refusal::AllTried) => self.requests[request].endings += 1,
        }
    }

    fn start(&mut self, request: usize) -> Result<(), Refusal> {
        let one = &self.requests[request];
        let demand = Demand {
            model: self.fleet.model("m").ok_or(Refusal::NoReplica)?,
            prompt_bytes: one.pieces.len() as u32 * 512,
            answer_tokens_max: Some(100),
            is_batch: request % 10 == 9,
            session: None,
            tried: &one.tried,
        };
        self.index.lookup(&one.pieces, &mut self.matches);
        let matched = |id| self.index.trusted(&self.matches, id);
        let decision = self.router.choose(&demand, &self.fleet, matched, self.now, &mut self.rng)?;
        let chosen = self.fleet.get(decision.replica).expect("a decision names somebody");
        assert!(chosen.is_serving() && !one.tried.contains(&decision.replica));
        let is_closed = chosen.breaker().circuit(self.now) == Circuit::Closed;
        assert!(is_closed || matches!(decision.reason, Reason::Probe | Reason::Panic), "{decision:?}");
        let ticket = self.fleet.begin(&decision, self.now).expect("the chosen one is there");
        self.index.guess(decision.replica, &one.pieces);
        let predicted = self.matches.pieces(decision.replica);
        let one = &mut self.requests[request];
        one.ticket = Some(ticket);
        one.predicted = predicted;
        one.attempt += 1;
        one.has_begun = false;
        self.send(request, decision.replica.0 as usize, decision.share.prompt_tokens);
        Ok(())
    }

    fn send(&mut self, request: usize, number: usize, tokens: u32) {
        let attempt = self.requests[request].attempt;
        let answer_s = self.rng.random_range(0.1..3.0);
        let replica = &mut self.replicas[number];
        if !replica.is_alive {
            return self.plan(0.001, Action::Fail(request, attempt, Failure::Unreachable));
        }
        if replica.running.len() > replica.places as usize {
            return self.plan(0.001, Action::Fail(request, attempt, Failure::Status(429, None)));
        }
        replica.running.insert(request);
        let begins = replica.prefilled_at.max(self.now);
        replica.prefilled_at = begins + Duration::from_secs_f64(f64::from(tokens) / replica.tokens_per_s);
        let prefill_s = replica.prefilled_at.since(self.now).as_secs_f64();
        self.plan(prefill_s, Action::FirstToken(request, attempt));
        self.plan(prefill_s + answer_s, Action::Finish(request, attempt));
    }

    fn wait(&mut self, request: usize) {
        let one = &self.requests[request];
        let waiting = Waiting {
            id: RequestId(request as u64),
            tenant: TenantId(request as u32 % 3),
            class: if request % 10 == 9 { Class::Batch } else { Class::Normal },
            model: self.fleet.model("m").expect("somebody serves it, or it would not be full"),
            bytes: one.pieces.len() as u64 * 512,
            tokens: one.pieces.len() as u32 * 128,
            since: self.now,
            deadline: one.deadline,
        };
        let displaced = match self.queue.push(waiting, self.now) {
            Ok(queued) => queued.displaced,
            Err(_) => vec![waiting.id],
        };
        for id in displaced {
            self.requests[id.0 as usize].endings += 1;
        }
    }

    fn dispatch_waiting(&mut self) {
        for late in self.queue.expire(self.now) {
            self.requests[late.id.0 as usize].endings += 1;
        }
        for model in self.queue.models().collect::<Vec<_>>() {
            while let Some(id) = self.queue.first(model).map(|first| first.id) {
                let result = self.start(id.0 as usize);
                if result == Err(Refusal::Saturated) {
                    break;
                }
                self.queue.start(id, self.now);
                if result.is_err() {
                    self.requests[id.0 as usize].endings += 1;
                }
            }
        }
    }

    fn first_token(&mut self, request: usize, attempt: u32) {
        let one = &mut self.requests[request];
        if let Some(ticket) = one.ticket.as_mut().filter(|_| one.attempt == attempt) {
            one.has_begun = true;
            self.fleet.first_token(ticket, self.now);
        }
    }

    fn finish(&mut self, request: usize, attempt: u32) {
        let usage = Usage { prompt_tokens: None, cached_tokens: None, answer_tokens: Some(50) };
        if self.close(request, attempt, Outcome::Answered(usage)) {
            self.requests[request].endings += 1;
            self.answered += 1;
        }
    }

    /// Ends an attempt; false when another one has taken its place.
    fn close(&mut self, request: usize, attempt: u32, outcome: Outcome) -> bool {
        let one = &mut self.requests[request];
        let Some(ticket) = one.ticket.take_if(|_| one.attempt == attempt) else { return false };
        let id = ticket.replica();
        let end = Settlement { is_computed: one.has_begun, predicted: one.predicted, reported: None };
        self.index.settle(id, &one.pieces, end);
        self.replicas[id.0 as usize].running.remove(&request);
        self.fleet.end(ticket, outcome, self.now);
        true
    }

    fn fail(&mut self, request: usize, attempt: u32, failure: Failure) {
        let one = &self.requests[request];
        let Some(failed) = one.ticket.as_ref().filter(|_| one.attempt == attempt).map(Ticket::replica) else {
            return;
        };
        let history = History { attempts: attempt, deaths: one.deaths, refreshed: false };
        let others = self.fleet.replicas().iter().filter(|r| r.is_serving() && !one.tried.contains(&r.id()));
        let is_other_there = others.filter(|replica| replica.id() != failed).count() > 0;
        let world = World { now: self.now, deadline: one.deadline, is_other_there };
        let judgement = judge(failure, history, world, Limits::default(), &mut self.budget);
        self.close(request, attempt, judgement.outcome);
        let one = &mut self.requests[request];
        one.deaths += u32::from(judgement.is_death);
        match judgement.verdict {
            Verdict::Elsewhere | Verdict::Continue => {
                self.retries += 1;
                one.tried.push(failed);
                self.place(request);
            }
            Verdict::Wait => self.wait(request),
            Verdict::Refresh => unreachable!("no connection is reused here"),
            Verdict::Relay | Verdict::GiveUp(_) => one.endings += 1,
        }
    }

    fn probe(&mut self, number: usize) {
        if self.now.since(Instant::ZERO) < ARRIVALS_END * 3 {
            self.plan(1.0, Action::Probe(number));
        }
        let is_lost = self.rng.random_bool(0.1) && self.now.since(Instant::ZERO) < ARRIVALS_END;
        let way = self.rng.random_range(0.001..0.3);
        let replica = &self.replicas[number];
        if !replica.is_alive || is_lost {
            return self.plan(0.5, Action::Unheard(number));
        }
        let (running, places) = (replica.running.len() as u32, replica.places);
        self.plan(way, Action::Heard(number, replica.instance, self.now, running, places));
    }

    fn die(&mut self, number: usize) {
        let replica = &mut self.replicas[number];
        replica.is_alive = false;
        replica.instance += 1;
        for request in std::mem::take(&mut replica.running) {
            let one = &self.requests[request];
            let failure = if one.has_begun { Failure::Broken } else { Failure::Reset { reused: false } };
            self.fail(request, one.attempt, failure);
        }
    }

    fn tick(&mut self) {
        self.fleet.eject_outliers(self.now);
        if self.now.since(Instant::ZERO) < ARRIVALS_END * 3 {
            self.plan(1.0, Action::Tick);
        }
    }
}

fn report(instance: u32, running: u32, places: u32, at: Instant) -> Report {
    let identity = Identity {
        instance: instance.to_string(),
        engine: Engine::Flotilla,
        models: vec!["m".to_owned()],
        ..Identity::default()
    };
    let sample = Sample {
        running: Some(running.min(places)),
        running_max: Some(places),
        waiting: Some(running.saturating_sub(places)),
        ..Sample::default()
    };
    Report { identity, readiness: Readiness::Ready, sample, at }
}

fn run(seed: u64) -> Sim {
    let mut sim = Sim::new(seed);
    sim.run();
    sim
}

#[test]
fn for_any_seed_every_request_ends_once_and_nothing_is_left() {
    for seed in 0..60 {
        let sim = run(seed);
        for (number, request) in sim.requests.iter().enumerate() {
            assert_eq!(request.endings, 1, "seed {seed}, request {number}: {request:?}");
            assert!(request.deaths <= 2, "seed {seed}, request {number}");
        }
        let left: u32 = sim.fleet.replicas().iter().map(|replica| replica.load().requests()).sum();
        assert_eq!((left, sim.queue.len(), sim.queue.bytes()), (0, 0, 0), "seed {seed}");
        let seconds = sim.now.since(Instant::ZERO).as_secs_f64();
        let allowed = 0.2 * sim.requests.len() as f64 + seconds + f64::from(BURST);
        assert!(f64::from(sim.retries) <= allowed, "seed {seed}: {} retries", sim.retries);
        assert!(sim.answered > 0, "seed {seed}");
        sim.index.check_invariants();
    }
}

#[test]
fn after_all_troubles_every_replica_is_back_in_rotation() {
    for seed in 0..60 {
        let sim = run(seed);
        for replica in sim.fleet.replicas() {
            assert!(replica.is_serving(), "seed {seed}: {:?} is {:?}", replica.id(), replica.state());
            assert!(replica.breaker().admits(sim.now), "seed {seed}: {:?}", replica.breaker());
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let trace = |sim: &Sim| (sim.planned, sim.answered, sim.retries, sim.now);
    assert_eq!(trace(&run(7)), trace(&run(7)));
}
