//! From options to a running engine: its thread, its channels, its warm-up.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use replica_core::sampler::Sampling;
use replica_core::scheduler::{Limits, Scheduler};
use replica_core::sequence::{Request, Wants};
use shared::id::{BlockHash, SequenceId};
use shared::wire::RankReport;

use super::changes::{Cached, Changes};
use super::lost::Lost;
use super::plan::{Options, Plan};
use super::stats::Stats;
use super::steps::{Ends, Engine};
use super::{Handle, clock};
use crate::parallel::RankFailure;

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
    let handle = Handle { inbox: sender, stats: Arc::clone(&stats), lost: Lost::default(), outstanding_max };
    let limits = plan.limits;
    let (tell, told) = sync_channel(1);
    let (changes, cached) = Changes::new();
    let ends = Ends { inbox, stats, changes };
    let live = move || live(plan, progress, ends, |ready| drop(tell.send(ready)));
    let thread = thread::Builder::new()
        .name("engine".to_owned())
        .spawn(live)
        .map_err(|error| StartError(format!("the engine's thread could not start: {error}")))?;
    // Ranks have deadlines for each other, and a thread that dies hangs up; loading itself takes what it takes.
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
    let (limits, ranks, threads) = (plan.limits, plan.options.ranks, plan.rank_threads());
    let reports = Arc::new(Mutex::new(Vec::new()));
    let group = match plan.group(progress, Arc::clone(&reports)) {
        Ok(group) => group,
        Err(failure) => {
            // Without others the number says nothing.
            let text = if ranks == 1 { failure.reason.clone() } else { failure.to_string() };
            ready(Err(StartError(text)));
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
        wants: Wants::PromptLogprobs(0),
    }
}
