//! A gateway in virtual time: the real fleet, router, index, queue and budget, driven as the shell drives them.

use std::rc::Rc;
use std::time::Duration;

use gateway_core::admission::TenantId;
use gateway_core::continuation::{self, Api, Broken, Plan};
use gateway_core::fleet::{Change, Event, Fleet, Readiness, Report, Source};
use gateway_core::health::{Circuit, Outcome, Rules};
use gateway_core::load::{Sample, Ticket};
use gateway_core::prefix_index::{Matches, PieceChange, PrefixIndex, Settlement, Sync};
use gateway_core::queue::{Bounds, Class, Full, Queue, Waiting};
use gateway_core::replica::{Engine, Identity, ModelKey};
use gateway_core::retry::{self, Budget, Failure, History, Judgement, World};
use gateway_core::route::{Decision, Demand, Reason, Refusal, Router};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rustc_hash::FxHashMap;
use shared::id::{ReplicaId, RequestId};
use shared::prefix::{PIECE_BYTES, PieceHash};
use shared::time::Instant;

use super::policy::{Policy, Truth};
use super::replica::{BLOCK_TOKENS, PieceNews};
use super::text::{PIECE_TOKENS, TOKEN_BYTES};

/// The one model of the simulated fleet.
const MODEL: &str = "m";

/// (Piece, replica) pairs the index may know.
const HOLDINGS_MAX: usize = 8_000_000;

/// The queue's bounds.
const BOUNDS: Bounds = Bounds { requests_max: 10_000, bytes_max: 4 << 30 };

/// What a request asks of the fleet.
#[derive(Clone, Debug)]
pub struct Order {
    /// Which.
    pub id: RequestId,
    /// The prompt's pieces.
    pub pieces: Rc<[PieceHash]>,
    /// Bytes of prompt text.
    pub prompt_bytes: u32,
    /// The most tokens wanted back.
    pub answer_tokens_max: u32,
    /// Hash of the session it belongs to, where clients tell.
    pub session: Option<u64>,
    /// Replicas that failed it.
    pub tried: Vec<ReplicaId>,
    /// When the client stops waiting.
    pub deadline: Instant,
}

/// A request counted on a replica.
#[derive(Debug)]
pub struct Placed {
    /// Where, and why there.
    pub decision: Decision,
    ticket: Ticket,
    pieces: Rc<[PieceHash]>,
    predicted: u32,
    has_first_token: bool,
}

/// What became of an order.
#[derive(Debug)]
pub enum Placement {
    /// A replica has it.
    Placed(Placed),
    /// It waits.
    Waiting,
    /// Nobody who serves takes work, or everybody has failed it.
    Nobody,
    /// The queue is full, or too long for its deadline.
    Full,
}

/// The cores of one gateway.
#[derive(Debug)]
pub struct Gateway {
    /// What it believes.
    pub fleet: Fleet,
    /// Its allowance of second tries.
    pub budget: Budget,
    /// Requests that wait.
    pub queue: Queue,
    policy: Policy,
    router: Router,
    index: PrefixIndex,
    matches: Matches,
    rng: SmallRng,
    orders: FxHashMap<RequestId, Order>,
    /// Requests displaced from the queue by others.
    pub displaced: Vec<RequestId>,
    /// Whether the last choice went to somebody known to take nothing, and was no probe.
    pub misplaced: Option<String>,
}

impl Gateway {
    /// One that knows nobody.
    pub fn new(policy: Policy, seed: u64) -> Self {
        Self {
            fleet: Fleet::new(Rules::default()),
            budget: Budget::default(),
            queue: Queue::new(BOUNDS),
            router: Router::new(policy.of_core()),
            policy,
            index: PrefixIndex::new(HOLDINGS_MAX),
            matches: Matches::default(),
            rng: SmallRng::seed_from_u64(seed),
            orders: FxHashMap::default(),
            displaced: Vec::new(),
            misplaced: None,
        }
    }

    /// Hears of a replica; they are numbered in the order in which they are named.
    pub fn join(&mut self, number: usize, now: Instant) {
        let event = Event::Joined {
            endpoint: format!("replica-{number}"),
            source: Source::Config,
            models: vec![MODEL.to_owned()],
            running_max: None,
        };
        self.fleet.apply(event, now);
    }

    /// A probe was answered.
    pub fn reported(
        &mut self,
        id: ReplicaId,
        instance: u32,
        readiness: Readiness,
        sample: Sample,
        at: Instant,
        now: Instant,
    ) {
        let identity = Identity {
            instance: format!("{}-{instance}", id.0),
            engine: Engine::Flotilla,
            models: vec![MODEL.to_owned()],
            revision: "1".to_owned(),
            dtype: "bfloat16".to_owned(),
        };
        let pieces = sample.kv_tokens_max.map(|tokens| tokens as usize / PIECE_TOKENS);
        self.index.set_capacity(id, pieces);
        let report = Report { identity, readiness, sample, at };
        for change in self.fleet.apply(Event::Reported(id, report), now) {
            if let Change::Instance(id) = change {
                self.index.forget(id);
            }
        }
    }

    /// Any other event of membership.
    pub fn apply(&mut self, event: Event, now: Instant) {
        self.fleet.apply(event, now);
    }

    /// News of a replica's cache; `true`: something was missed, tell the whole.
    pub fn cache_news(&mut self, id: ReplicaId, news: &PieceNews) -> bool {
        let PieceNews { seq, is_reset, stored, evicted } = news;
        let change = PieceChange { seq: *seq, is_reset: *is_reset, stored, evicted };
        self.index.apply(id, change) == Sync::Lost
    }

    /// The stream of cache news broke.
    pub fn lost_news(&mut self, id: ReplicaId) {
        self.index.lost_stream(id);
    }

    /// Chooses a replica for an order, or a place in the queue.
    pub fn place(&mut self, order: &Order, truths: &[Truth], now: Instant) -> Placement {
        let Some(model) = self.fleet.model(MODEL) else { return Placement::Nobody };
        let is_behind = order.tried.is_empty() && self.queue.has_waiting(model);
        let chosen = if is_behind { Err(Refusal::Saturated) } else { self.choose(model, order, truths, now) };
        match chosen {
            Ok(placed) => Placement::Placed(placed),
            Err(Refusal::NoReplica | Refusal::AllTried) => Placement::Nobody,
            Err(Refusal::Saturated) => match self.push(model, order, now) {
                Ok(()) => Placement::Waiting,
                Err(Full::Bounds(_) | Full::Deadline(_)) => Placement::Full,
            },
        }
    }

    /// The first who waits, if it can be placed now or can't wait any longer: then nobody is there for it.
    pub fn next(&mut self, now: Instant) -> Option<(RequestId, Option<Placed>)> {
        let model = self.fleet.model(MODEL)?;
        let id = self.queue.first(model)?.id;
        let order = self.orders[&id].clone();
        let placed = match self.choose(model, &order, &[], now) {
            Err(Refusal::Saturated) => return None,
            chosen => chosen.ok(),
        };
        self.queue.start(id, now);
        self.orders.remove(&id);
        Some((id, placed))
    }

    /// A waiting request's client left.
    pub fn leave(&mut self, id: RequestId) {
        self.queue.remove(id);
        self.orders.remove(&id);
    }

    /// The first token of an answer came.
    pub fn first_token(&mut self, placed: &mut Placed, now: Instant) {
        placed.has_first_token = true;
        self.fleet.first_token(&mut placed.ticket, now);
    }

    /// An attempt is over.
    pub fn end(&mut self, placed: Placed, outcome: Outcome, now: Instant) {
        let end = Settlement {
            is_computed: placed.has_first_token || matches!(outcome, Outcome::Answered(_)),
            predicted: placed.predicted,
            reported: reported_pieces(outcome),
        };
        self.index.settle(placed.decision.replica, &placed.pieces, end);
        self.fleet.end(placed.ticket, outcome, now);
    }

    /// What may follow a failed attempt.
    pub fn judge(&mut self, failure: Failure, history: History, order: &Order, now: Instant) -> Judgement {
        let is_other_there = self
            .fleet
            .replicas()
            .iter()
            .any(|replica| replica.is_serving() && !order.tried.contains(&replica.id()));
        let world = World { now, deadline: order.deadline, is_other_there };
        retry::judge(failure, history, world, retry::Limits::default(), &mut self.budget)
    }

    /// Whether an answer of which so many tokens went out may go on anywhere in this fleet of equals.
    pub fn may_continue(&self, from: ReplicaId, tokens_sent: u32, tokens_max: u32) -> bool {
        let Some(identity) = self.fleet.get(from).map(gateway_core::replica::Replica::identity) else {
            return false;
        };
        let broken = Broken {
            api: Api::Chat,
            choices: 1,
            tokens_sent,
            tokens_max: Some(tokens_max),
            has_ids: true,
            is_in_tool_call: false,
            is_structured: false,
            has_logprobs: false,
            is_finished: false,
        };
        matches!(continuation::plan(&broken, identity, identity), Ok(Plan::FromIds { .. }))
    }

    fn choose(
        &mut self,
        model: ModelKey,
        order: &Order,
        truths: &[Truth],
        now: Instant,
    ) -> Result<Placed, Refusal> {
        let Self { fleet, router, index, matches, rng, policy, .. } = self;
        index.lookup(&order.pieces, matches);
        let demand = Demand {
            model,
            prompt_bytes: order.prompt_bytes,
            answer_tokens_max: Some(order.answer_tokens_max),
            is_batch: false,
            session: order.session,
            tried: &order.tried,
        };
        let decision = match policy.choose(&demand, order, fleet, truths, now, rng) {
            Some(chosen) => chosen?,
            None => router.choose(&demand, fleet, |id| index.trusted(matches, id), now, rng)?,
        };
        let predicted = index.trusted(matches, decision.replica);
        self.check_placement(&decision, now);
        let ticket = self.fleet.begin(&decision, now).ok_or(Refusal::NoReplica)?;
        self.index.guess(decision.replica, &order.pieces);
        Ok(Placed { decision, ticket, pieces: order.pieces.clone(), predicted, has_first_token: false })
    }

    fn check_placement(&mut self, decision: &Decision, now: Instant) {
        let Some(replica) = self.fleet.get(decision.replica) else { return };
        let is_open = matches!(replica.breaker().circuit(now), Circuit::Open(_));
        if !replica.is_serving() || (is_open && decision.reason != Reason::Panic) {
            let (state, _) = replica.state();
            self.misplaced = Some(format!("{:?} is {} and got a request", replica.id(), state.word()));
        }
    }

    fn push(&mut self, model: ModelKey, order: &Order, now: Instant) -> Result<(), Full> {
        let waiting = Waiting {
            id: order.id,
            tenant: TenantId(0),
            class: Class::Normal,
            model,
            bytes: u64::from(order.prompt_bytes),
            tokens: order.prompt_bytes / TOKEN_BYTES as u32 + order.answer_tokens_max,
            since: now,
            deadline: order.deadline,
        };
        let queued = self.queue.push(waiting, now)?;
        self.orders.insert(order.id, order.clone());
        for id in queued.displaced {
            self.orders.remove(&id);
            self.displaced.push(id);
        }
        Ok(())
    }

    /// Panics unless everything it counts adds up.
    pub fn check_invariants(&self) {
        self.fleet.check_invariants();
        self.queue.check_invariants();
        assert_eq!(self.orders.len(), self.queue.len(), "an order is lost");
    }
}

/// Pieces that the reported cached tokens cover.
fn reported_pieces(outcome: Outcome) -> Option<u32> {
    let Outcome::Answered(usage) = outcome else { return None };
    usage.cached_tokens.map(|tokens| tokens * TOKEN_BYTES as u32 / PIECE_BYTES as u32)
}

/// What a replica of ours says about itself.
pub fn sample(load: &replica_core::scheduler::Load, limits: &replica_core::scheduler::Limits) -> Sample {
    let used = load.blocks - load.blocks_free;
    Sample {
        running: Some(load.running),
        running_max: Some(limits.running_max),
        waiting: Some(load.waiting),
        waiting_max: Some(limits.waiting_max),
        waiting_tokens: Some(load.waiting_tokens),
        kv_usage: Some(f64::from(used) / f64::from(load.blocks)),
        kv_tokens_max: Some(u64::from(load.blocks) * u64::from(BLOCK_TOKENS)),
        context_tokens_max: Some(limits.context_tokens_max),
        prefill_tokens_per_s: load.prefill_tokens_per_s,
    }
}

/// How long a 429 of a replica asks to wait.
pub const RETRY_AFTER: Duration = Duration::from_secs(1);
