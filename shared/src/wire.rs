//! What a replica tells a gateway. Everything here crosses a process border: fields are added, never renamed;
//! unknown fields are ignored and absent ones have defaults, so neighbouring versions understand each other.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The body of `GET /fleet/report`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ReplicaReport {
    /// Drawn anew at every start of the process: a recycled address shows itself.
    pub instance: String,
    /// Always `"flotilla"` for ours.
    pub engine: String,
    /// The replica's version.
    pub version: String,
    /// Names it answers to; the first is the model's own.
    pub models: Vec<String>,
    /// What the weights and tokenizer are: equal revisions continue each other's answers.
    pub revision: String,
    /// Arithmetic of the weights as kept, for example `float32` or `q4_1`.
    pub dtype: String,
    /// Whether it takes work.
    pub state: ReplicaState,
    /// Tokens a block.
    pub block_size: u32,
    /// Blocks in the KV pool.
    pub blocks_total: u32,
    /// Blocks that nobody holds (cached ones count as free).
    pub blocks_free: u32,
    /// Longest sequence it accepts, in tokens.
    pub context_tokens_max: u32,
    /// Sequences in the running set, and the most there can be.
    pub running: u32,
    /// See `running`.
    pub running_max: u32,
    /// Sequences that wait, and the most that may.
    pub waiting: u32,
    /// See `waiting`.
    pub waiting_max: u32,
    /// Prompt tokens still to be computed over all sequences.
    pub waiting_tokens: u64,
    /// Measured prefill rate in tokens a second; absent until measured.
    pub prefill_tokens_per_s: Option<f64>,
    /// Measured decode rate in tokens a second over all sequences; absent until measured.
    pub decode_tokens_per_s: Option<f64>,
    /// Sequence number of the newest event of `/fleet/events`.
    pub events_seq: u64,
    /// One a rank of the tensor-parallel group.
    pub ranks: Vec<RankReport>,
}

/// One rank's memory.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RankReport {
    /// Index in the group.
    pub rank: u32,
    /// Where it runs, for example `cpu` or `cuda:0`.
    pub device: String,
    /// Bytes of weights it holds.
    pub weight_bytes: u64,
    /// Bytes of KV pool it holds.
    pub kv_bytes: u64,
}

/// Whether a replica takes work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReplicaState {
    /// Loading weights or warming up.
    #[default]
    Loading,
    /// Takes work.
    Ready,
    /// Finishes what it has and takes nothing new.
    Draining,
    /// Work is queued and the engine makes no progress.
    Stalled,
}

/// Header by which a gateway asks a stream for what it would need to go on elsewhere. Each event then has a field
/// [`CONTINUATION_FIELD`] with an [`EventTokens`]; the gateway keeps it and strips it.
pub const CONTINUE_HEADER: &str = "x-flotilla-continue";

/// Private field of a stream's events ([`EventTokens`]) and of a request that goes on ([`Continuation`]).
pub const CONTINUATION_FIELD: &str = "flotilla";

/// What an event of a stream is made of. Events of answers that can't go on (several choices, echo) have none.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EventTokens {
    /// The seed of the answer: the client's or a drawn one.
    pub seed: u64,
    /// Tokens since the last event. Some of their text may still be held back: it comes with later events, here
    /// or elsewhere.
    pub ids: Vec<u32>,
}

/// Put into the first request's body, with all else as it was (`max_tokens` too: it counts these tokens). The
/// answer then begins after these tokens, without a role and without anything they have shown.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Continuation {
    /// All ids of the events so far, in order.
    pub answer_ids: Vec<u32>,
    /// See [`EventTokens::seed`].
    pub seed: u64,
}

/// One event of `GET /fleet/events` (a stream of `data:` lines): pieces of prompt text whose KV came or went.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PieceEvents {
    /// Counts up by one; a gap means resync.
    pub seq: u64,
    /// The instance it belongs to.
    pub instance: String,
    /// Drop everything known before applying this.
    pub reset: bool,
    /// Pieces now held, as 32 hex digits each.
    pub stored: Vec<String>,
    /// Pieces no longer held.
    pub evicted: Vec<String>,
}

/// The body of `POST /fleet` on a gateway's admin port: a replica that joins or renews its lease.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Registration {
    /// Where the replica listens, for example `http://10.0.0.5:8001`.
    pub url: String,
    /// Its engine; absent: found out by asking.
    pub engine: Option<String>,
    /// Seconds after which it is forgotten unless it renews; absent: it stays until removed.
    pub lease_s: Option<u32>,
}

/// The body of `GET /routing` on a gateway's admin port: which policy each model follows.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PolicyList {
    /// The policy of models that have none of their own.
    pub policy: String,
    /// The others', by model.
    pub models: BTreeMap<String, String>,
}

/// The body of `POST /routing`: another policy, from the next request on.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PolicyChange {
    /// Of which model; absent: of all that have none of their own.
    pub model: Option<String>,
    /// Which; absent: the model follows the others again.
    pub policy: Option<String>,
}

/// The body of `GET /scale`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ScaleList {
    /// One a model, in the order they were first served.
    pub models: Vec<ScaleEntry>,
}

/// How many replicas one model has and wants.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ScaleEntry {
    /// The model.
    pub model: String,
    /// Replicas that name it, whatever their state.
    pub replicas: u32,
    /// Those of them that take work.
    pub replicas_ready: u32,
    /// Replicas it should have, damped: an autoscaler may follow it as it is.
    pub replicas_wanted: u32,
    /// Work there is, in replicas' worth.
    pub load: f64,
    /// Requests that wait in the gateway.
    pub waiting: u32,
    /// Requests a second its replicas can answer within the SLO; absent until enough was seen.
    pub requests_per_s_max: Option<f64>,
}

/// The body of `GET /fleet`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FleetList {
    /// One a replica, in the order they joined.
    pub replicas: Vec<FleetEntry>,
}

/// What a gateway believes about one replica: an element of `GET /fleet`, and the body of `GET /fleet/{id}`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FleetEntry {
    /// Its name on every route and label: host and port.
    pub id: String,
    /// Where it listens.
    pub url: String,
    /// How it came here: `config`, `flag`, `admin`, `lease` or a discovery's name.
    pub source: String,
    /// The engine it runs; empty until known.
    pub engine: String,
    /// Drawn anew at every start of its process; empty where the engine has none.
    pub instance: String,
    /// Names it answers to.
    pub models: Vec<String>,
    /// `joining`, `warming`, `ready`, `draining`, `ejected` or `down`.
    pub state: String,
    /// Why it is in that state, in a few words.
    pub why: String,
    /// Requests this gateway has there now.
    pub in_flight: u32,
    /// Sequences it runs, by its own word.
    pub running: Option<u32>,
    /// Sequences that wait there, by its own word.
    pub waiting: Option<u32>,
    /// Part of its KV pool in use, 0 to 1.
    pub kv_usage: Option<f64>,
    /// Milliseconds since its last report; absent: it never gave one.
    pub age_ms: Option<u64>,
    /// Learned prefill rate in tokens a second.
    pub prefill_tokens_per_s: Option<f64>,
    /// Learned decode rate in tokens a second.
    pub decode_tokens_per_s: Option<f64>,
    /// Whether an answer broken here can go on elsewhere, and how: `tokens`, `text` or `no`.
    pub continues: String,
    /// Whether its prefix cache keeps tenants apart by a salt.
    pub isolates_tenants: bool,
}
