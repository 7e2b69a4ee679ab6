//! A request looking for its replica, and what follows when one fails it.

use std::time::Duration;

use gateway_core::health::{Outcome, Usage};
use gateway_core::retry::{Failure, GaveUp, Verdict};
use gateway_core::route::Reason;
use replica_core::sequence::{Finish, Timing};
use shared::time::Instant;

use super::{BACK_OFF, Due, Simulation};
use crate::report::Ended;
use crate::sim::check::Law;
use crate::sim::gateway::{Placed, Placement, RETRY_AFTER};
use crate::sim::replica::Attempt as Sent;
use crate::sim::text;

/// One request on one replica.
#[derive(Debug)]
pub(super) struct Attempt {
    pub request: usize,
    pub seat: usize,
    placed: Placed,
    is_delivered: bool,
    cached_tokens: u32,
    began: Instant,
    last_word: Option<Instant>,
}

impl Simulation<'_> {
    /// Asks the gateway where a request goes, and sends it there.
    pub(super) fn place(&mut self, request: usize) {
        let now = self.now();
        let truths = self.truths(request);
        let placement = self.gateway.place(&self.requests[request].order, &truths, now);
        self.close_displaced();
        match placement {
            Placement::Placed(placed) => self.send(request, placed),
            Placement::Waiting => self.dispatch(),
            Placement::Full => self.close(request, Ended::Refused),
            Placement::Nobody => self.close_unplaced(request),
        }
    }

    /// Sends whoever waits in the gateway and may start.
    pub(super) fn dispatch(&mut self) {
        let now = self.now();
        for late in self.gateway.queue.expire(now) {
            self.gateway.leave(late.id);
            self.close(late.id.0 as usize, Ended::TimedOut);
        }
        while !self.gateway.queue.is_empty() {
            let Some((id, placed)) = self.gateway.next(now) else { return };
            match placed {
                Some(placed) => self.send(id.0 as usize, placed),
                None => self.close_unplaced(id.0 as usize),
            }
        }
    }

    /// Nobody is there for it.
    fn close_unplaced(&mut self, request: usize) {
        let has_begun = self.requests[request].answer_tokens() > 0;
        self.close(request, if has_begun { Ended::Cut } else { Ended::NoReplica });
    }

    fn close_displaced(&mut self) {
        for id in std::mem::take(&mut self.gateway.displaced) {
            self.close(id.0 as usize, Ended::Refused);
        }
    }

    fn send(&mut self, request: usize, placed: Placed) {
        let now = self.now();
        if let Some(what) = self.gateway.misplaced.take() {
            let is_rescue = matches!(placed.decision.reason, Reason::Probe | Reason::Panic);
            self.laws.check(Law::RightPlace, is_rescue, now, || what);
        }
        self.attempts_made += 1;
        let (id, seat) = (self.attempts_made, placed.decision.replica.0 as usize);
        self.requests[request].attempt = Some(id);
        self.requests[request].history.attempts += 1;
        let attempt = Attempt {
            request,
            seat,
            placed,
            is_delivered: false,
            cached_tokens: 0,
            began: now,
            last_word: None,
        };
        self.attempts.insert(id, attempt);
        self.seats[seat].attempts.push(id);
        self.expect(seat, request);
        self.agenda.after(Duration::from_secs_f64(self.scenario.times.hop_ms / 1e3), Due::Deliver(id));
        self.agenda.after(Duration::from_millis(self.scenario.times.first_token_ms), Due::Watch(id));
    }

    /// An attempt reaches its replica, which takes it or not.
    pub(super) fn deliver(&mut self, id: u64) {
        let now = self.now();
        let Some(attempt) = self.attempts.get_mut(&id) else { return };
        attempt.is_delivered = true;
        let (seat, request) = (attempt.seat, &self.requests[attempt.request]);
        self.seats[seat].on_the_way_tokens -= u64::from(request.prompt_tokens);
        if !self.seats[seat].is_reachable() {
            return self.fail(id, Failure::Refused);
        }
        let sent = Sent {
            id,
            tokens: &request.tokens,
            answered: request.answer_tokens(),
            answer_tokens_max: request.order.answer_tokens_max,
            name: request.name,
            pieces: &request.order.pieces,
            deadline: request.order.deadline,
        };
        let Some(replica) = &mut self.seats[seat].replica else { return };
        match replica.add(&sent, now) {
            Ok(()) => self.wake(seat),
            Err(replica_core::scheduler::Refusal::Full { .. }) => {
                self.fail(id, Failure::Status(429, Some(RETRY_AFTER)));
            }
            Err(replica_core::scheduler::Refusal::NeverFits { .. }) => {
                self.fail(id, Failure::Status(400, None));
            }
        }
    }

    pub(super) fn started(&mut self, id: u64, timing: Timing) {
        let now = self.now();
        let Some(attempt) = self.attempts.get_mut(&id) else { return };
        attempt.last_word = Some(now);
        attempt.cached_tokens = timing.cached_tokens;
        self.gateway.first_token(&mut attempt.placed, now);
        self.requests[attempt.request].started(timing.cached_tokens, attempt.seat as u32);
    }

    pub(super) fn token(&mut self, id: u64, token: u32) {
        let now = self.now();
        let Some(attempt) = self.attempts.get_mut(&id) else { return };
        attempt.last_word = Some(now);
        let request = attempt.request;
        let is_true = self.requests[request].read(token, now);
        self.laws.check(Law::TrueAnswer, is_true, now, || format!("request {request} got a wrong token"));
    }

    pub(super) fn finished(&mut self, id: u64, finish: &Finish) {
        let now = self.now();
        let Some(&Attempt { request, began, cached_tokens, .. }) = self.attempts.get(&id) else { return };
        if *finish == Finish::Expired {
            // Its client leaves at this very moment.
            self.drop_attempt(id);
            self.close(request, Ended::TimedOut);
            return;
        }
        let whole = self.requests[request].order.answer_tokens_max;
        let answer_tokens = self.requests[request].answer_tokens();
        self.laws.check(Law::TrueAnswer, answer_tokens == whole, now, || {
            format!("request {request} ended with {answer_tokens} tokens of {whole}")
        });
        self.name_answer(id);
        self.answer_s_mean += 0.02 * (now.since(began).as_secs_f64() - self.answer_s_mean);
        let usage = Usage {
            prompt_tokens: Some(self.requests[request].prompt_tokens),
            cached_tokens: Some(cached_tokens),
            answer_tokens: Some(answer_tokens),
        };
        self.end(id, Outcome::Answered(usage));
        self.close(request, Ended::Answered);
        self.dispatch();
    }

    /// The replica tells under which pieces the whole conversation lies, since the next turn begins with it.
    fn name_answer(&mut self, id: u64) {
        let Some(Attempt { request, seat, .. }) = self.attempts.get(&id) else { return };
        let tokens = &self.requests[*request].tokens;
        let pieces = text::pieces(tokens, &mut self.scratch);
        if let Some(replica) = &mut self.seats[*seat].replica {
            replica.name_pieces(tokens, &pieces);
        }
    }

    /// Has it gone on since the last look?
    pub(super) fn watch(&mut self, id: u64) {
        let now = self.now();
        let Some(attempt) = self.attempts.get(&id) else { return };
        let idle = Duration::from_millis(self.scenario.times.idle_ms);
        match attempt.last_word {
            None => self.fail(id, Failure::FirstByteLate),
            Some(word) if now.since(word) >= idle => self.fail(id, Failure::Broken),
            Some(word) => self.agenda.at(word + idle, Due::Watch(id)),
        }
    }

    /// The connection to a replica broke, or never came about.
    pub(super) fn cut(&mut self, id: u64) {
        let Some(attempt) = self.attempts.get(&id) else { return };
        let has_begun = self.requests[attempt.request].answer_tokens() > 0;
        let failure = match (attempt.is_delivered, has_begun) {
            // Still on its way: it will find nobody there.
            (false, _) => return,
            (true, false) => Failure::Reset { reused: false },
            (true, true) => Failure::Broken,
        };
        self.fail(id, failure);
    }

    /// An attempt failed: does what the core says.
    pub(super) fn fail(&mut self, id: u64, failure: Failure) {
        let now = self.now();
        let Some(&Attempt { request, seat, .. }) = self.attempts.get(&id) else { return };
        let from = shared::id::ReplicaId(seat as u32);
        let asked = &mut self.requests[request];
        asked.order.tried.push(from);
        if matches!(failure, Failure::Status(429 | 503, _)) {
            asked.full.push(from);
        }
        let judgement = self.gateway.judge(failure, asked.history, &asked.order, now);
        asked.history.deaths += u32::from(judgement.is_death);
        let (sent, most) = (asked.answer_tokens(), asked.order.answer_tokens_max);
        self.end(id, judgement.outcome);
        match judgement.verdict {
            Verdict::Elsewhere => self.again(request),
            Verdict::Continue if self.gateway.may_continue(from, sent, most) => self.again(request),
            Verdict::Wait => {
                let asked = &mut self.requests[request];
                let full = std::mem::take(&mut asked.full);
                asked.order.tried.retain(|tried| !full.contains(tried));
                if self.has_queue {
                    self.place(request);
                } else {
                    self.agenda.after(BACK_OFF, Due::Again(request));
                }
            }
            Verdict::Relay => self.close(request, Ended::Refused),
            Verdict::Continue | Verdict::GiveUp(GaveUp::Cut) => self.close(request, Ended::Cut),
            Verdict::GiveUp(_) | Verdict::Refresh if sent > 0 => self.close(request, Ended::Cut),
            Verdict::GiveUp(_) | Verdict::Refresh => self.close(request, Ended::Failed),
        }
        self.dispatch();
    }

    /// Tries again unless its client has left meanwhile.
    pub(super) fn place_again(&mut self, request: usize) {
        if self.requests[request].ends == 0 {
            self.place(request);
        }
    }

    fn again(&mut self, request: usize) {
        self.retries += 1;
        self.place(request);
    }

    /// The client left: nobody waits for this attempt any more.
    pub(super) fn drop_attempt(&mut self, id: u64) {
        self.end(id, Outcome::Neutral);
    }

    fn end(&mut self, id: u64, outcome: Outcome) {
        let now = self.now();
        let Some(attempt) = self.attempts.remove(&id) else { return };
        let seat = &mut self.seats[attempt.seat];
        seat.attempts.retain(|other| *other != id);
        if let Some(replica) = &mut seat.replica {
            replica.abort(id);
        }
        let request = &mut self.requests[attempt.request];
        request.attempt = None;
        if !attempt.is_delivered {
            seat.on_the_way_tokens -= u64::from(request.prompt_tokens);
        }
        self.unexpect(attempt.seat, attempt.request);
        self.gateway.end(attempt.placed, outcome, now);
    }
}
