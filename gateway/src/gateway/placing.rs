//! Puts requests on replicas, or in the queue: the core decides, this counts, wakes and takes back.

use super::{Core, Gateway, Peer};
use gateway_core::admission::TenantId;
use gateway_core::health::Outcome;
use gateway_core::load::Ticket;
use gateway_core::prefix_index::Settlement;
use gateway_core::queue::{Class, Full, Waiting};
use gateway_core::replica::{ModelKey, Replica};
use gateway_core::retry::{self, Failure, History, Judgement, World};
use gateway_core::route::{Decision, Demand, Refusal};
use rand::Rng as _;
use shared::id::{ReplicaId, RequestId};
use shared::prefix::{PIECE_BYTES, PieceHash};
use shared::time::Instant;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// What a request asks of the fleet.
#[derive(Clone, Debug)]
pub struct Order {
    /// Of whom.
    pub model: ModelKey,
    /// Whose.
    pub tenant: TenantId,
    /// How urgent.
    pub class: Class,
    /// The prompt as a chain of pieces.
    pub pieces: Arc<[PieceHash]>,
    /// Bytes of prompt text.
    pub prompt_bytes: u32,
    /// The most tokens wanted back.
    pub answer_tokens_max: Option<u32>,
    /// Hash of the session it belongs to.
    pub session: Option<u64>,
    /// Replicas that failed it.
    pub tried: Vec<ReplicaId>,
    /// What it keeps in memory while it waits.
    pub bytes: u64,
    /// When it must have started.
    pub deadline: Instant,
}

impl Order {
    fn demand(&self) -> Demand<'_> {
        Demand {
            model: self.model,
            prompt_bytes: self.prompt_bytes,
            answer_tokens_max: self.answer_tokens_max,
            is_batch: self.class == Class::Batch,
            session: self.session,
            tried: &self.tried,
        }
    }
}

/// A request counted on a replica. Dropped without an outcome, the count goes back all the same.
#[derive(Debug)]
pub struct Placed {
    gateway: Arc<Gateway>,
    ticket: Option<Ticket>,
    pieces: Arc<[PieceHash]>,
    predicted: u32,
    has_first_token: bool,
    /// The replica.
    pub peer: Arc<Peer>,
    /// Why it won.
    pub decision: Decision,
}

impl Placed {
    /// The first token has come.
    pub fn first_token(&mut self) {
        self.has_first_token = true;
        if let Some(ticket) = &mut self.ticket {
            let now = self.gateway.now();
            let error = now.since(ticket.began()).abs_diff(self.decision.ttft);
            self.gateway.metrics.ttft_error.observe(error.as_secs_f64());
            self.gateway.core().fleet.first_token(ticket, now);
        }
    }

    /// The attempt is over.
    pub fn end(mut self, outcome: Outcome) {
        self.close(outcome);
    }

    fn close(&mut self, outcome: Outcome) {
        let Some(ticket) = self.ticket.take() else { return };
        let end = Settlement {
            is_computed: self.has_first_token || matches!(outcome, Outcome::Answered(_)),
            predicted: self.predicted,
            reported: self.reported(outcome),
        };
        let now = self.gateway.now();
        let mut core = self.gateway.core();
        core.index.settle(self.peer.id, &self.pieces, end);
        let changes = core.fleet.end(ticket, outcome, now);
        drop(core);
        if end.is_computed {
            self.gateway.remember_computed(self.peer.id, &self.pieces, self.predicted);
        }
        self.gateway.note(&changes);
        self.gateway.dispatch();
    }

    /// Pieces that the reported cached tokens cover.
    fn reported(&self, outcome: Outcome) -> Option<u32> {
        let Outcome::Answered(usage) = outcome else { return None };
        let (cached, prompt) = usage.cached_tokens.zip(usage.prompt_tokens)?;
        let bytes = u64::from(cached) * u64::from(self.decision.prompt_bytes) / u64::from(prompt.max(1));
        u32::try_from(bytes / PIECE_BYTES as u64).ok()
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        self.close(Outcome::Neutral);
    }
}

/// What became of an order.
#[derive(Debug)]
pub enum Choice {
    /// A replica has it.
    Placed(Placed),
    /// It waits.
    Waiting(Line),
}

/// Why an order can be neither placed nor let wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unplaced {
    /// Nobody who serves the model takes work.
    NoReplica,
    /// Everybody who does has failed it.
    AllTried,
    /// Everybody is full, and so is the queue, or it is too long for the deadline.
    Full(Full),
}

/// A place in the queue. Dropped, it is given up.
#[derive(Debug)]
pub struct Line {
    gateway: Arc<Gateway>,
    id: RequestId,
    receiver: oneshot::Receiver<Result<Placed, Unplaced>>,
}

impl Line {
    /// Waits for a replica; `None` when somebody with more right took the place in the queue.
    pub async fn wait(&mut self) -> Option<Result<Placed, Unplaced>> {
        (&mut self.receiver).await.ok()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let mut core = self.gateway.core();
        core.queue.remove(self.id);
        let waiter = core.waiters.remove(&self.id);
        self.gateway.show_queue(&core);
        drop((core, waiter));
    }
}

/// Who waits behind a place in the queue.
pub(super) struct Waiter {
    order: Order,
    /// Until then it waits even for the first replica.
    hold_until: Instant,
    sender: oneshot::Sender<Result<Placed, Unplaced>>,
}

/// A choice that has been counted, before it is anybody's.
struct Counted {
    decision: Decision,
    ticket: Ticket,
    peer: Arc<Peer>,
    predicted: u32,
}

impl Core {
    /// Chooses and counts in one step, so that a burst spreads.
    fn choose(&mut self, order: &Order, now: Instant) -> Result<Counted, Refusal> {
        let Self { fleet, router, index, matches, rng, peers, .. } = self;
        index.lookup(&order.pieces, matches);
        let trusted = |replica| index.trusted(matches, replica);
        let decision = router.choose(&order.demand(), fleet, trusted, now, rng)?;
        let predicted = index.trusted(matches, decision.replica);
        let peer = peers.get(&decision.replica).cloned().ok_or(Refusal::NoReplica)?;
        let ticket = fleet.begin(&decision, now).ok_or(Refusal::NoReplica)?;
        index.guess(decision.replica, &order.pieces);
        Ok(Counted { decision, ticket, peer, predicted })
    }

    fn has_other(&self, order: &Order, this: Option<ReplicaId>) -> bool {
        let may_take = |replica: &Replica| {
            let id = replica.id();
            let is_tried = Some(id) == this || order.tried.contains(&id);
            replica.is_serving() && replica.serves(order.model) && !is_tried
        };
        self.fleet.replicas().iter().any(may_take)
    }

    fn push(
        &mut self,
        order: Order,
        hold: Duration,
        now: Instant,
    ) -> Result<(RequestId, oneshot::Receiver<Result<Placed, Unplaced>>), Full> {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        let prompt = self.fleet.prompt_tokens(order.model, order.prompt_bytes);
        let waiting = Waiting {
            id,
            tenant: order.tenant,
            class: order.class,
            model: order.model,
            bytes: order.bytes,
            tokens: prompt.saturating_add(self.fleet.answer_tokens(order.answer_tokens_max)),
            since: now,
            deadline: order.deadline,
        };
        let queued = self.queue.push(waiting, now)?;
        for displaced in queued.displaced {
            self.waiters.remove(&displaced);
        }
        let (sender, receiver) = oneshot::channel();
        self.waiters.insert(id, Waiter { order, hold_until: now + hold, sender });
        Ok((id, receiver))
    }
}

impl Gateway {
    /// Chooses a replica for an order, or a place in the queue.
    pub fn place(self: &Arc<Self>, order: &Order) -> Result<Choice, Unplaced> {
        let now = self.now();
        let hold = self.config.load().queue.hold;
        let mut core = self.core();
        // Who comes now goes behind those who wait, unless it has been through the queue or elsewhere already.
        let is_behind = order.tried.is_empty() && core.queue.has_waiting(order.model);
        let chosen = if is_behind { Err(Refusal::Saturated) } else { core.choose(order, now) };
        match chosen {
            Ok(counted) => {
                drop(core);
                Ok(Choice::Placed(self.placed(counted, order.pieces.clone())))
            }
            Err(Refusal::NoReplica) if hold.is_zero() => Err(Unplaced::NoReplica),
            Err(Refusal::AllTried) => Err(Unplaced::AllTried),
            Err(Refusal::NoReplica | Refusal::Saturated) => {
                let (id, receiver) = core.push(order.clone(), hold, now).map_err(Unplaced::Full)?;
                self.show_queue(&core);
                drop(core);
                self.dispatch();
                Ok(Choice::Waiting(Line { gateway: self.clone(), id, receiver }))
            }
        }
    }

    fn placed(self: &Arc<Self>, counted: Counted, pieces: Arc<[PieceHash]>) -> Placed {
        self.metrics.decisions.with_label_values(&[counted.decision.reason.word()]).inc();
        Placed {
            gateway: self.clone(),
            ticket: Some(counted.ticket),
            pieces,
            predicted: counted.predicted,
            has_first_token: false,
            peer: counted.peer,
            decision: counted.decision,
        }
    }

    /// Sends whoever waits and may start on the way. Called whenever room may have come.
    pub(super) fn dispatch(self: &Arc<Self>) {
        let now = self.now();
        loop {
            let mut core = self.core();
            if core.queue.is_empty() {
                return;
            }
            let Some((waiter, chosen)) = next(&mut core, now) else { return };
            self.show_queue(&core);
            drop(core);
            let placed = chosen.map(|counted| self.placed(counted, waiter.order.pieces.clone()));
            // If the client has just left, the count goes back as the placement is dropped.
            drop(waiter.sender.send(placed));
        }
    }

    fn show_queue(&self, core: &Core) {
        self.metrics.queued.set(core.queue.len() as i64);
        self.metrics.queued_bytes.set(core.queue.bytes() as i64);
    }

    /// A random number from 0 to 1.
    pub fn lot(&self) -> f64 {
        self.core().rng.random()
    }

    /// A request came in: the budget of second tries grows.
    pub fn deposit(&self) {
        self.core().budget.deposit();
    }

    /// Whether somebody who has not failed the order may take it in place of `this`.
    pub fn is_other_there(&self, order: &Order, this: ReplicaId) -> bool {
        self.core().has_other(order, Some(this))
    }

    /// What may follow a failed attempt.
    pub fn judge(&self, failure: Failure, history: History, order: &Order, deadline: Instant) -> Judgement {
        let attempts_max = self.config.load().retry.attempts_max;
        let limits = retry::Limits { attempts_max, ..retry::Limits::default() };
        let now = self.now();
        let mut core = self.core();
        let is_other_there = core.has_other(order, None);
        let world = World { now, deadline, is_other_there };
        retry::judge(failure, history, world, limits, &mut core.budget)
    }
}

/// The first who can be placed, or can't wait any longer, of any model.
fn next(core: &mut Core, now: Instant) -> Option<(Waiter, Result<Counted, Unplaced>)> {
    let models: Vec<ModelKey> = core.queue.models().collect();
    for model in models {
        let Some(id) = core.queue.first(model).map(|first| first.id) else { continue };
        let waiter = core.waiters.remove(&id).expect("whoever is in the queue waits");
        let is_held = now < waiter.hold_until;
        let chosen = match core.choose(&waiter.order, now) {
            Err(refusal) if refusal == Refusal::Saturated || (refusal == Refusal::NoReplica && is_held) => {
                core.waiters.insert(id, waiter);
                continue;
            }
            Ok(counted) => Ok(counted),
            Err(Refusal::AllTried) => Err(Unplaced::AllTried),
            Err(_) => Err(Unplaced::NoReplica),
        };
        core.queue.start(id, now);
        return Some((waiter, chosen));
    }
    None
}
