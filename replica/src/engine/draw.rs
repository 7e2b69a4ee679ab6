//! Turns a step's logits into tokens and scores, on all threads that compute.
//!
//! Sequences are drawn for apart from each other, so threads change nothing but the time. A panic in a draw, or
//! a mask that fails, is its sequence's alone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use replica_core::batch::{Batch, Output as Wanted};
use replica_core::sampler::{Sampled, Sampler};
use replica_core::scheduler::{Drawn, Scheduler};

use super::answers::{Answers, Asked};
use crate::kernel::{self, Device};
use crate::model::HostRows;
use crate::parallel::panic_text;

/// Draws; keeps its working memory from step to step.
#[derive(Debug)]
pub struct Drawer {
    /// One a thread: whoever comes takes a free one.
    desks: Vec<Mutex<Desk>>,
    tasks: Vec<Task>,
    outcomes: Vec<Outcome>,
}

#[derive(Default, Debug)]
struct Desk {
    sampler: Sampler,
    logits: Vec<f32>,
    outcomes: Vec<Outcome>,
}

/// What is to be done with one row of logits.
#[derive(Clone, Copy, Debug)]
struct Task {
    share: usize,
    row: usize,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Draw,
    Score(Asked),
}

/// What came of the task at an index.
type Outcome = (usize, Result<Sampled, String>);

/// What a step's draws depend on.
#[derive(Clone, Copy, Debug)]
pub struct Drawing<'a> {
    /// Whose threads to use.
    pub device: &'a Device,
    /// Knows the sequences.
    pub scheduler: &'a Scheduler,
    /// The step.
    pub batch: &'a Batch,
    /// Its logits.
    pub logits: &'a HostRows<'a>,
}

impl Drawer {
    /// For so many threads.
    pub fn new(threads: usize) -> Self {
        let desks = (0..threads.max(1)).map(|_| Mutex::default()).collect();
        Self { desks, tasks: Vec::new(), outcomes: Vec::new() }
    }

    /// Draws a token for every share that is due one into `drawn`, and gives `answers` what was asked about
    /// prompts.
    ///
    /// # Errors
    ///
    /// The threads' own fault; nothing was drawn.
    pub fn draw(
        &mut self,
        step: Drawing<'_>,
        answers: &mut Answers,
        drawn: &mut Vec<Drawn>,
    ) -> kernel::Result<()> {
        self.plan(step, answers);
        let (tasks, desks) = (&self.tasks, &self.desks);
        let told = &*answers;
        step.device.each_on_host(tasks.len(), |index| {
            let mut desk = free_desk(desks, index);
            let outcome = desk.work(step, told, tasks[index]);
            desk.outcomes.push((index, outcome));
        })?;
        for desk in &mut self.desks {
            let desk = desk.get_mut().unwrap_or_else(PoisonError::into_inner);
            self.outcomes.append(&mut desk.outcomes);
        }
        // Scores of one prompt go out in the order of its tokens, whoever worked them out.
        self.outcomes.sort_unstable_by_key(|(index, _)| *index);
        for (index, outcome) in self.outcomes.drain(..) {
            let task = self.tasks[index];
            let id = step.batch.shares[task.share].sequence;
            match (task.kind, outcome) {
                (Kind::Score(_), Ok(score)) => answers.add_score(id, score),
                (_, outcome) => drawn.push((id, outcome)),
            }
        }
        Ok(())
    }

    fn plan(&mut self, step: Drawing<'_>, answers: &Answers) {
        self.tasks.clear();
        let mut row = 0;
        for (share, of) in step.batch.shares.iter().enumerate() {
            if of.output == Wanted::Hidden {
                continue;
            }
            for place in of.output_rows() {
                if of.output == Wanted::Every {
                    let asked = answers.asked_at(of.sequence, step.batch.positions[place]);
                    self.tasks.extend(asked.map(|asked| Task { share, row, kind: Kind::Score(asked) }));
                }
                if place + 1 == of.rows.end && step.scheduler.draws(of) {
                    self.tasks.push(Task { share, row, kind: Kind::Draw });
                }
                row += 1;
            }
        }
    }
}

impl Desk {
    fn work(&mut self, step: Drawing<'_>, answers: &Answers, task: Task) -> Result<Sampled, String> {
        let row = step.logits.row(task.row);
        let worked = catch_unwind(AssertUnwindSafe(|| match task.kind {
            Kind::Score(asked) => {
                self.sampler.score(row, asked.token, asked.top).map_err(|error| error.to_string())
            }
            Kind::Draw => self.draw(step, answers, task.share, row),
        }));
        worked.unwrap_or_else(|panic| Err(panic_text(&*panic)))
    }

    fn draw(
        &mut self,
        step: Drawing<'_>,
        answers: &Answers,
        share: usize,
        row: &[f32],
    ) -> Result<Sampled, String> {
        let share = &step.batch.shares[share];
        self.logits.clear();
        self.logits.extend_from_slice(row);
        if let Some(sequence) = step.scheduler.sequence(share.sequence) {
            answers.mask(share.sequence, sequence.answer(), &mut self.logits)?;
        }
        let drawn = step.scheduler.draw(share, &mut self.logits, &mut self.sampler);
        drawn.map_err(|error| error.to_string())
    }
}

/// There are as many desks as threads, so one is free; near its own number a thread finds one soonest.
fn free_desk(desks: &[Mutex<Desk>], index: usize) -> MutexGuard<'_, Desk> {
    loop {
        for offset in 0..desks.len() {
            match desks[(index + offset) % desks.len()].try_lock() {
                Ok(desk) => return desk,
                Err(std::sync::TryLockError::Poisoned(desk)) => return desk.into_inner(),
                Err(std::sync::TryLockError::WouldBlock) => {}
            }
        }
        std::hint::spin_loop();
    }
}
