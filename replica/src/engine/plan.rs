//! What is to run, and how: options held against the model, and the model built from them on every rank.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use replica_core::batch::Batch;
use replica_core::scheduler::{Limits, Policy, Scheduler};
use replica_format::facts::ModelFacts;
use shared::wire::RankReport;

use super::kv_cache::{self, KvPlan};
use crate::kernel::{Device, KvKind};
use crate::model::{Decoder, Loader, Model, Output, Precision, Split, blueprint, fake};
use crate::parallel::{Collective, Group, RankFailure, Run, Times, self_test};
use crate::weights::Checkpoint;

/// How long ranks wait for each other at the start before the group ends.
const JOIN: Duration = Duration::from_secs(30);
const LOAD: Duration = Duration::from_mins(30);

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

/// Where ranks compute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// On threads of this machine's processor, divided among the ranks.
    Cpu,
    /// On CUDA devices, one a rank, from the first visible one on.
    #[cfg(feature = "cuda")]
    Cuda,
}

impl Place {
    /// CUDA where the build and the machine have it, else the processor.
    pub fn best() -> Self {
        Self::cuda().unwrap_or(Self::Cpu)
    }

    /// CUDA.
    ///
    /// # Errors
    ///
    /// Why there is none.
    #[cfg(feature = "cuda")]
    pub fn cuda() -> Result<Self, String> {
        Device::cuda(0).map(|_| Self::Cuda).map_err(|error| error.to_string())
    }

    /// CUDA.
    ///
    /// # Errors
    ///
    /// This build has none.
    #[cfg(not(feature = "cuda"))]
    pub fn cuda() -> Result<Self, String> {
        Err("this build computes on the CPU only".to_owned())
    }
}

/// How to run it.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where.
    pub place: Place,
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
    /// How long ranks wait for each other in a step before the group ends.
    pub step_timeout: Duration,
    /// Who goes first.
    pub policy: Policy,
    /// Whether prefixes are found again.
    pub prefix_caching: bool,
}

/// Options that have been found to agree with the model.
#[derive(Clone, Debug)]
pub struct Plan {
    /// As given.
    pub options: Options,
    facts: ModelFacts,
    kv: KvPlan,
    /// What the scheduler may use.
    pub limits: Limits,
}

impl Plan {
    /// Holds options against the model.
    ///
    /// # Errors
    ///
    /// One line for the operator.
    pub fn new(options: Options) -> Result<Self, String> {
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
    pub fn rank_threads(&self) -> usize {
        (self.options.threads / self.options.ranks as usize).max(1)
    }

    #[cfg_attr(not(feature = "cuda"), expect(clippy::unnecessary_wraps, reason = "a CUDA device may fail"))]
    #[cfg_attr(not(feature = "cuda"), expect(unused_variables, reason = "ranks on the CPU are all alike"))]
    fn device(&self, rank: usize) -> Result<Device, String> {
        match self.options.place {
            Place::Cpu => Ok(Device::cpu(self.rank_threads())),
            #[cfg(feature = "cuda")]
            Place::Cuda => Device::cuda(rank).map_err(|error| error.to_string()),
        }
    }

    /// Builds the model on every rank; each reports what it holds.
    ///
    /// # Errors
    ///
    /// The rank that could not be built.
    pub fn group(
        self,
        progress: impl Fn(u64) + Send + Sync + 'static,
        reports: Arc<Mutex<Vec<RankReport>>>,
    ) -> Result<Group<Output>, RankFailure> {
        let done = AtomicU64::new(0);
        let ranks = self.options.ranks as usize;
        let times = Times { join: JOIN, load: LOAD, step: self.options.step_timeout };
        Group::start(ranks, times, move |mut seat| {
            let device = self.device(seat.rank())?;
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
