//! The server's end of the engine: submit, abort, drain, look. Never waits.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;

use replica_core::sequence::Request;
use shared::id::SequenceId;
use tokio::sync::mpsc;

use super::clock;
use super::command::{Command, Event, Mask};
use super::lost::{Events, Lost};
use super::stats::{Snapshot, Stats};

/// Reaches the engine from any thread; cheap to clone.
#[derive(Clone, Debug)]
pub struct Handle {
    pub(super) inbox: SyncSender<Command>,
    pub(super) stats: Arc<Stats>,
    pub(super) lost: Lost,
    /// The most sequences submitted and not ended: those that run plus those that may wait.
    pub(super) outstanding_max: u32,
}

/// Why the engine takes no new sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// As many wait as may: 429.
    Full,
    /// It finishes what it has: 503.
    Draining,
    /// Its thread is gone or hangs: 503.
    Ended,
}

impl Handle {
    /// Hands a sequence over; its events go to `answer`, whose receiver may be dropped to abort it.
    ///
    /// # Errors
    ///
    /// [`Refusal`], at once.
    pub fn submit(&self, request: Request, answer: mpsc::Sender<Event>) -> Result<(), Refusal> {
        self.submit_masked(request, answer, None)
    }

    /// The same for an answer that is bounded.
    ///
    /// # Errors
    ///
    /// [`Refusal`], at once.
    pub fn submit_masked(
        &self,
        request: Request,
        answer: mpsc::Sender<Event>,
        mask: Option<Mask>,
    ) -> Result<(), Refusal> {
        if self.lost.is_told() {
            return Err(Refusal::Ended);
        }
        if self.stats.draining.load(Relaxed) {
            return Err(Refusal::Draining);
        }
        if !self.stats.take_place(self.outstanding_max) {
            return Err(Refusal::Full);
        }
        let add = Command::Add { request: Box::new(request), answer, mask };
        self.inbox.try_send(add).map_err(|refused| {
            self.stats.give_place();
            match refused {
                TrySendError::Full(_) => Refusal::Full,
                TrySendError::Disconnected(_) => Refusal::Ended,
            }
        })
    }

    /// Stops a sequence; no more events come. The caller drops its receiver too, so that a full inbox
    /// costs one step and no block.
    pub fn abort(&self, id: SequenceId) {
        drop(self.inbox.try_send(Command::Abort(id)));
    }

    /// Takes nothing new from now on; the engine's thread ends once the rest has finished.
    pub fn drain(&self) {
        self.stats.draining.store(true, Relaxed);
        // Only wakes an idle engine: a busy one sees the flag at its next step, whatever its inbox holds.
        drop(self.inbox.try_send(Command::Drain));
    }

    /// What the receiver of an answer hears, with the end of a lost engine in it.
    pub fn events(&self, answer: mpsc::Receiver<Event>) -> Events {
        Events::new(answer, &self.lost)
    }

    /// Gives the engine up: its thread hangs, so every open answer ends with this reason and nothing new is taken.
    pub fn give_up(&self, reason: &str) {
        self.lost.tell(reason);
    }

    /// Whether it takes no more sequences for good: its thread has ended, or was given up.
    pub fn is_over(&self) -> bool {
        self.lost.is_told() || self.stats.ended.load(Relaxed)
    }

    /// The engine's numbers now.
    pub fn snapshot(&self) -> Snapshot {
        self.stats.snapshot()
    }

    /// How long there has been work and no step has ended; zero when all is well or idle.
    pub fn stalled_for(&self) -> Duration {
        self.stats.stalled_for(clock::now())
    }
}
