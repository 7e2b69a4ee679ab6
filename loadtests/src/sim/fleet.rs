//! The simulated fleet: clients, one gateway, replicas and faults on one agenda.
//!
//! It only passes things on. Who gets a request, what a step runs, what follows a failure: the cores decide.

mod attempts;
mod clients;
mod troubles;
mod truth;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use gateway_core::fleet::{Event as Membership, Readiness};
use replica_core::scheduler::Event as Told;
use rustc_hash::FxHashMap;
use shared::id::{BlockHash, ReplicaId, SequenceId};
use shared::time::Instant;

use self::attempts::Attempt;
use self::clients::{Client, Request};
use super::agenda::Agenda;
use super::check::{Law, Laws};
use super::fault::Trouble;
use super::gateway::{self, Gateway};
use super::policy::Policy;
use super::replica::{Machine, Replica};
use super::scenario::Scenario;
use super::text;
use crate::report::Record;
use crate::workload::Session;

/// Replicas are known, probed and warm when the first client comes.
pub const LEAD: Duration = Duration::from_secs(15);

/// Between two looks at what is due by time alone.
const TICK: Duration = Duration::from_secs(1);

/// How long somebody waits who found everybody full, where the gateway has no queue.
const BACK_OFF: Duration = Duration::from_millis(200);

/// How long a replica makes no step before its report says so.
const STALLED_AFTER: Duration = Duration::from_secs(2);

/// What is due.
#[derive(Clone, Copy, Debug)]
enum Due {
    /// The next turn of a session.
    Turn(usize),
    /// An attempt reaches its replica.
    Deliver(u64),
    /// A step of this instance of a replica is over.
    StepEnd(usize, u32),
    /// A replica is probed.
    Report(usize),
    /// Has an attempt made progress?
    Watch(u64),
    /// A request that found everybody full tries again.
    Again(usize),
    /// A client stops waiting.
    Deadline(usize),
    /// A fault begins.
    Trouble(usize),
    /// It is over.
    Heal(usize),
    /// See [`TICK`].
    Tick,
}

/// Where a replica runs, and what is wrong there. Counts, since faults overlap.
#[derive(Debug)]
struct Seat {
    machine: Machine,
    /// The process, unless it is down.
    replica: Option<Replica>,
    instance: u32,
    crashes: u32,
    stalls: u32,
    stalled_since: Option<Instant>,
    partitions: u32,
    silences: u32,
    drains: u32,
    /// The gateway must be told the whole of its cache.
    is_unsynced: bool,
    /// Attempts that were sent and have not ended.
    attempts: Vec<u64>,
    /// For the oracle: blocks that its attempts will compute, and prompt tokens on their way there.
    coming: FxHashMap<BlockHash, u32>,
    on_the_way_tokens: u64,
}

impl Seat {
    fn new(machine: Machine) -> Self {
        Self {
            machine,
            replica: Some(Replica::new(machine, 0)),
            instance: 0,
            crashes: 0,
            stalls: 0,
            stalled_since: None,
            partitions: 0,
            silences: 0,
            drains: 0,
            is_unsynced: true,
            attempts: Vec::new(),
            coming: FxHashMap::default(),
            on_the_way_tokens: 0,
        }
    }

    fn is_reachable(&self) -> bool {
        self.replica.is_some() && self.partitions == 0
    }
}

/// What a run came to.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// One a request.
    pub records: Vec<Record>,
    /// Broken laws.
    pub broken: Vec<String>,
    /// Names everything that happened, in order: equal traces, equal runs.
    pub trace: u64,
    /// Virtual time from the first client to the last answer.
    pub span: Duration,
    /// Second tries that were made.
    pub retries: u32,
    /// Preemptions over all replicas.
    pub preemptions: u64,
}

/// A run in progress.
#[derive(Debug)]
pub struct Simulation<'a> {
    scenario: &'a Scenario,
    agenda: Agenda<Due>,
    gateway: Gateway,
    wants_truth: bool,
    has_queue: bool,
    seats: Vec<Seat>,
    clients: Vec<Client>,
    clients_open: usize,
    requests: Vec<Request>,
    attempts: FxHashMap<u64, Attempt>,
    attempts_made: u64,
    retries: u32,
    preemptions: u64,
    answer_s_mean: f64,
    troubles: Vec<Trouble>,
    laws: Laws,
    trace: u64,
    events: Vec<(SequenceId, Told)>,
    scratch: Vec<u8>,
}

/// What `run` gives; a panic in it goes on with its seed's name and how far it was, so that it can be run again.
fn named<T>(seed: u64, at: &Cell<Instant>, run: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no word");
        panic!("seed {seed} at {:.3} s: {said}", at.get().since(Instant::ZERO).as_secs_f64())
    })
}

impl<'a> Simulation<'a> {
    /// Runs a scenario to its end. The same scenario, policy and seed give the same outcome.
    ///
    /// # Panics
    ///
    /// Where a core does; the panic then names the seed and the virtual time.
    pub fn run(scenario: &'a Scenario, policy: Policy, seed: u64) -> Outcome {
        Self::replay(scenario, scenario.workload.sessions(seed), policy, seed)
    }

    /// The same with other sessions than the scenario's, in the order of their starts.
    pub fn replay(scenario: &'a Scenario, sessions: Vec<Session>, policy: Policy, seed: u64) -> Outcome {
        let at = Cell::new(Instant::ZERO);
        named(seed, &at, || {
            let mut simulation = Self::new(scenario, sessions, policy, seed);
            while let Some(due) = simulation.agenda.pop() {
                at.set(simulation.now());
                simulation.note(due);
                simulation.happen(due);
            }
            simulation.finish()
        })
    }

    fn new(scenario: &'a Scenario, sessions: Vec<Session>, policy: Policy, seed: u64) -> Self {
        let clients: Vec<_> = sessions.into_iter().map(Client::new).collect();
        let last_start = clients.last().map_or(Duration::ZERO, Client::start);
        let seats: Vec<_> = scenario.replicas().map(Seat::new).collect();
        let troubles = scenario.troubles.draw(seed, seats.len(), LEAD + last_start);
        let mut simulation = Self {
            scenario,
            agenda: Agenda::default(),
            wants_truth: policy.wants_truth(),
            has_queue: policy.has_queue(),
            gateway: Gateway::new(policy, seed),
            clients_open: clients.len(),
            clients,
            seats,
            requests: Vec::new(),
            attempts: FxHashMap::default(),
            attempts_made: 0,
            retries: 0,
            preemptions: 0,
            answer_s_mean: 1.0,
            troubles,
            laws: Laws::default(),
            trace: 0,
            events: Vec::new(),
            scratch: Vec::new(),
        };
        simulation.put_down_the_start();
        simulation
    }

    fn put_down_the_start(&mut self) {
        for seat in 0..self.seats.len() {
            self.gateway.join(seat, Instant::ZERO);
            // Probes are spread over the period.
            let part = seat as f64 / self.seats.len() as f64;
            self.agenda.after(self.report_period().mul_f64(part), Due::Report(seat));
        }
        for (index, client) in self.clients.iter().enumerate() {
            self.agenda.after(LEAD + client.start(), Due::Turn(index));
        }
        for (index, trouble) in self.troubles.iter().enumerate() {
            self.agenda.after(trouble.at, Due::Trouble(index));
        }
        self.agenda.after(TICK, Due::Tick);
    }

    fn report_period(&self) -> Duration {
        Duration::from_millis(self.scenario.times.report_ms.max(1))
    }

    fn now(&self) -> Instant {
        self.agenda.now()
    }

    fn note(&mut self, due: Due) {
        let (kind, number) = match due {
            Due::Turn(client) => (0, client as u64),
            Due::Deliver(attempt) => (1, attempt),
            Due::StepEnd(seat, _) => (2, seat as u64),
            Due::Report(seat) => (3, seat as u64),
            Due::Watch(attempt) => (4, attempt),
            Due::Deadline(request) => (5, request as u64),
            Due::Trouble(index) => (6, index as u64),
            Due::Heal(index) => (7, index as u64),
            Due::Tick => (8, 0),
            Due::Again(request) => (9, request as u64),
        };
        for part in [self.agenda.now().0, kind, number] {
            self.trace = text::mix(self.trace ^ part);
        }
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Turn(client) => self.ask(client),
            Due::Deliver(attempt) => self.deliver(attempt),
            Due::StepEnd(seat, instance) => self.end_step(seat, instance),
            Due::Report(seat) => self.report(seat),
            Due::Watch(attempt) => self.watch(attempt),
            Due::Deadline(request) => self.give_up_waiting(request),
            Due::Trouble(index) => self.begin_trouble(index),
            Due::Heal(index) => self.end_trouble(index),
            Due::Tick => self.tick(),
            Due::Again(request) => self.place_again(request),
        }
    }

    /// Begins a step unless one runs or none can.
    fn wake(&mut self, seat: usize) {
        let now = self.now();
        let mut events = std::mem::take(&mut self.events);
        let crowding = self.crowding();
        let Seat { replica, stalls, instance, .. } = &mut self.seats[seat];
        if let Some(replica) = replica.as_mut().filter(|replica| replica.step_end().is_none() && *stalls == 0)
        {
            if let Some(end) = replica.begin_step(now, crowding, &mut events) {
                self.agenda.at(end, Due::StepEnd(seat, *instance));
            }
            let (rows, most) = (replica.rows(), replica.limits().step_tokens_max);
            self.laws.check(Law::Bounded, rows <= most, now, || format!("{rows} rows in a step of {most}"));
        }
        self.tell(&mut events);
        self.events = events;
    }

    /// How many times as long a step takes that begins now, since other replicas step on the same processors.
    fn crowding(&self) -> f64 {
        let Some(cores) = self.scenario.cores else { return 1.0 };
        let steps = |seat: &&Seat| seat.replica.as_ref().is_some_and(|replica| replica.step_end().is_some());
        let running = self.seats.iter().filter(steps).count() + 1;
        (running as f64 / f64::from(cores.max(1))).max(1.0)
    }

    fn end_step(&mut self, seat: usize, instance: u32) {
        let now = self.now();
        let Seat { replica, instance: current, stalls, .. } = &mut self.seats[seat];
        let Some(replica) = replica.as_mut().filter(|_| *current == instance) else { return };
        if *stalls > 0 {
            // It hangs in this step, and ends it some time after it can go on.
            self.agenda.after(Duration::from_millis(100), Due::StepEnd(seat, instance));
            return;
        }
        let mut events = std::mem::take(&mut self.events);
        replica.end_step(now, &mut events);
        self.tell(&mut events);
        self.events = events;
        self.pass_news(seat);
        self.wake(seat);
    }

    /// Tells the gateway what a replica's cache has gained and lost.
    fn pass_news(&mut self, number: usize) {
        let seat = &mut self.seats[number];
        let is_heard = seat.is_reachable() && seat.silences == 0;
        let Some(replica) = seat.replica.as_mut().filter(|_| is_heard) else { return };
        let id = ReplicaId(number as u32);
        if std::mem::take(&mut seat.is_unsynced) {
            let whole = replica.whole();
            self.gateway.cache_news(id, &whole);
        } else if let Some(news) = replica.news() {
            seat.is_unsynced = self.gateway.cache_news(id, &news);
        }
    }

    fn report(&mut self, number: usize) {
        let now = self.now();
        let seat = &self.seats[number];
        let id = ReplicaId(number as u32);
        let heard = seat.replica.as_ref().filter(|_| seat.is_reachable() && seat.silences == 0);
        match heard {
            None => self.gateway.apply(Membership::ProbeFailed(id), now),
            Some(replica) => {
                let is_stalled = seat.stalled_since.is_some_and(|since| now.since(since) > STALLED_AFTER);
                let readiness =
                    if is_stalled && !replica.is_idle() { Readiness::Stalled } else { Readiness::Ready };
                let (load, limits) = (replica.load(), replica.limits());
                let queue_max = limits.waiting_max + limits.running_max;
                let is_bounded = load.waiting <= queue_max && load.running <= limits.running_max;
                self.laws.check(Law::Bounded, is_bounded, now, || format!("{load:?}"));
                let sample = gateway::sample(&load, limits);
                self.gateway.reported(id, seat.instance, readiness, sample, now, now);
            }
        }
        self.pass_news(number);
        self.dispatch();
        if self.clients_open > 0 {
            self.agenda.after(self.report_period(), Due::Report(number));
        }
    }

    fn tick(&mut self) {
        let now = self.now();
        self.gateway.fleet.eject_outliers(now);
        self.dispatch();
        if self.clients_open > 0 {
            self.agenda.after(TICK, Due::Tick);
        }
    }

    /// Passes a replica's events on to gateway and clients.
    fn tell(&mut self, events: &mut Vec<(SequenceId, Told)>) {
        for (id, event) in events.drain(..) {
            match event {
                Told::Started(timing) => self.started(id.0, timing),
                Told::Token(sampled) => self.token(id.0, sampled.token),
                Told::Finished(finish) => self.finished(id.0, &finish),
                Told::Preempted => self.preemptions += 1,
            }
        }
    }

    fn finish(mut self) -> Outcome {
        self.check_the_end();
        let records: Vec<_> = self.requests.iter().map(Request::record).collect();
        for record in &records {
            self.trace = text::mix(self.trace ^ record.end.0);
            self.trace = text::mix(self.trace ^ u64::from(record.answer_tokens));
        }
        Outcome {
            span: records
                .iter()
                .map(|record| record.end)
                .max()
                .unwrap_or_default()
                .since(Instant::ZERO + LEAD),
            records,
            broken: self.laws.broken().to_vec(),
            trace: self.trace,
            retries: self.retries,
            preemptions: self.preemptions,
        }
    }

    fn check_the_end(&mut self) {
        let now = self.now();
        for (number, request) in self.requests.iter().enumerate() {
            self.laws.check(Law::EndsOnce, request.ends == 1, now, || {
                format!("request {number} ended {} times", request.ends)
            });
        }
        for (number, seat) in self.seats.iter().enumerate() {
            let Some(replica) = &seat.replica else { continue };
            replica.check_invariants();
            let load = replica.load();
            let is_empty = replica.is_idle() && load.blocks_free == load.blocks;
            self.laws.check(Law::NothingHeld, is_empty, now, || format!("replica {number}: {load:?}"));
        }
        self.gateway.check_invariants();
        let loads = self.gateway.fleet.replicas().iter().map(|replica| replica.load().requests());
        let is_empty = loads.sum::<u32>() == 0 && self.gateway.queue.is_empty() && self.attempts.is_empty();
        self.laws.check(Law::NothingHeld, is_empty, now, || "the gateway holds load".to_owned());
        // The default budget: a fifth of the requests, one a second, a hundred saved up.
        let seconds = now.0 as f64 / 1e9;
        let allowed = 0.2 * self.requests.len() as f64 + seconds + 100.0;
        let retries = self.retries;
        self.laws.check(Law::FewRetries, f64::from(retries) <= allowed, now, || {
            format!("{retries} second tries, {allowed} allowed")
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "seed 7 at 1.500 s: a block is lost: 3")]
    fn a_seed_that_panics_names_itself() {
        let at = Cell::new(Instant::ZERO);
        named(7, &at, || {
            at.set(Instant::ZERO + Duration::from_millis(1500));
            assert!(at.get() == Instant::ZERO, "a block is lost: {}", 3);
        });
    }
}
