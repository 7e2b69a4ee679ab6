//! What the outcome of a step means.

use std::time::Duration;

use shared::id::SequenceId;
use shared::time::Instant;

use super::store::Place;
use super::{Drawn, Event, Scheduler};
use crate::sampler::Sampled;
use crate::sequence::{Finish, Timing};
use crate::stop;

impl Scheduler {
    /// Accounts for the planned step, which took `took`. `drawn` (emptied here) has one entry for every
    /// share that draws, and may have an error for any other share; order does not matter.
    ///
    /// # Panics
    ///
    /// When a share that draws has no entry, or one that doesn't has a token.
    pub fn commit(
        &mut self,
        now: Instant,
        took: Duration,
        drawn: &mut Vec<Drawn>,
        events: &mut Vec<(SequenceId, Event)>,
    ) {
        self.measure(took);
        for (id, outcome) in drawn.iter_mut() {
            if let (Some(place), Err(why)) = (self.store.place(*id), outcome) {
                self.fail(place, std::mem::take(why), events);
            }
        }
        let planned = std::mem::take(&mut self.planned);
        for &id in &planned {
            if let Some(place) = self.store.place(id) {
                self.account(place, now, events);
            }
        }
        for (id, outcome) in drawn.drain(..) {
            if let (Some(place), Ok(sampled)) = (self.store.place(id), outcome) {
                self.append(place, sampled, now, events);
            }
        }
        for &id in &planned {
            assert!(self.sequence(id).is_none_or(|sequence| !sequence.draws), "{id:?} got no token");
        }
        self.planned = planned;
        self.planned.clear();
    }

    /// Learns from the step's time.
    fn measure(&mut self, took: Duration) {
        let (mut prompts, mut decodes) = (0, 0);
        for &id in &self.planned {
            match self.sequence(id).map(|sequence| sequence.planned) {
                Some(1) => decodes += 1,
                Some(rows) => prompts += rows,
                None => {}
            }
        }
        self.pace.observe(prompts, decodes, took);
    }

    /// Ends one sequence. What it computed is never found again: it may be the very fault.
    fn fail(&mut self, place: Place, why: String, events: &mut Vec<(SequenceId, Event)>) {
        for &block in &self.store[place].table {
            self.cache.forget(block);
        }
        self.finish(place, Finish::Failed(why), events);
    }

    fn finish(&mut self, place: Place, finish: Finish, events: &mut Vec<(SequenceId, Event)>) {
        events.push((self.store[place].id(), Event::Finished(finish)));
        self.remove(place);
    }

    /// Takes the planned rows as computed, and lets others find the blocks they filled.
    fn account(&mut self, place: Place, now: Instant, events: &mut Vec<(SequenceId, Event)>) {
        let (block_tokens, sequence) = (self.limits.block_tokens, &mut self.store[place]);
        let before = sequence.computed / block_tokens;
        sequence.computed += std::mem::take(&mut sequence.planned);
        sequence.reported = sequence.reported.max(sequence.computed);
        let full = sequence.computed / block_tokens;
        if self.limits.prefix_caching && full > before {
            self.limits.name_blocks(sequence);
            for index in before as usize..full as usize {
                let hash = sequence.chain[index];
                self.cache.store(sequence.table[index], hash);
                self.computing.remove(&hash);
            }
        }
        if sequence.left() == 0 && !sequence.draws {
            self.tell_start(place, now, events);
            self.finish(place, Finish::Length, events);
        }
    }

    fn append(
        &mut self,
        place: Place,
        sampled: Sampled,
        now: Instant,
        events: &mut Vec<(SequenceId, Event)>,
    ) {
        self.tell_start(place, now, events);
        let sequence = &mut self.store[place];
        let id = sequence.id();
        assert!(std::mem::take(&mut sequence.draws), "{id:?} was not to draw");
        let token = sampled.token;
        if stop::is_stop(&sequence.request, token, sequence.answer_tokens()) {
            return self.finish(place, Finish::Stop(token), events);
        }
        sequence.request.tokens.push(token);
        sequence.history.count(token);
        events.push((id, Event::Token(sampled)));
        let is_full = sequence.len() >= self.limits.context_tokens_max;
        if is_full || sequence.answer_tokens() >= sequence.request.answer_tokens_max {
            self.finish(place, Finish::Length, events);
        }
    }

    fn tell_start(&mut self, place: Place, now: Instant, events: &mut Vec<(SequenceId, Event)>) {
        let sequence = &mut self.store[place];
        if std::mem::replace(&mut sequence.told, true) {
            return;
        }
        let started = sequence.started.expect("who computes was admitted");
        let timing = Timing {
            queue: started.since(sequence.request.arrival),
            prefill: now.since(started),
            cached_tokens: sequence.cached_tokens,
        };
        events.push((sequence.id(), Event::Started(timing)));
    }
}
