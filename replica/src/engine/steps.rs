//! The step loop: the thread that owns the scheduler.
//!
//! It decides nothing about who runs (the scheduler does) and computes nothing (the ranks do). It keeps the
//! promise that a fault stays inside its step, and one in a draw inside its sequence.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use replica_core::batch::{Batch, Output as Wanted, Share};
use replica_core::scheduler::{Drawn, Event, Scheduler};
use replica_core::sequence::{Finish, Request};
use shared::id::SequenceId;
use shared::time::Instant;
use tokio::sync::mpsc::Sender;

use super::answers::Answers;
use super::changes::Changes;
use super::clock;
use super::command::{self, Command, Mask};
use super::draw::{Drawer, Drawing};
use super::stats::Stats;
use crate::model::{HostRows, Output};
use crate::parallel::{Group, RankFailure, StepError};

/// How old the told load may be while steps run: it takes a walk over all sequences.
const TELL_EVERY: Duration = Duration::from_millis(10);

/// How long to wait for a command when there are sequences and none can run.
const PAUSE: Duration = Duration::from_millis(5);

/// The engine's ends of what others hold the other ends of.
#[derive(Debug)]
pub struct Ends {
    /// Commands come in here.
    pub inbox: Receiver<Command>,
    /// Numbers are told here.
    pub stats: Arc<Stats>,
    /// What the prefix cache stores and evicts is told here.
    pub changes: Changes,
}

/// All that the engine's thread owns.
#[derive(Debug)]
pub struct Engine {
    scheduler: Scheduler,
    group: Group<Output>,
    inbox: Receiver<Command>,
    answers: Answers,
    stats: Arc<Stats>,
    drawer: Drawer,
    changes: Changes,
    /// When the load was last told.
    told: Instant,
    /// Memory of the step, used again and again.
    batch: Batch,
    drawn: Vec<Drawn>,
    events: Vec<(SequenceId, Event)>,
}

impl Engine {
    /// An idle engine.
    pub fn new(scheduler: Scheduler, group: Group<Output>, threads: usize, ends: Ends) -> Self {
        let mut engine = Self {
            scheduler,
            group,
            inbox: ends.inbox,
            answers: Answers::default(),
            stats: ends.stats,
            drawer: Drawer::new(threads),
            changes: ends.changes,
            told: Instant::ZERO,
            batch: Batch::default(),
            drawn: Vec::new(),
            events: Vec::new(),
        };
        engine.tell_load();
        engine
    }

    /// Runs a short answer that nobody asked for: pages are touched, the pace is measured, and a model whose
    /// logits are no numbers never gets ready. It looks nothing up in the prefix cache and counts nowhere.
    ///
    /// # Errors
    ///
    /// Why it failed.
    pub fn warm_up(&mut self, request: Request) -> Result<(), String> {
        let refused = |refusal| format!("the warm-up was refused: {refusal:?}");
        self.scheduler.add(request).map_err(refused)?;
        while !self.scheduler.is_idle() {
            self.step().map_err(|failure| failure.to_string())?;
            for (_, event) in self.events.drain(..) {
                if let Event::Finished(Finish::Failed(reason)) = event {
                    return Err(reason);
                }
            }
        }
        self.changes.tell(&mut self.scheduler);
        self.tell_load();
        Ok(())
    }

    /// Runs steps until it is drained.
    ///
    /// # Errors
    ///
    /// The rank that ended the group; every open answer has been told.
    pub fn run(&mut self) -> Result<(), RankFailure> {
        while !self.is_drained() {
            self.take_commands();
            self.abort_abandoned();
            match self.step() {
                Ok(took) => self.account(took),
                Err(failure) => return Err(self.fail_all(failure)),
            }
        }
        Ok(())
    }

    fn account(&mut self, took: Duration) {
        if !self.batch.is_empty() {
            self.stats.count_step(self.batch.rows(), took);
        }
        self.publish();
        self.changes.tell(&mut self.scheduler);
        self.stats.note_progress();
        if self.scheduler.is_idle() || clock::now().since(self.told) > TELL_EVERY {
            self.tell_load();
        }
        if self.batch.is_empty() && !self.scheduler.is_idle() {
            self.pause();
        }
    }

    /// Nothing new may come, and what came has ended: in the scheduler, and in the inbox before it.
    fn is_drained(&self) -> bool {
        self.stats.draining.load(Relaxed) && self.stats.outstanding.load(Relaxed) == 0
    }

    /// Empties the inbox; waits for a first command only when there is nothing else to do.
    fn take_commands(&mut self) {
        if self.scheduler.is_idle() {
            if self.stats.draining.load(Relaxed) {
                self.pause();
            } else {
                match self.inbox.recv() {
                    Ok(command) => self.obey(command),
                    Err(_) => self.stats.draining.store(true, Relaxed),
                }
            }
        }
        while let Ok(command) = self.inbox.try_recv() {
            self.obey(command);
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Add { request, answer, mask } => self.add(*request, answer, mask),
            Command::Abort(id) => self.abort(id),
            Command::Drain => self.stats.draining.store(true, Relaxed),
        }
    }

    fn add(&mut self, request: Request, answer: Sender<command::Event>, mask: Option<Mask>) {
        let (id, prompt_tokens) = (request.id, request.tokens.len() as u64);
        self.answers.open(&request, answer, mask);
        match self.scheduler.add(request) {
            Ok(()) => {
                self.stats.prompt_tokens.fetch_add(prompt_tokens, Relaxed);
            }
            // The server checks lengths and the handle counts places, so this is a bug of theirs or a race
            // between two limits; the request hears of it like of any other failure.
            Err(refusal) => {
                self.answers.finish(id, Finish::Failed(format!("not schedulable: {refusal:?}")));
                self.stats.give_place();
            }
        }
    }

    fn abort(&mut self, id: SequenceId) {
        self.scheduler.abort(id);
        if self.answers.close(id) {
            self.stats.give_place();
        }
    }

    fn abort_abandoned(&mut self) {
        let abandoned: Vec<_> = self.answers.abandoned().collect();
        for id in abandoned {
            self.abort(id);
        }
    }

    /// Schedule, run, draw, commit. What happened is in `events`.
    fn step(&mut self) -> Result<Duration, RankFailure> {
        self.scheduler.schedule(clock::now(), &mut self.batch, &mut self.events);
        if self.batch.is_empty() {
            return Ok(Duration::ZERO);
        }
        let started = clock::now();
        match self.group.forward(&self.batch) {
            Ok(output) => self.draw(&output),
            Err(StepError::Step(reason)) => self.fail_step(&reason),
            Err(StepError::Group(failure)) => return Err(failure),
        }
        let ended = clock::now();
        let took = ended.since(started);
        self.scheduler.commit(ended, took, &mut self.drawn, &mut self.events);
        Ok(took)
    }

    /// Draws a token for every share that is due one, and gathers what was asked about prompts.
    fn draw(&mut self, output: &Output) {
        let done = output.logits().and_then(|logits| {
            self.gather_hidden(&output.hidden()?);
            let Self { scheduler, batch, answers, drawn, .. } = self;
            let step = Drawing { device: &output.device, scheduler, batch, logits: &logits };
            self.drawer.draw(step, answers, drawn)
        });
        if let Err(error) = done {
            self.fail_step(&error.to_string());
        }
    }

    fn gather_hidden(&mut self, hidden: &HostRows<'_>) {
        let mut hidden = hidden.iter();
        for share in self.batch.shares.iter().filter(|share| share.output == Wanted::Hidden) {
            for (row, values) in share.rows.clone().zip(&mut hidden) {
                self.answers.add_hidden(share.sequence, self.batch.positions[row], values);
            }
        }
    }

    /// Ends the sequences of this step; the others go on.
    fn fail_step(&mut self, reason: &str) {
        tracing::error!(reason, sequences = self.batch.shares.len(), "a step failed");
        let failed = |share: &Share| (share.sequence, Err(reason.to_owned()));
        self.drawn.extend(self.batch.shares.iter().map(failed));
    }

    /// Ends everything: the ranks cannot run again.
    fn fail_all(&mut self, failure: RankFailure) -> RankFailure {
        tracing::error!(rank = failure.rank, reason = failure.reason, "a rank failed; the group ends");
        while let Ok(command) = self.inbox.try_recv() {
            if let Command::Add { request, answer, mask } = command {
                self.answers.open(&request, answer, mask);
            }
        }
        self.answers.finish_all(&Finish::Failed(failure.to_string()));
        failure
    }

    fn publish(&mut self) {
        for (id, event) in self.events.drain(..) {
            match &event {
                Event::Token(_) => {
                    self.stats.generation_tokens.fetch_add(1, Relaxed);
                }
                Event::Preempted => tracing::info!(sequence = id.0, "preempted: the KV pool is full"),
                Event::Finished(Finish::Failed(reason)) => {
                    tracing::warn!(sequence = id.0, reason, "a sequence failed");
                }
                Event::Started(_) | Event::Finished(_) => {}
            }
            if self.answers.publish(id, event) {
                self.stats.give_place();
            }
        }
    }

    /// Nothing can run now: a command may change that, or time (a deadline).
    fn pause(&mut self) {
        match self.inbox.recv_timeout(PAUSE) {
            Ok(command) => self.obey(command),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => self.stats.draining.store(true, Relaxed),
        }
    }

    fn tell_load(&mut self) {
        self.told = clock::now();
        let load = self.scheduler.load();
        self.stats.running.store(load.running, Relaxed);
        self.stats.waiting_tokens.store(load.waiting_tokens, Relaxed);
        self.stats.blocks_free.store(load.blocks_free, Relaxed);
        self.stats.blocks_total.store(load.blocks, Relaxed);
        let bits = |rate: Option<f64>| rate.unwrap_or(0.0).to_bits();
        self.stats.prefill_rate.store(bits(load.prefill_tokens_per_s), Relaxed);
        self.stats.decode_rate.store(bits(load.decode_tokens_per_s), Relaxed);
        self.stats.preemptions.store(load.preemptions, Relaxed);
        self.stats.prefix_queries.store(load.cache_query_tokens, Relaxed);
        self.stats.prefix_hits.store(load.cache_hit_tokens, Relaxed);
    }
}
