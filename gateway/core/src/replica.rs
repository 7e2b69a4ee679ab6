//! What is believed about one replica: who it is, whether it takes work, its load, its rates, its circuit.

use std::time::Duration;

use shared::id::ReplicaId;
use shared::time::Instant;

use crate::belief::Belief;
use crate::estimate::Outlook;
use crate::fleet::Readiness;
use crate::health::{Breaker, Rules};
use crate::load::Load;
use crate::said::Said;

/// A model name inside one gateway.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ModelKey(pub(crate) u32);

/// What program serves there; decides what it can continue and what it reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Engine {
    /// Our own replica.
    Flotilla,
    /// vLLM.
    Vllm,
    /// `SGLang`.
    Sglang,
    /// llama.cpp's server.
    LlamaCpp,
    /// TensorRT-LLM.
    TensorRt,
    /// Text Generation Inference.
    Tgi,
    /// ollama.
    Ollama,
    /// Something that speaks the OpenAI API.
    #[default]
    Unknown,
}

/// Who answers at an endpoint.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Identity {
    /// Drawn anew at every start; empty where the engine has none.
    pub instance: String,
    /// What serves there.
    pub engine: Engine,
    /// Names of models it answers to.
    pub models: Vec<String>,
    /// What the weights and tokenizer are; empty where unknown.
    pub revision: String,
    /// Arithmetic of the weights; empty where unknown.
    pub dtype: String,
}

/// Whether a replica takes work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Known by its endpoint only, or still loading.
    Joining,
    /// Ready since then, and eased in: its first answers are slow and its cache is cold.
    Warming(Instant),
    /// Takes work.
    Ready,
    /// Finishes what it has and takes nothing new.
    Draining,
}

impl State {
    /// The word for logs and `/fleet`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Joining => "joining",
            Self::Warming(_) => "warming",
            Self::Ready => "ready",
            Self::Draining => "draining",
        }
    }
}

/// How long a new replica is eased in.
pub const WARMING: Duration = Duration::from_secs(10);

/// Beliefs about rates fade slowly (hardware stays), about fixed delays quickly (queues pass).
const RATE_HALF_LIFE: Duration = Duration::from_mins(5);
const DELAY_HALF_LIFE: Duration = Duration::from_secs(30);

/// Learned numbers, of one replica or of the whole fleet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rates {
    /// Prompt tokens a second.
    pub prefill_tokens_per_s: Belief,
    /// The same as replicas say of themselves.
    pub said_tokens_per_s: Belief,
    /// Seconds to the first token that no prompt token explains.
    pub overhead_s: Belief,
    /// Seconds per later token.
    pub tpot_s: Belief,
    /// Seconds a whole answer takes.
    pub answer_s: Belief,
    /// Seconds to the first token, as observed.
    pub ttft_s: Belief,
    /// The same as a multiple of what the fleet's rates explain.
    pub lateness: Belief,
}

/// One replica.
#[derive(Clone, Debug)]
pub struct Replica {
    pub(crate) id: ReplicaId,
    pub(crate) endpoint: String,
    /// Equal in every gateway, for choices that several gateways should make alike.
    pub(crate) endpoint_hash: u64,
    pub(crate) sources: u8,
    pub(crate) identity: Identity,
    pub(crate) models: Vec<ModelKey>,
    pub(crate) expected: Vec<String>,
    /// Grows with each new instance: tickets of an old one no longer count.
    pub(crate) epoch: u32,
    pub(crate) state: State,
    pub(crate) why: &'static str,
    pub(crate) is_drained_by_us: bool,
    pub(crate) is_leaving: bool,
    /// Configured, for engines that do not say how many requests they run at once.
    pub(crate) running_max: Option<u32>,
    /// Full by its own word (429, and no time named) until then.
    pub(crate) full_until: Option<Instant>,
    pub(crate) load: Load,
    pub(crate) rates: Rates,
    pub(crate) said: Said,
    pub(crate) breaker: Breaker,
}

impl Replica {
    pub(crate) fn new(id: ReplicaId, endpoint: String, endpoint_hash: u64, rules: Rules) -> Self {
        Self {
            id,
            endpoint,
            endpoint_hash,
            sources: 0,
            identity: Identity::default(),
            models: Vec::new(),
            expected: Vec::new(),
            epoch: 0,
            state: State::Joining,
            why: "new",
            is_drained_by_us: false,
            is_leaving: false,
            running_max: None,
            full_until: None,
            load: Load::default(),
            rates: Rates::default(),
            said: Said::default(),
            breaker: Breaker::new(rules),
        }
    }

    /// Another process took its place: nothing that was counted or learned holds.
    pub(crate) fn reset(&mut self, rules: Rules) {
        self.epoch += 1;
        self.load = Load::default();
        self.rates = Rates::default();
        self.said = Said::default();
        self.breaker = Breaker::new(rules);
        self.full_until = None;
        self.state = State::Joining;
    }

    /// The state that a report leads to, and the word for why.
    pub(crate) fn state_after(&self, readiness: Readiness, now: Instant) -> (State, &'static str) {
        let is_expected = |name| self.identity.models.contains(name);
        match (readiness, self.state) {
            _ if self.is_leaving => (State::Draining, self.why),
            _ if self.is_drained_by_us => (State::Draining, "operator"),
            _ if !self.expected.iter().all(is_expected) => (State::Joining, "other_models"),
            (Readiness::Loading, _) => (State::Joining, "loading"),
            (Readiness::Draining, _) => (State::Draining, "itself"),
            (_, State::Warming(since)) if now.since(since) < WARMING => (State::Warming(since), "new"),
            (_, State::Warming(_) | State::Ready) => (State::Ready, "reported"),
            (_, State::Joining | State::Draining) => (State::Warming(now), "new"),
        }
    }

    /// Its number in this gateway.
    pub fn id(&self) -> ReplicaId {
        self.id
    }

    /// Where it listens.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Who answers there.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Grows with each new instance.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Whether it takes work, and the word for why.
    pub fn state(&self) -> (State, &'static str) {
        (self.state, self.why)
    }

    /// What is there now.
    pub fn load(&self) -> &Load {
        &self.load
    }

    /// What was learned from its answers.
    pub fn rates(&self) -> &Rates {
        &self.rates
    }

    /// Its circuit.
    pub fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// Whether it takes new work, its circuit apart.
    pub fn is_serving(&self) -> bool {
        matches!(self.state, State::Warming(_) | State::Ready)
    }

    /// Whether it answers to a model.
    pub fn serves(&self, model: ModelKey) -> bool {
        self.models.contains(&model)
    }

    /// Whether a prompt of so many tokens is within its context, as far as it says.
    pub fn fits(&self, prompt_tokens: u32) -> bool {
        self.load.sample().context_tokens_max.is_none_or(|max| max == 0 || prompt_tokens <= max)
    }

    /// The most requests it runs at once, as it says or as configured.
    pub fn running_max(&self) -> Option<u32> {
        self.load.sample().running_max.filter(|&max| max > 0).or(self.running_max)
    }

    /// What a new request would meet, with `prior` for what was not learned here.
    pub fn outlook(&self, prior: &Prior, now: Instant) -> Outlook {
        let learned =
            || self.rates.prefill_tokens_per_s.read(prior.prefill_tokens_per_s, RATE_HALF_LIFE, now);
        let rate = self.said.read(prior.said_tokens_per_s, now).unwrap_or_else(learned).max(1.0);
        let ease = match self.state {
            State::Warming(since) => 1.0 - (now.since(since).as_secs_f64() / WARMING.as_secs_f64()).min(1.0),
            _ => 0.0,
        };
        Outlook {
            queued_tokens: self.load.queued_tokens(rate, prior.prompt_tokens, now),
            prefill_tokens_per_s: rate,
            overhead_s: self.rates.overhead_s.read(prior.overhead_s, DELAY_HALF_LIFE, now),
            answer_s: self.rates.answer_s.read(prior.answer_s, RATE_HALF_LIFE, now),
            occupancy: self.load.occupancy(now),
            running_max: self.running_max(),
            waiting_max: self.load.sample().waiting_max,
            kv: self.load.kv_tokens(now),
            cold: ease,
            is_full: self.full_until.is_some_and(|until| now < until)
                || self.breaker.rests_until(now).is_some(),
        }
    }
}

/// What to assume about a replica that has not shown it yet: what the fleet showed, else constants.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Prior {
    /// Prompt tokens a second.
    pub prefill_tokens_per_s: f64,
    /// The same as replicas say of themselves.
    pub said_tokens_per_s: f64,
    /// Seconds to the first token that no prompt token explains.
    pub overhead_s: f64,
    /// Seconds a whole answer takes.
    pub answer_s: f64,
    /// Prompt tokens of a request that its replica must compute.
    pub prompt_tokens: f64,
}

impl Prior {
    /// From what the whole fleet showed, and the prompt tokens a request had to have computed.
    pub fn of(rates: &Rates, prompt_tokens: &Belief) -> Self {
        let prefill_tokens_per_s = rates.prefill_tokens_per_s.value().unwrap_or(2000.0);
        Self {
            said_tokens_per_s: rates.said_tokens_per_s.value().unwrap_or(prefill_tokens_per_s),
            prompt_tokens: prompt_tokens.value().unwrap_or(500.0),
            prefill_tokens_per_s,
            overhead_s: rates.overhead_s.value().unwrap_or(0.02),
            answer_s: rates.answer_s.value().unwrap_or(5.0),
        }
    }
}
