//! Clients: sessions that ask, read and ask again.

use std::rc::Rc;
use std::time::Duration;

use gateway_core::retry::History;
use replica_core::prefix_cache::extend_chain;
use shared::id::{BlockHash, ReplicaId, RequestId};
use shared::time::Instant;

use super::{Due, Simulation};
use crate::report::{Ended, Record};
use crate::sim::check::Law;
use crate::sim::gateway::Order;
use crate::sim::replica::BLOCK_TOKENS;
use crate::sim::text;
use crate::workload::Session;

/// One session as it goes.
#[derive(Debug)]
pub(super) struct Client {
    session: Session,
    /// Turns asked.
    asked: usize,
    /// Everything said so far.
    tokens: Vec<u32>,
}

impl Client {
    pub fn new(session: Session) -> Self {
        Self { session, asked: 0, tokens: Vec::new() }
    }

    pub fn start(&self) -> Duration {
        self.session.start
    }
}

/// One request as client and gateway see it.
#[derive(Debug)]
pub(super) struct Request {
    client: usize,
    pub order: Order,
    /// Prompt, then what of the answer has come. Given back to the client at the end.
    pub tokens: Vec<u32>,
    pub prompt_tokens: u32,
    /// The prompt's name.
    pub name: u64,
    /// Its blocks, for the oracle.
    pub chain: Vec<BlockHash>,
    pub history: History,
    /// Those among `order.tried` that only said they were full.
    pub full: Vec<ReplicaId>,
    pub attempt: Option<u64>,
    pub ends: u32,
    record: Record,
}

impl Request {
    pub fn answer_tokens(&self) -> u32 {
        self.record.answer_tokens
    }

    pub fn record(&self) -> Record {
        self.record
    }

    /// What went out of it is true of the prompt and in order; takes in one token more.
    pub fn read(&mut self, token: u32, now: Instant) -> bool {
        let is_true = token == text::answer_token(self.name, self.record.answer_tokens);
        self.record.first_token.get_or_insert(now);
        self.record.answer_tokens += 1;
        self.tokens.push(token);
        is_true
    }

    /// The replica that answers says what it had cached; the first to answer counts.
    pub fn started(&mut self, cached_tokens: u32, replica: u32) {
        if self.record.replica.is_none() {
            self.record.cached_tokens = cached_tokens;
        }
        self.record.replica = Some(replica);
    }
}

impl Simulation<'_> {
    /// A client sends its next request.
    pub(super) fn ask(&mut self, number: usize) {
        let now = self.now();
        let client = &mut self.clients[number];
        let turn = &client.session.turns[client.asked];
        client.asked += 1;
        let mut tokens = std::mem::take(&mut client.tokens);
        for &segment in &turn.text {
            text::extend(&mut tokens, segment);
        }
        let answer_tokens_max = turn.answer_tokens;
        let deadline = now + Duration::from_millis(self.scenario.times.deadline_ms);
        let index = self.requests.len();
        let mut chain = Vec::new();
        if self.wants_truth {
            extend_chain(&mut chain, text::CHAIN_SEED, &tokens, BLOCK_TOKENS);
        }
        let order = Order {
            id: RequestId(index as u64),
            pieces: Rc::from(text::pieces(&tokens, &mut self.scratch)),
            prompt_bytes: (tokens.len() * text::TOKEN_BYTES) as u32,
            answer_tokens_max,
            session: self.scenario.affinity.then(|| text::mix(number as u64)),
            tried: Vec::new(),
            deadline,
        };
        self.requests.push(Request {
            client: number,
            order,
            prompt_tokens: tokens.len() as u32,
            name: text::name(&tokens),
            tokens,
            chain,
            history: History::default(),
            full: Vec::new(),
            attempt: None,
            ends: 0,
            record: Record::new(now),
        });
        self.gateway.budget.deposit();
        self.agenda.at(deadline, Due::Deadline(index));
        self.place(index);
    }

    /// A request has ended; its client goes on or leaves.
    pub(super) fn close(&mut self, index: usize, ended: Ended) {
        let now = self.now();
        let request = &mut self.requests[index];
        request.ends += 1;
        let ends = request.ends;
        self.laws.check(Law::EndsOnce, ends == 1, now, || format!("request {index} ends again: {ended:?}"));
        request.record.end = now;
        request.record.ended = ended;
        request.record.prompt_tokens = request.prompt_tokens;
        let tokens = std::mem::take(&mut request.tokens);
        request.chain = Vec::new();
        let client = &mut self.clients[request.client];
        match client.session.turns.get(client.asked).filter(|_| ended == Ended::Answered) {
            Some(next) => {
                client.tokens = tokens;
                let number = request.client;
                self.agenda.after(next.think, Due::Turn(number));
            }
            None => self.clients_open -= 1,
        }
    }

    /// A client's patience is at its end.
    pub(super) fn give_up_waiting(&mut self, index: usize) {
        if self.requests[index].ends > 0 {
            return;
        }
        self.gateway.leave(self.requests[index].order.id);
        if let Some(attempt) = self.requests[index].attempt {
            self.drop_attempt(attempt);
        }
        self.close(index, Ended::TimedOut);
        self.dispatch();
    }
}
