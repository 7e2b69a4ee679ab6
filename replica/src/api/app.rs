//! What all requests share: the model once it is loaded, the state, the counters.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use shared::id::SequenceId;
use shared::wire::{ReplicaReport, ReplicaState};
use tokio::sync::Semaphore;
use traces::Tracer;

use super::pieces::Held;
use super::route::Route;
use super::served::Served;
use crate::config::{BLOCK_TOKENS, Config, Device, ModelSource};
use crate::engine::Snapshot;
use crate::error::Error;
use crate::telemetry::cards::Cards;
use crate::telemetry::metrics::Metrics;

/// No step has ended for this long although there is work: not ready any more.
const STALLED_AFTER: Duration = Duration::from_secs(10);
/// Requests that are parsed and tokenised at once, off the async threads.
const UNDERSTANDING_MAX: usize = 4;
/// The longest and shortest wait that a refusal asks for.
const RETRY_AFTER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

/// Shared by all connections.
#[derive(Debug)]
pub struct App {
    /// As checked.
    pub config: Config,
    /// Everything that is counted.
    pub metrics: Arc<Metrics>,
    /// The cards that it uses.
    pub cards: Cards,
    /// Drawn at every start.
    pub instance: String,
    /// Seconds since 1970 when it started.
    pub created: u64,
    /// Where traces go; absent: nothing is gathered for them.
    pub tracer: Option<Tracer>,
    /// Pieces of text whose KV is here.
    pub held: Arc<Held>,
    served: OnceLock<Arc<Served>>,
    draining: AtomicBool,
    sequences: AtomicU64,
    understanding: Arc<Semaphore>,
}

/// The cards to watch: none on CPU.
fn cards(config: &Config) -> Cards {
    let is_cuda = config.device == Device::Cuda || (config.device == Device::Auto && cfg!(feature = "cuda"));
    if !is_cuda {
        return Cards::default();
    }
    Cards::watch(std::env::var("CUDA_VISIBLE_DEVICES").ok(), config.tensor_parallel_size)
}

impl App {
    /// A replica that is still loading.
    pub fn new(config: Config) -> Self {
        let instance = uuid::Uuid::new_v4().simple().to_string();
        Self {
            metrics: Arc::new(Metrics::new(&model_names(&config)[0], &Route::ALL.map(Route::name))),
            cards: cards(&config),
            config,
            held: Arc::new(Held::new(&instance)),
            instance,
            tracer: None,
            created: unix_time(),
            served: OnceLock::new(),
            draining: AtomicBool::new(false),
            sequences: AtomicU64::new(1),
            understanding: Arc::new(Semaphore::new(UNDERSTANDING_MAX)),
        }
    }

    /// The model is in memory and has answered once: requests may come.
    pub fn open(&self, served: Arc<Served>) {
        assert!(self.served.set(served).is_ok(), "a model is loaded once");
    }

    /// Takes nothing new from now on.
    pub fn drain(&self) {
        self.draining.store(true, Relaxed);
        if let Some(served) = self.served.get() {
            served.engine.drain();
        }
    }

    /// Whether work is taken.
    pub fn state(&self) -> ReplicaState {
        if self.draining.load(Relaxed) {
            return ReplicaState::Draining;
        }
        match self.served.get() {
            Some(served) if served.engine.stalled_for() > STALLED_AFTER => ReplicaState::Stalled,
            Some(served) if served.engine.is_over() => ReplicaState::Stalled,
            Some(_) => ReplicaState::Ready,
            None => ReplicaState::Loading,
        }
    }

    /// The model, once it is there; draining or stalled, it still is.
    pub fn loaded(&self) -> Result<&Arc<Served>, Error> {
        self.served.get().ok_or_else(|| Error::unavailable("loading its model"))
    }

    /// The model, if requests may come now.
    pub fn served(&self) -> Result<&Arc<Served>, Error> {
        if self.state() == ReplicaState::Draining {
            return Err(Error::unavailable("draining"));
        }
        self.loaded()
    }

    /// A name for one more sequence.
    pub fn next_sequence(&self) -> SequenceId {
        SequenceId(self.sequences.fetch_add(1, Relaxed))
    }

    /// Runs work of a long body (parsing, tokenising) where it holds up no other connection.
    pub async fn understand<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let permit = self.understanding.clone().acquire_owned().await;
        let done = tokio::task::spawn_blocking(move || {
            let done = work();
            drop(permit);
            done
        });
        done.await.unwrap_or_else(|_| Err(Error::failed("the request could not be understood")))
    }

    /// When a place in the queue is likely: the time to compute what waits.
    pub fn queue_wait(&self, served: &Served) -> Duration {
        let Snapshot { waiting_tokens, prefill_tokens_per_s, .. } = served.engine.snapshot();
        let seconds = waiting_tokens as f64 / prefill_tokens_per_s.unwrap_or(f64::INFINITY);
        Duration::from_secs_f64(seconds.min(3600.0)).clamp(RETRY_AFTER.0, RETRY_AFTER.1)
    }

    /// The engine's numbers; zeros while loading.
    pub fn snapshot(&self) -> Snapshot {
        self.served.get().map(|served| served.engine.snapshot()).unwrap_or_default()
    }

    /// What a gateway wants to know.
    pub fn report(&self) -> ReplicaReport {
        let seen = self.snapshot();
        let served = self.served.get();
        ReplicaReport {
            instance: self.instance.clone(),
            engine: "flotilla".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            models: model_names(&self.config),
            revision: served.map(|served| served.revision.clone()).unwrap_or_default(),
            dtype: served.map(|served| served.dtype.clone()).unwrap_or_default(),
            state: self.state(),
            block_size: BLOCK_TOKENS,
            blocks_total: seen.blocks_total,
            blocks_free: seen.blocks_free,
            context_tokens_max: served.map_or(0, |served| served.limit_tokens()),
            running: seen.running,
            running_max: self.config.running_max,
            waiting: seen.waiting,
            waiting_max: self.config.queue_max,
            waiting_tokens: seen.waiting_tokens,
            prefill_tokens_per_s: seen.prefill_tokens_per_s,
            decode_tokens_per_s: seen.decode_tokens_per_s,
            events_seq: self.held.seq(),
            ranks: served.map(|served| served.ranks.clone()).unwrap_or_default(),
        }
    }
}

/// The names a model answers to: those given, else its file's or folder's.
pub fn model_names(config: &Config) -> Vec<String> {
    if !config.served_names.is_empty() {
        return config.served_names.clone();
    }
    vec![match &config.model {
        ModelSource::Fake(_) => "fake".to_owned(),
        ModelSource::Path(path) => {
            let name = if path.is_dir() { path.file_name() } else { path.file_stem() };
            name.map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
        }
    }]
}

/// Seconds since 1970.
pub fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
