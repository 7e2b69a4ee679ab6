//! From options to a running engine: split, load on every rank, make the KV pool, warm up.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use replica_core::batch::Batch;
use replica_core::sampler::Sampling;
use replica_core::scheduler::{Limits, Policy, Scheduler};
use replica_core::sequence::{Request, Wants};
use replica_format::facts::ModelFacts;
use shared::id::{BlockHash, SequenceId};
use shared::wire::RankReport;

use super::changes::{Cached, Changes};
use super::kv_cache::{self, KvPlan};
use super::stats::Stats;
use super::steps::{Ends, Engine};
use super::{Handle, clock};
use crate::kernel::{Device, KvKind};
use crate::model::{Decoder, Loader, Model, Output, Precision, Split, blueprint, fake};
use crate::parallel::{Collective, Group, RankFailure, Run, Times, self_test};
use crate::weights::Checkpoint;

/// How long ranks wait for each other before the group ends.
const TIMES: Times =
    Times { join: Duration::from_secs(30), load: Duration::from_mins(30), step: Duration::from_mins(2) };

/// Blocks that must stay free for each running sequence when one is admitted.
const RESERVE_BLOCKS: u32 = 1;

/// What to run.
#[derive(Clone, Debug)]
pub enum Source {
    /// No weights.
    Fake(fake::Delay),
    /// A real model.
    Checkpoint(Arc<Checkpoint>),
}

/// How to run it.
#[derive(Clone, Debug)]
pub struct Options {
    /// The model.
    pub source: Source,
    /// What its weights become in memory.
    pub precision: Precision,
    /// What its keys and values are kept as; by `precision` where absent.
    pub kv_kind: Option<KvKind>,
    /// Bytes of KV pool over all ranks.
    pub kv_bytes: u64,
    /// Tokens of a block, a multiple of 32.
    pub block_tokens: u32,
    /// Ranks.
    pub ranks: u32,
    /// Compute threads, divided among the ranks.
    pub threads: usize,
    /// Longest sequence; the model's own context where absent.
    pub context_tokens_max: Option<u32>,
    /// Most sequences that run at once.
    pub running_max: u32,
    /// Most that wait.
    pub waiting_max: u32,
    /// Most rows of a step.
    pub step_tokens_max: u32,
    /// How long a step should take at most.
    pub step_target: Option<Duration>,
    /// Who goes first.
    pub policy: Policy,
    /// Whether prefixes are found again.
    pub prefix_caching: bool,
}

/// A running engine.
#[derive(Debug)]
pub struct Started {
    /// To reach it by.
    pub handle: Handle,
    /// What it may use: context, blocks.
    pub limits: Limits,
    /// What each rank holds.
    pub ranks: Vec<RankReport>,
    /// What the prefix cache stores and evicts from now on. May be dropped.
    pub cached: tokio::sync::mpsc::Receiver<Cached>,
    /// Ends when drained, or with the rank that failed.
    pub thread: JoinHandle<Result<(), RankFailure>>,
}

/// Why there is no engine: one line.
#[derive(Debug)]
pub struct StartError(pub String);

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}

/// Loads, warms up, and gives an engine that takes work. Blocks for as long as that takes; `progress` is told
/// the bytes of weights read so far, from any rank's thread.
///
/// # Errors
///
/// One line for the operator.
pub fn start(
    options: Options,
    progress: impl Fn(u64) + Send + Sync + 'static,
) -> Result<Started, StartError> {
    let plan = Plan::new(options).map_err(StartError)?;
    let stats = Arc::new(Stats::default());
    let outstanding_max = plan.limits.waiting_max;
    // Every outstanding sequence may be added and aborted before the engine looks.
    let (sender, inbox) = sync_channel(2 * outstanding_max as usize + 16);
    let handle = Handle { inbox: sender, stats: Arc::clone(&stats), outstanding_max };
    let limits = plan.limits;
    let (tell, told) = sync_channel(1);
    let (changes, cached) = Changes::new();
    let ends = Ends { inbox, stats, changes };
    let live = move || live(plan, progress, ends, |ready| drop(tell.send(ready)));
    let thread = thread::Builder::new()
        .name("engine".to_owned())
        .spawn(live)
        .map_err(|error| StartError(format!("the engine's thread could not start: {error}")))?;
    let ranks = told.recv().map_err(|_| StartError("the engine's thread panicked".to_owned()))??;
    Ok(Started { handle, limits, ranks, cached, thread })
}

/// The life of the engine's thread.
fn live(
    plan: Plan,
    progress: impl Fn(u64) + Send + Sync + 'static,
    ends: Ends,
    ready: impl FnOnce(Result<Vec<RankReport>, StartError>),
) -> Result<(), RankFailure> {
    let _ended = Ended(Arc::clone(&ends.stats));
    let (limits, threads) = (plan.limits, plan.rank_threads());
    let reports = Arc::new(Mutex::new(Vec::new()));
    let group = match plan.group(progress, Arc::clone(&reports)) {
        Ok(group) => group,
        Err(failure) => {
            ready(Err(StartError(failure.to_string())));
            return Err(failure);
        }
    };
    let mut engine = Engine::new(Scheduler::new(limits), group, threads, ends);
    if let Err(reason) = engine.warm_up(warm_up_request(&limits)) {
        ready(Err(StartError(format!("the warm-up failed: {reason}"))));
        return Err(RankFailure { rank: 0, reason });
    }
    let mut ranks = std::mem::take(&mut *reports.lock().unwrap_or_else(PoisonError::into_inner));
    ranks.sort_by_key(|report: &RankReport| report.rank);
    ready(Ok(ranks));
    engine.run()
}

/// Says so when the engine's thread ends, however it does.
struct Ended(Arc<Stats>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.ended.store(true, Relaxed);
    }
}

/// A prompt of a block and a bit, every row's logits, and two tokens more.
fn warm_up_request(limits: &Limits) -> Request {
    let prompt_tokens = (limits.block_tokens + 8).min(limits.context_tokens_max.saturating_sub(2)).max(1);
    Request {
        id: SequenceId(u64::MAX),
        tokens: vec![0; prompt_tokens as usize],
        answered: 0,
        answer_tokens_max: 2,
        answer_tokens_min: 2,
        stop_tokens: Vec::new(),
        sampling: Sampling { temperature: 0.0, ..Sampling::default() },
        chain_seed: BlockHash(u128::MAX),
        priority: 0,
        arrival: clock::now(),
        deadline: None,
        wants: Wants::PromptLogprobs,
    }
}

/// Options that have been found to agree with the model.
#[derive(Clone, Debug)]
struct Plan {
    options: Options,
    facts: ModelFacts,
    kv: KvPlan,
    limits: Limits,
}

impl Plan {
    fn new(options: Options) -> Result<Self, String> {
        let facts = match &options.source {
            Source::Fake(_) => fake::facts(options.context_tokens_max.unwrap_or(8192)),
            Source::Checkpoint(checkpoint) => checkpoint.facts.clone(),
        };
        Split::check(options.ranks, &facts)?;
        let kind = options.kv_kind.unwrap_or(kv_cache::kind_for(options.precision));
        let kv = KvPlan::new(&facts, kind, options.kv_bytes, options.block_tokens, options.ranks)?;
        let limits = Limits {
            blocks: kv.blocks,
            block_tokens: kv.block_tokens,
            running_max: options.running_max,
            // The handle counts those that run too; the scheduler's own bound must not be the narrower one.
            waiting_max: options.running_max.saturating_add(options.waiting_max),
            context_tokens_max: options.context_tokens_max.unwrap_or(facts.context_tokens),
            step_tokens_max: options.step_tokens_max,
            step_target: options.step_target,
            policy: options.policy,
            prefix_caching: options.prefix_caching,
            reserve_blocks: RESERVE_BLOCKS,
        };
        let limits = *Scheduler::new(limits).limits();
        Ok(Self { options, facts, kv, limits })
    }

    /// Compute threads of one rank.
    fn rank_threads(&self) -> usize {
        (self.options.threads / self.options.ranks as usize).max(1)
    }

    /// Builds the model on every rank.
    fn group(
        self,
        progress: impl Fn(u64) + Send + Sync + 'static,
        reports: Arc<Mutex<Vec<RankReport>>>,
    ) -> Result<Group<Output>, RankFailure> {
        let done = AtomicU64::new(0);
        let ranks = self.options.ranks as usize;
        Group::start(ranks, TIMES, move |mut seat| {
            let device = Device::cpu(self.rank_threads());
            self_test(&device, &mut *seat).map_err(|fault| fault.to_string())?;
            let progress = |bytes: u64| progress(done.fetch_add(bytes, Relaxed) + bytes);
            let (run, report) = self.rank(&device, seat, &progress)?;
            reports.lock().unwrap_or_else(PoisonError::into_inner).push(report);
            Ok(run)
        })
    }

    /// One rank's model and KV.
    fn rank(
        &self,
        device: &Device,
        mut seat: Box<dyn Collective>,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(Run<Output>, RankReport), String> {
        let split = Split { rank: seat.rank(), ranks: seat.ranks() };
        let (mut model, weight_bytes) = self.model(device, split, progress)?;
        let mut kv = match &self.options.source {
            Source::Fake(_) => Vec::new(),
            Source::Checkpoint(_) => {
                self.kv.allocate(device, &self.facts, split).map_err(|error| error.to_string())?
            }
        };
        let report = RankReport {
            rank: split.rank as u32,
            device: device.describe(),
            weight_bytes,
            kv_bytes: self.kv.rank_bytes,
        };
        let run = Box::new(move |batch: &Batch| model.forward(batch, &mut kv, &mut *seat));
        Ok((run, report))
    }

    fn model(
        &self,
        device: &Device,
        split: Split,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(Box<dyn Model>, u64), String> {
        let checkpoint = match &self.options.source {
            Source::Fake(delay) => {
                let (blocks, block_tokens) = (self.kv.blocks as usize, self.kv.block_tokens as usize);
                return Ok((Box::new(fake::Fake::new(device.clone(), *delay, blocks, block_tokens)), 0));
            }
            Source::Checkpoint(checkpoint) => checkpoint,
        };
        let precision = self.options.precision;
        let loader = Loader { checkpoint, device, precision, split, progress, held_bytes: Cell::new(0) };
        let decoder = Decoder::load(&loader, &blueprint(&self.facts), self.limits.context_tokens_max);
        let decoder = decoder.map_err(|error| error.to_string())?;
        Ok((Box::new(decoder), loader.held_bytes.get()))
    }
}
