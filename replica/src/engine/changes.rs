//! Tells whoever follows the prefix cache what came and went.
//!
//! Bounded: a follower that falls behind misses changes, and then gets the whole instead of a gap.

use replica_core::prefix_cache::Change;
use replica_core::scheduler::Scheduler;
use shared::id::BlockHash;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Messages a follower may be behind.
const BEHIND_MAX: usize = 256;

/// What a follower hears.
#[derive(PartialEq, Eq, Debug)]
pub enum Cached {
    /// Since the last message, in order.
    Changed(Vec<Change>),
    /// Everything that can be found now; forget what was told before.
    Whole(Vec<BlockHash>),
}

/// The engine's end.
#[derive(Debug)]
pub struct Changes {
    follower: Sender<Cached>,
    fresh: Vec<Change>,
    /// Whether something was missed, so that only the whole will do.
    missed: bool,
}

impl Changes {
    /// Both ends.
    pub fn new() -> (Self, Receiver<Cached>) {
        let (follower, receiver) = channel(BEHIND_MAX);
        (Self { follower, fresh: Vec::new(), missed: false }, receiver)
    }

    /// Passes on what happened in the scheduler's cache since the last time.
    pub fn tell(&mut self, scheduler: &mut Scheduler) {
        self.missed |= !scheduler.take_changes(&mut self.fresh);
        if !self.missed && self.fresh.is_empty() {
            return;
        }
        // Only a place that is free now: the whole is not worth gathering for nobody.
        let Ok(place) = self.follower.try_reserve() else {
            self.missed = true;
            self.fresh.clear();
            return;
        };
        if self.missed {
            self.fresh.clear();
            place.send(Cached::Whole(scheduler.cached().collect()));
        } else {
            place.send(Cached::Changed(std::mem::take(&mut self.fresh)));
        }
        self.missed = false;
    }
}
