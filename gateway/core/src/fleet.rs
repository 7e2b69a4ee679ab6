//! What this gateway believes about every replica now.
//!
//! Events come in from discovery, probes and answers; [`crate::route`] reads. It opens no connection and may be
//! wrong: a wrong guess costs time, never correctness. One caller owns it and holds it only for a moment.

use std::collections::BTreeMap;
use std::time::Duration;

use shared::id::ReplicaId;
use shared::time::Instant;

use crate::belief::Belief;
use crate::capacity::MeanRequest;
use crate::health::{Fault, Outcome, Rules, Usage};
use crate::load::Ticket;
use crate::replica::{ModelKey, Prior, Rates, Replica, State};
use crate::route::Decision;

pub use self::event::{Change, Event, Readiness, Report, Source};

mod event;
mod learn;

/// Bytes of prompt text a token takes, until a model has shown otherwise.
const BYTES_PER_TOKEN: f64 = 4.0;
/// Tokens an answer has, until answers have been seen.
const ANSWER_TOKENS: f64 = 256.0;
/// How long a 429 without `Retry-After` keeps a replica full in our eyes; a report or an ending answer is sooner.
const FULL_FOR: Duration = Duration::from_secs(1);

/// A model by name.
#[derive(Clone, Debug)]
struct Model {
    name: String,
    /// Some replica has named it; others are only waited for.
    is_named: bool,
    bytes_per_token: Belief,
}

/// Names that may be waited for without any replica: clients could make any number of them.
const EXPECTED_MAX: usize = 1000;

/// Every replica this gateway knows.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// Sorted by id: new ones are the greatest.
    replicas: Vec<Replica>,
    models: Vec<Model>,
    keys: BTreeMap<String, ModelKey>,
    rates: Rates,
    answer_tokens: Belief,
    uncached_tokens: Belief,
    kv_tokens: Belief,
    rules: Rules,
    next_id: u32,
    next_serial: u64,
}

impl Fleet {
    /// An empty fleet whose circuits follow `rules`.
    pub fn new(rules: Rules) -> Self {
        Self {
            replicas: Vec::new(),
            models: Vec::new(),
            keys: BTreeMap::new(),
            rates: Rates::default(),
            answer_tokens: Belief::default(),
            uncached_tokens: Belief::default(),
            kv_tokens: Belief::default(),
            rules,
            next_id: 0,
            next_serial: 0,
        }
    }

    /// Takes in what happened.
    pub fn apply(&mut self, event: Event, now: Instant) -> Vec<Change> {
        let mut changes = Vec::new();
        match event {
            Event::Joined { endpoint, source, models, running_max } => {
                self.join(endpoint, source, models, running_max, &mut changes);
            }
            Event::Left { endpoint, source } => self.leave(&endpoint, source, &mut changes),
            Event::Drain(id) => self.change(id, &mut changes, |replica| {
                replica.is_drained_by_us = true;
                Some((State::Draining, "operator"))
            }),
            Event::Undrain(id) => self.change(id, &mut changes, |replica| {
                replica.is_drained_by_us = false;
                (replica.state == State::Draining && !replica.is_leaving)
                    .then_some((State::Joining, "undrained"))
            }),
            Event::Remove(id) => self.change(id, &mut changes, |replica| {
                replica.is_leaving = true;
                Some((State::Draining, "removed"))
            }),
            Event::Reported(id, report) => self.report(id, report, now, &mut changes),
            Event::ProbeFailed(id) => self.probe_failed(id, now, &mut changes),
        }
        self.forget_empty(&mut changes);
        changes
    }

    /// Every replica, by id.
    pub fn replicas(&self) -> &[Replica] {
        &self.replicas
    }

    /// One replica.
    pub fn get(&self, id: ReplicaId) -> Option<&Replica> {
        self.index(id).map(|index| &self.replicas[index])
    }

    /// The replica at an endpoint.
    pub fn at(&self, endpoint: &str) -> Option<&Replica> {
        self.replicas.iter().find(|replica| replica.endpoint == endpoint)
    }

    /// The key of a model that some replica has named; `None` means nobody here ever served it.
    pub fn model(&self, name: &str) -> Option<ModelKey> {
        self.keys.get(name).copied().filter(|key| self.models[key.0 as usize].is_named)
    }

    /// The key of a model that nobody has named yet, to wait for somebody who does; `None` when too many are
    /// waited for.
    pub fn expect(&mut self, name: &str) -> Option<ModelKey> {
        let is_known = self.keys.contains_key(name);
        let expected = self.models.iter().filter(|model| !model.is_named).count();
        (is_known || expected < EXPECTED_MAX).then(|| self.key(name))
    }

    /// The name behind a key.
    pub fn model_name(&self, key: ModelKey) -> &str {
        &self.models[key.0 as usize].name
    }

    /// Names of models that some replica serves now, in order.
    pub fn models_served(&self) -> impl Iterator<Item = (&str, ModelKey)> {
        let is_served = |key| self.replicas.iter().any(|replica| replica.is_serving() && replica.serves(key));
        self.keys.iter().filter(move |(_, key)| is_served(**key)).map(|(name, key)| (name.as_str(), *key))
    }

    /// Whether some replica takes work.
    pub fn is_ready(&self) -> bool {
        self.replicas.iter().any(Replica::is_serving)
    }

    /// What to assume about a replica that has not shown it.
    pub fn prior(&self) -> Prior {
        Prior::of(&self.rates, &self.uncached_tokens)
    }

    /// Tokens that a prompt of so many bytes has for a model, as far as answers have shown.
    pub fn prompt_tokens(&self, model: ModelKey, bytes: u32) -> u32 {
        let per_token = self.models[model.0 as usize].bytes_per_token.value().unwrap_or(BYTES_PER_TOKEN);
        (f64::from(bytes) / per_token).ceil() as u32
    }

    /// Tokens an answer will have that may have `most`.
    pub fn answer_tokens(&self, most: Option<u32>) -> u32 {
        let usual = self.answer_tokens.value().unwrap_or(ANSWER_TOKENS) as u32;
        most.map_or(usual, |most| most.min(usual))
    }

    /// What a request asks in the mean; `None` until answers have been seen.
    pub fn mean_request(&self) -> Option<MeanRequest> {
        Some(MeanRequest {
            uncached_tokens: self.uncached_tokens.value()?,
            kv_tokens: self.kv_tokens.value()?,
            answer_tokens: self.answer_tokens.value()?,
        })
    }

    /// Counts a request on the replica that was chosen, before anybody else chooses.
    pub fn begin(&mut self, decision: &Decision, now: Instant) -> Option<Ticket> {
        let prior = self.prior();
        let is_known = self.rates.ttft_s.value().is_some();
        let prompt_tokens = f64::from(decision.share.prompt_tokens);
        let kv_tokens = f64::from(decision.share.kv_tokens);
        let serial = self.next_serial;
        let index = self.index(decision.replica)?;
        self.next_serial += 1;
        self.uncached_tokens.learn(prompt_tokens, now);
        self.kv_tokens.learn(kv_tokens, now);
        let replica = &mut self.replicas[index];
        let outlook = replica.outlook(&prior, now);
        let usual_ttft_s = is_known.then(|| outlook.as_usual(&prior).ttft_s(prompt_tokens, kv_tokens));
        let is_explained = outlook.has_room(kv_tokens);
        replica.load.begin(serial, decision.share, now);
        Some(Ticket {
            replica: decision.replica,
            epoch: replica.epoch,
            serial,
            share: decision.share,
            began: now,
            first_token: None,
            model: decision.model,
            prompt_bytes: decision.prompt_bytes,
            pass: replica.breaker.begin(now),
            usual_ttft_s,
            ahead: is_explained.then_some((outlook.queued_tokens, outlook.slowdown())),
        })
    }

    /// The first token of its answer has come.
    pub fn first_token(&mut self, ticket: &mut Ticket, now: Instant) {
        if ticket.first_token.replace(now).is_some() {
            return;
        }
        let Some(replica) = self.replica_of(ticket) else { return };
        replica.load.first_token(ticket.serial);
        replica.breaker.lives();
        let mut rates = replica.rates;
        let said = replica.said.rate();
        learn::first_token(&mut rates, ticket, said, now);
        replica.rates = rates;
        learn::first_token(&mut self.rates, ticket, said, now);
    }

    /// The request is over, whatever its outcome: its load is taken back and its replica judged.
    #[expect(clippy::needless_pass_by_value, reason = "a ticket that is taken can't be given back twice")]
    pub fn end(&mut self, ticket: Ticket, outcome: Outcome, now: Instant) -> Vec<Change> {
        let mut changes = Vec::new();
        if let Outcome::Answered(usage) = outcome {
            self.learn_usage(&ticket, usage, now);
        }
        if let Some(replica) = self.replica_of(&ticket) {
            replica.load.end(ticket.serial, now);
            replica.full_until = match outcome {
                Outcome::Refused { retry_after: None } => Some(now + FULL_FOR),
                _ => None,
            };
            let before = replica.breaker.fault();
            replica.breaker.record(outcome, ticket.pass, now);
            note_circuit(replica, before, &mut changes);
        }
        self.forget_empty(&mut changes);
        changes
    }

    /// Takes out replicas whose first tokens come far later than the others'. Call it every few seconds.
    pub fn eject_outliers(&mut self, now: Instant) -> Vec<Change> {
        let mut changes = Vec::new();
        for id in crate::health::outliers(&self.replicas, now) {
            if let Some(index) = self.index(id) {
                let replica = &mut self.replicas[index];
                let before = replica.breaker.fault();
                replica.breaker.trip(Fault::Outlier, now);
                replica.rates.lateness = Belief::default();
                note_circuit(replica, before, &mut changes);
            }
        }
        changes
    }

    /// Panics unless ids are in order, endpoints distinct and every load adds up.
    pub fn check_invariants(&self) {
        assert!(self.replicas.windows(2).all(|pair| pair[0].id < pair[1].id), "ids out of order");
        let mut endpoints: Vec<_> = self.replicas.iter().map(Replica::endpoint).collect();
        endpoints.sort_unstable();
        assert!(endpoints.windows(2).all(|pair| pair[0] != pair[1]), "an endpoint twice");
        assert_eq!(self.models.len(), self.keys.len());
        for replica in &self.replicas {
            replica.load.check_invariants();
            let is_forgotten = replica.is_leaving && replica.load.requests() == 0;
            assert!(!is_forgotten, "{:?} should be gone", replica.id);
        }
    }

    fn index(&self, id: ReplicaId) -> Option<usize> {
        self.replicas.binary_search_by_key(&id, |replica| replica.id).ok()
    }

    /// The replica a ticket counts on, unless another instance took its place.
    fn replica_of(&mut self, ticket: &Ticket) -> Option<&mut Replica> {
        let index = self.index(ticket.replica)?;
        Some(&mut self.replicas[index]).filter(|replica| replica.epoch == ticket.epoch)
    }

    fn join(
        &mut self,
        endpoint: String,
        source: Source,
        models: Vec<String>,
        running_max: Option<u32>,
        changes: &mut Vec<Change>,
    ) {
        let index =
            self.replicas.iter().position(|replica| replica.endpoint == endpoint).unwrap_or_else(|| {
                let id = ReplicaId(self.next_id);
                self.next_id += 1;
                let hash = fnv1a(endpoint.as_bytes());
                self.replicas.push(Replica::new(id, endpoint, hash, self.rules));
                changes.push(Change::Added(id));
                self.replicas.len() - 1
            });
        let replica = &mut self.replicas[index];
        replica.sources |= 1 << source as u8;
        // A source that does not know which models it has takes back nothing that another one demands.
        if !models.is_empty() {
            replica.expected = models;
        }
        replica.running_max = running_max.or(replica.running_max);
        if replica.is_leaving {
            replica.is_leaving = false;
            set_state(replica, State::Joining, "joined_again", changes);
        }
    }

    fn leave(&mut self, endpoint: &str, source: Source, changes: &mut Vec<Change>) {
        let Some(replica) = self.replicas.iter_mut().find(|replica| replica.endpoint == endpoint) else {
            return;
        };
        replica.sources &= !(1 << source as u8);
        if replica.sources == 0 {
            replica.is_leaving = true;
            set_state(replica, State::Draining, "left", changes);
        }
    }

    fn change(
        &mut self,
        id: ReplicaId,
        changes: &mut Vec<Change>,
        to: impl Fn(&mut Replica) -> Option<(State, &'static str)>,
    ) {
        let Some(index) = self.index(id) else { return };
        let replica = &mut self.replicas[index];
        if let Some((state, why)) = to(replica) {
            set_state(replica, state, why, changes);
        }
    }

    fn report(&mut self, id: ReplicaId, report: Report, now: Instant, changes: &mut Vec<Change>) {
        let Some(index) = self.index(id) else { return };
        let models: Vec<_> = report.identity.models.iter().map(|name| self.key(name)).collect();
        for model in &models {
            self.models[model.0 as usize].is_named = true;
        }
        let replica = &mut self.replicas[index];
        let is_other =
            !replica.identity.instance.is_empty() && replica.identity.instance != report.identity.instance;
        if is_other {
            replica.reset(self.rules);
            changes.push(Change::Instance(id));
        }
        replica.models = models;
        replica.identity = report.identity;
        replica.load.report(report.sample, report.at);
        let said = report.sample.prefill_tokens_per_s;
        if replica.said.hear(said, report.at) {
            self.rates.said_tokens_per_s.learn(said.unwrap_or(0.0), report.at);
        }
        // A report is newer knowledge than a 429 that came before it.
        replica.full_until = replica.full_until.filter(|_| report.sample.running.is_none());
        let before = replica.breaker.fault();
        if report.readiness == Readiness::Stalled {
            replica.breaker.trip(Fault::Stalled, now);
        } else {
            replica.breaker.probe_succeeded();
        }
        note_circuit(replica, before, changes);
        let (state, why) = replica.state_after(report.readiness, now);
        set_state(replica, state, why, changes);
    }

    fn probe_failed(&mut self, id: ReplicaId, now: Instant, changes: &mut Vec<Change>) {
        let Some(index) = self.index(id) else { return };
        let replica = &mut self.replicas[index];
        let before = replica.breaker.fault();
        replica.breaker.probe_failed(now);
        note_circuit(replica, before, changes);
    }

    fn key(&mut self, name: &str) -> ModelKey {
        if let Some(&key) = self.keys.get(name) {
            return key;
        }
        let key = ModelKey(self.models.len() as u32);
        self.models.push(Model {
            name: name.to_owned(),
            is_named: false,
            bytes_per_token: Belief::default(),
        });
        self.keys.insert(name.to_owned(), key);
        key
    }

    fn learn_usage(&mut self, ticket: &Ticket, usage: Usage, now: Instant) {
        if let Some(tokens) = usage.prompt_tokens.filter(|&tokens| tokens > 0) {
            let per_token = f64::from(ticket.prompt_bytes) / f64::from(tokens);
            self.models[ticket.model.0 as usize].bytes_per_token.learn(per_token, now);
        }
        self.answer_tokens.learn(f64::from(usage.answer_tokens.unwrap_or(0)), now);
        if let Some(replica) = self.replica_of(ticket) {
            learn::answer(&mut replica.rates, ticket, usage, now);
        }
        learn::answer(&mut self.rates, ticket, usage, now);
    }

    fn forget_empty(&mut self, changes: &mut Vec<Change>) {
        self.replicas.retain(|replica| {
            let is_gone = replica.is_leaving && replica.load.requests() == 0;
            if is_gone {
                changes.push(Change::Gone(replica.id));
            }
            !is_gone
        });
    }
}

fn set_state(replica: &mut Replica, state: State, why: &'static str, changes: &mut Vec<Change>) {
    replica.why = why;
    if replica.state != state {
        replica.state = state;
        changes.push(Change::State(replica.id, state, why));
    }
}

fn note_circuit(replica: &Replica, before: Option<Fault>, changes: &mut Vec<Change>) {
    match (before, replica.breaker.fault()) {
        (None, Some(fault)) => changes.push(Change::Opened(replica.id, fault)),
        (Some(_), None) => changes.push(Change::Closed(replica.id)),
        _ => {}
    }
}

/// FNV-1a, 64 bits: the same in every gateway and version.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests;
