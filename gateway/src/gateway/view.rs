//! What can be seen of the fleet, by clients and operators.

use super::{Gateway, Peer};
use crate::engine;
use crate::telemetry::NO_MODEL;
use gateway_core::continuation::{Api, continues_text};
use gateway_core::health::Circuit;
use gateway_core::replica::{Engine, ModelKey, Replica, State};
use shared::time::Instant;
use shared::wire::FleetEntry;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Why a model can't be routed to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoModel {
    /// Somebody may yet turn out to serve it: a replica has not said what it serves.
    NotYet,
    /// All have said, and none serves it.
    Unknown,
}

impl Gateway {
    /// The key of a model by name; with a hold, also of one that nobody has named yet.
    pub fn model(&self, name: &str) -> Result<ModelKey, NoModel> {
        let holds = !self.config.load().queue.hold.is_zero();
        let mut core = self.core();
        if let Some(key) = core.fleet.model(name) {
            return Ok(key);
        }
        let is_open = |replica: &Replica| replica.identity().models.is_empty();
        let replicas = core.fleet.replicas();
        if !replicas.is_empty() && !replicas.iter().any(is_open) {
            return Err(NoModel::Unknown);
        }
        let expected = if holds { core.fleet.expect(name) } else { None };
        expected.ok_or(NoModel::NotYet)
    }

    /// The label of a model: only a name that a replica gave is one, since clients could make any number of others.
    pub fn model_label<'a>(&self, model: &'a str) -> &'a str {
        if self.core().fleet.model(model).is_some() { model } else { NO_MODEL }
    }

    /// The model of a request that names none, when there is only one to mean.
    pub fn only_model(&self) -> Option<(String, ModelKey)> {
        let core = self.core();
        let mut first_names: Vec<&String> =
            core.fleet.replicas().iter().filter_map(|replica| replica.identity().models.first()).collect();
        first_names.sort_unstable();
        first_names.dedup();
        match first_names.as_slice() {
            [name] => core.fleet.model(name).map(|key| ((*name).clone(), key)),
            _ => None,
        }
    }

    /// Whether some replica takes work for a model.
    pub fn serves(&self, model: ModelKey) -> bool {
        self.core().fleet.replicas().iter().any(|replica| replica.is_serving() && replica.serves(model))
    }

    /// Names of the models served now.
    pub fn models(&self) -> Vec<String> {
        self.core().fleet.models_served().map(|(name, _)| name.to_owned()).collect()
    }

    /// Models and how many replicas take work for each.
    pub fn ready_replicas(&self) -> Vec<(String, usize)> {
        let core = self.core();
        let count = |key| core.fleet.replicas().iter().filter(|r| r.is_serving() && r.serves(key)).count();
        core.fleet.models_served().map(|(name, key)| (name.to_owned(), count(key))).collect()
    }

    /// Whether some replica takes work.
    pub fn is_ready(&self) -> bool {
        !self.is_draining.load(Ordering::Relaxed) && self.core().fleet.is_ready()
    }

    /// Replicas of a model that are left alone, and for how long yet.
    pub fn ejected(&self, model: ModelKey) -> Vec<(String, Duration)> {
        let now = self.now();
        let core = self.core();
        let of_model = core.fleet.replicas().iter().filter(|replica| replica.serves(model));
        let open = of_model.filter_map(|replica| match replica.breaker().circuit(now) {
            Circuit::Open(until) => {
                let peer = core.peers.get(&replica.id())?;
                Some((peer.endpoint.authority.clone(), until.since(now)))
            }
            Circuit::Closed | Circuit::Probing { .. } => None,
        });
        open.collect()
    }

    /// The fleet as operators see it.
    pub fn entries(&self) -> Vec<FleetEntry> {
        let now = self.now();
        let core = self.core();
        let entry = |replica: &Replica| Some(entry(replica, core.peers.get(&replica.id())?, now));
        core.fleet.replicas().iter().filter_map(entry).collect()
    }
}

fn entry(replica: &Replica, peer: &Peer, now: Instant) -> FleetEntry {
    let identity = replica.identity();
    let sample = replica.load().sample();
    let (state, why) = replica.state();
    let fault = replica.breaker().fault();
    let (state, why) = match (replica.breaker().circuit(now), fault) {
        (Circuit::Open(_), Some(fault)) if state != State::Draining => ("ejected", fault.what()),
        _ => (state.word(), why),
    };
    let continues = match identity.engine {
        Engine::Flotilla => "tokens",
        other if continues_text(other, Api::Chat) || continues_text(other, Api::Completions) => "text",
        _ => "no",
    };
    FleetEntry {
        id: peer.endpoint.authority.clone(),
        url: peer.endpoint.url(),
        source: peer.source.to_owned(),
        engine: if identity.models.is_empty() { "" } else { engine::word(identity.engine) }.to_owned(),
        instance: identity.instance.clone(),
        models: identity.models.clone(),
        state: state.to_owned(),
        why: why.to_owned(),
        in_flight: replica.load().requests(),
        running: sample.running,
        waiting: sample.waiting,
        kv_usage: sample.kv_usage,
        age_ms: replica.load().sampled_at().map(|at| now.since(at).as_millis() as u64),
        prefill_tokens_per_s: replica.rates().prefill_tokens_per_s.value(),
        decode_tokens_per_s: replica.rates().tpot_s.value().map(|seconds| 1.0 / seconds),
        continues: continues.to_owned(),
        isolates_tenants: engine::knows_cache_salt(identity.engine),
    }
}
