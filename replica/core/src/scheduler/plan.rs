//! What the next step runs.

use shared::id::SequenceId;
use shared::time::Instant;

use super::lanes::{Split, chunk, split};
use super::store::Place;
use super::{Event, Scheduler};
use crate::batch::{Batch, Share};

impl Scheduler {
    /// Plans a step into `batch` (cleared first, its memory reused). Events are of sequences that expired
    /// or were preempted. An empty batch means that there is nothing to run now. A plan that is not
    /// committed is as if it had not been made, but for who holds blocks.
    pub fn schedule(&mut self, now: Instant, batch: &mut Batch, events: &mut Vec<(SequenceId, Event)>) {
        batch.clear();
        self.forget_plan();
        self.expire(now, events);
        let preemptions = self.done.preemptions;
        self.plan_decodes(batch, events);
        let room = self.prompt_room(batch.rows() as u32);
        self.plan_prompts(room, self.done.preemptions == preemptions, now, batch);
        self.crowded = !self.waiting.is_empty();
    }

    fn forget_plan(&mut self) {
        for id in self.planned.drain(..) {
            if let Some(place) = self.store.place(id) {
                self.store[place].planned = 0;
                self.store[place].draws = false;
            }
        }
    }

    /// A row for everybody who has one token left to compute, the first in line first.
    fn plan_decodes(&mut self, batch: &mut Batch, events: &mut Vec<(SequenceId, Event)>) {
        let mut index = 0;
        while index < self.running.len() {
            let (_, place) = self.running[index];
            index += 1;
            if self.store[place].left() == 1 && self.grow(place, events) {
                self.push_share(place, 1, batch);
            }
        }
    }

    /// Makes sure there is a block for the next row; the last in line pays. `false`: it was itself the last.
    fn grow(&mut self, place: Place, events: &mut Vec<(SequenceId, Event)>) -> bool {
        while self.limits.blocks_of(self.store[place].len()) as usize > self.store[place].table.len() {
            if let Some(block) = self.cache.take() {
                self.store[place].table.push(block);
                continue;
            }
            let &(_, victim) = self.running.last().expect("who grows is running");
            self.preempt(victim, events);
            if victim == place {
                return false;
            }
        }
        true
    }

    fn preempt(&mut self, victim: Place, events: &mut Vec<(SequenceId, Event)>) {
        self.release(victim);
        let sequence = &mut self.store[victim];
        sequence.reset();
        events.push((sequence.id(), Event::Preempted));
        self.waiting.insert(sequence.turn, victim);
        self.done.preemptions += 1;
    }

    /// Rows that prompts may have beside so many decoding ones: what the step's target time allows, at least
    /// one block so that they always get on, never more than a step may hold.
    fn prompt_room(&self, decodes: u32) -> u32 {
        let most = self.limits.step_tokens_max - decodes;
        match self.limits.step_target {
            None => most,
            Some(target) => self.pace.prompt_tokens(decodes, target).max(self.limits.block_tokens).min(most),
        }
    }

    fn plan_prompts(&mut self, mut room: u32, may_admit: bool, now: Instant, batch: &mut Batch) {
        let Some(first) = self.next_prompt(may_admit, now) else { return };
        let split = self.split_with_short(first, room, may_admit, now);
        for (place, rows) in split {
            room -= self.push_chunk(place, rows, batch);
        }
        while room >= self.limits.block_tokens {
            let Some(next) = self.next_prompt(may_admit, now) else { return };
            let pushed = self.push_chunk(next, room, batch);
            if pushed == 0 {
                return;
            }
            room -= pushed;
        }
    }

    /// The first in line that has a prompt to compute and no rows in this step yet.
    fn next_prompt(&mut self, may_admit: bool, now: Instant) -> Option<Place> {
        let idle = self.running.iter().find(|(_, place)| self.store[*place].planned == 0);
        match idle {
            Some(&(_, place)) => Some(place),
            None if may_admit => self.admit_next(None, now),
            None => None,
        }
    }

    /// The rows of the first in line and of the shortest behind it (`lanes` has the rule).
    fn split_with_short(
        &mut self,
        first: Place,
        room: u32,
        may_admit: bool,
        now: Instant,
    ) -> impl Iterator<Item = (Place, u32)> + use<> {
        let (first_left, block_tokens) = (self.store[first].left(), self.limits.block_tokens);
        let may_take = room / 2 >= block_tokens || self.short_turn;
        let short = if may_take { self.shortest_behind(first, first_left, may_admit, now) } else { None };
        let rows = match short {
            None => Split { first: chunk(first_left, room, block_tokens), short: 0 },
            Some(short) => split(room, first_left, self.store[short].left(), block_tokens, self.short_turn),
        };
        self.short_turn = !self.short_turn;
        [(Some(first), rows.first), (short, rows.short)]
            .into_iter()
            .filter_map(|(place, rows)| place.filter(|_| rows > 0).map(|place| (place, rows)))
    }

    fn shortest_behind(&mut self, first: Place, below: u32, may_admit: bool, now: Instant) -> Option<Place> {
        let priority = self.store[first].turn.priority;
        let running = self
            .running
            .iter()
            .filter(|&&(turn, place)| {
                place != first && turn.priority == priority && self.store[place].planned == 0
            })
            .map(|&(turn, place)| (self.store[place].left(), turn, place))
            .filter(|&(left, ..)| left < below)
            .min();
        let waiting = if may_admit { self.shortest_waiting(first, below) } else { None };
        match (running, waiting) {
            (Some((left, _, place)), Some((waiting, _))) if left <= waiting => Some(place),
            (running, Some((_, wanted))) => {
                self.admit_next(Some(wanted), now).or(running.map(|(.., place)| place))
            }
            (running, None) => running.map(|(.., place)| place),
        }
    }

    /// Gives a prompt up to `room` rows; how many it took.
    fn push_chunk(&mut self, place: Place, room: u32, batch: &mut Batch) -> u32 {
        let sequence = &self.store[place];
        let rows = sequence.untorn(chunk(sequence.left(), room, self.limits.block_tokens));
        if rows > 0 {
            self.push_share(place, rows, batch);
        }
        rows
    }

    fn push_share(&mut self, place: Place, rows: u32, batch: &mut Batch) {
        let (block_tokens, sequence) = (self.limits.block_tokens, &mut self.store[place]);
        let (start, end) = (sequence.computed, sequence.computed + rows);
        let (first_row, first_block) = (batch.rows(), batch.tables.len());
        let table = &sequence.table[..self.limits.blocks_of(end) as usize];
        batch.tokens.extend_from_slice(&sequence.request.tokens[start as usize..end as usize]);
        batch.positions.extend(start..end);
        let slot =
            |position| table[(position / block_tokens) as usize].0 * block_tokens + position % block_tokens;
        batch.slots.extend((start..end).map(slot));
        batch.tables.extend_from_slice(table);
        batch.shares.push(Share {
            sequence: sequence.id(),
            rows: first_row..batch.tokens.len(),
            table: first_block..batch.tables.len(),
            output: sequence.output(rows),
        });
        sequence.draws = rows == sequence.left() && sequence.wants_token();
        sequence.planned = rows;
        self.planned.push(sequence.id());
    }
}
