//! Requests that wait in the gateway because every replica that could take them is full.
//!
//! Weighted fair queueing: each tenant's requests get finish tags in virtual time, as if all tenants were served at
//! once in proportion to their class, and go out in the order of their tags. So nobody starves, a tenant with a
//! thousand waiting delays another's first one by one request only, and one tenant's requests keep their order.
//! Batch work goes out only when nothing else waits. It knows nothing of replicas: the caller tries to place the
//! first in line.

use std::collections::BTreeMap;
use std::time::Duration;

use shared::id::RequestId;
use shared::time::Instant;

use crate::admission::TenantId;
use crate::belief::Belief;
use crate::replica::ModelKey;

/// How urgent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Class {
    /// Eight shares.
    High,
    /// Four shares.
    #[default]
    Normal,
    /// One share.
    Low,
    /// Only what nobody else wants.
    Batch,
}

impl Class {
    const fn weight(self) -> u64 {
        match self {
            Self::High => 8,
            Self::Normal => 4,
            Self::Low | Self::Batch => 1,
        }
    }
}

/// A request in the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// Which.
    pub id: RequestId,
    /// Whose.
    pub tenant: TenantId,
    /// How urgent.
    pub class: Class,
    /// For replicas of this model.
    pub model: ModelKey,
    /// What it keeps in memory.
    pub bytes: u64,
    /// What serving it costs: prompt and answer.
    pub tokens: u32,
    /// When it came.
    pub since: Instant,
    /// When it must have started.
    pub deadline: Instant,
}

/// Bounds of the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Requests.
    pub requests_max: usize,
    /// Bytes of their bodies.
    pub bytes_max: u64,
}

/// Where a request stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Requests that go before it.
    pub ahead: usize,
    /// How long that will take, as it goes now.
    pub wait: Duration,
}

/// What became of a request that was pushed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Queued {
    /// Where it stands.
    pub place: Place,
    /// Others that had to go for it, to be answered as [`Full`].
    pub displaced: Vec<RequestId>,
}

/// Why a request may not wait; both are answered at once with this wait as `Retry-After`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Full {
    /// No room.
    Bounds(Duration),
    /// It would not start before its deadline.
    Deadline(Duration),
}

/// The queue of one gateway.
#[derive(Clone, Debug)]
pub struct Queue {
    bounds: Bounds,
    pools: BTreeMap<ModelKey, Pool>,
    homes: BTreeMap<RequestId, (ModelKey, Key)>,
    bytes: u64,
}

/// Batch work sorts behind all other; then by tag; then by arrival.
type Key = (bool, u64, RequestId);

/// Everything that waits for one model.
#[derive(Clone, Debug, Default)]
struct Pool {
    line: BTreeMap<Key, Waiting>,
    /// Finish tag of each tenant's last request, while it is ahead of the clock.
    tags: BTreeMap<(Class, TenantId), u64>,
    /// Tag of what went out last: the virtual time.
    clock: u64,
    interval_s: Belief,
    /// When the last one went out, or the first came in.
    last_start: Option<Instant>,
}

/// Assumed between two starts until two were seen.
const INTERVAL_S: f64 = 0.5;

impl Queue {
    /// An empty queue.
    pub fn new(bounds: Bounds) -> Self {
        Self { bounds, pools: BTreeMap::new(), homes: BTreeMap::new(), bytes: 0 }
    }

    /// Requests that wait.
    pub fn len(&self) -> usize {
        self.homes.len()
    }

    /// Nobody waits.
    pub fn is_empty(&self) -> bool {
        self.homes.is_empty()
    }

    /// Requests that wait for a model.
    pub fn waiting(&self, model: ModelKey) -> usize {
        self.pools.get(&model).map_or(0, |pool| pool.line.len())
    }

    /// Bytes of what waits.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether somebody who is not batch waits for a model: newcomers then go behind, not past.
    pub fn has_waiting(&self, model: ModelKey) -> bool {
        self.pools
            .get(&model)
            .and_then(|pool| pool.line.keys().next())
            .is_some_and(|(is_batch, ..)| !is_batch)
    }

    /// Lets a request wait.
    ///
    /// # Errors
    ///
    /// [`Full`] when it may not; nothing changes then.
    pub fn push(&mut self, waiting: Waiting, now: Instant) -> Result<Queued, Full> {
        assert!(!self.homes.contains_key(&waiting.id), "{:?} waits already", waiting.id);
        let pool = self.pools.entry(waiting.model).or_default();
        let key = pool.key(&waiting);
        let place = pool.place(key);
        // Only what was seen to go slowly is held against the deadline.
        if pool.interval_s.value().is_some() && now + place.wait > waiting.deadline {
            return Err(Full::Deadline(place.wait));
        }
        let whole = pool.wait_for(pool.line.len() + 1);
        let displaced = self.make_room(&waiting).ok_or(Full::Bounds(whole))?;
        let pool = self.pools.entry(waiting.model).or_default();
        if pool.line.is_empty() {
            pool.last_start = Some(now);
        }
        pool.tags.insert((waiting.class, waiting.tenant), key.1);
        pool.line.insert(key, waiting);
        self.homes.insert(waiting.id, (waiting.model, key));
        self.bytes += waiting.bytes;
        Ok(Queued { place, displaced })
    }

    /// The first in line for a model. Nobody passes the first: a large request would starve.
    pub fn first(&self, model: ModelKey) -> Option<&Waiting> {
        self.pools.get(&model)?.line.values().next()
    }

    /// A request starts: it leaves the queue, and how fast its line moves is learned.
    pub fn start(&mut self, id: RequestId, now: Instant) -> Option<Waiting> {
        let (model, key) = *self.homes.get(&id)?;
        if let Some(pool) = self.pools.get_mut(&model) {
            pool.started(key, now);
        }
        self.remove(id)
    }

    /// Takes a request out: its client left, or nobody is there for it any more.
    pub fn remove(&mut self, id: RequestId) -> Option<Waiting> {
        let (model, key) = self.homes.remove(&id)?;
        let waiting = self.pools.get_mut(&model).and_then(|pool| pool.line.remove(&key));
        let waiting = waiting.expect("a request with a home is in that line");
        self.bytes -= waiting.bytes;
        Some(waiting)
    }

    /// Takes out what can no longer start in time.
    pub fn expire(&mut self, now: Instant) -> Vec<Waiting> {
        let late = self.pools.values().flat_map(|pool| pool.line.values());
        let late: Vec<_> = late.filter(|waiting| waiting.deadline <= now).map(|waiting| waiting.id).collect();
        late.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    /// Where a request stands.
    pub fn place(&self, id: RequestId) -> Option<Place> {
        let (model, key) = self.homes.get(&id)?;
        Some(self.pools.get(model)?.place(*key))
    }

    /// Models somebody waits for.
    pub fn models(&self) -> impl Iterator<Item = ModelKey> {
        self.pools.iter().filter(|(_, pool)| !pool.line.is_empty()).map(|(model, _)| *model)
    }

    /// Panics unless every request has one home, sums add up and bounds hold.
    pub fn check_invariants(&self) {
        let all = || self.pools.values().flat_map(|pool| pool.line.iter());
        assert_eq!(all().count(), self.homes.len());
        assert_eq!(all().map(|(_, waiting)| waiting.bytes).sum::<u64>(), self.bytes);
        assert!(self.len() <= self.bounds.requests_max && self.bytes <= self.bounds.bytes_max);
        for (key, waiting) in all() {
            assert_eq!(self.homes.get(&waiting.id), Some(&(waiting.model, *key)));
        }
    }

    /// Displaces others until the newcomer fits; `None`, and nothing displaced, when it has no right to that.
    fn make_room(&mut self, newcomer: &Waiting) -> Option<Vec<RequestId>> {
        if newcomer.bytes > self.bounds.bytes_max || self.bounds.requests_max == 0 {
            return None;
        }
        let fits = |requests: usize, bytes: u64| {
            requests < self.bounds.requests_max && bytes + newcomer.bytes <= self.bounds.bytes_max
        };
        let (mut requests, mut bytes, mut victims) = (self.len(), self.bytes, Vec::new());
        if !fits(requests, bytes) {
            let mut candidates = self.weaker_than(newcomer);
            while !fits(requests, bytes) {
                let victim = candidates.pop()?;
                requests -= 1;
                bytes -= victim.bytes;
                victims.push(victim.id);
            }
        }
        for &victim in &victims {
            self.remove(victim);
        }
        Some(victims)
    }

    /// Those who must give way, the first to go last: batch work for other work, then the latest of whoever has
    /// more waiting than the newcomer's tenant would have.
    fn weaker_than(&self, newcomer: &Waiting) -> Vec<Waiting> {
        let mut by_tenant: BTreeMap<TenantId, Vec<&Waiting>> = BTreeMap::new();
        for waiting in self.pools.values().flat_map(|pool| pool.line.values()) {
            by_tenant.entry(waiting.tenant).or_default().push(waiting);
        }
        let fair = by_tenant.get(&newcomer.tenant).map_or(0, Vec::len) + 1;
        let mut weaker = Vec::new();
        for (tenant, mut line) in by_tenant {
            line.sort_by_key(|waiting| (waiting.class, waiting.since, waiting.id));
            let excess = if tenant == newcomer.tenant { line.len() } else { fair };
            let is_weaker = |(rank, waiting): (usize, &&Waiting)| {
                let gives_way = waiting.class == Class::Batch && newcomer.class != Class::Batch;
                let has_more = rank >= excess && waiting.class >= newcomer.class;
                (gives_way || has_more).then_some((gives_way, rank, **waiting))
            };
            weaker.extend(line.iter().enumerate().filter_map(is_weaker));
        }
        weaker.sort_by_key(|(gives_way, rank, waiting)| (*gives_way, *rank, waiting.since, waiting.id));
        weaker.into_iter().map(|(_, _, waiting)| waiting).collect()
    }
}

impl Pool {
    /// Its finish tag: the later of now and its tenant's last one, plus its cost for its share.
    fn key(&self, waiting: &Waiting) -> Key {
        let after = self.tags.get(&(waiting.class, waiting.tenant)).copied().unwrap_or(0).max(self.clock);
        let cost = 8 * u64::from(waiting.tokens.max(1)) / waiting.class.weight();
        (waiting.class == Class::Batch, after + cost, waiting.id)
    }

    fn place(&self, key: Key) -> Place {
        let ahead = self.line.range(..key).count();
        Place { ahead, wait: self.wait_for(ahead + 1) }
    }

    /// Time until so many have started.
    fn wait_for(&self, starts: usize) -> Duration {
        let interval = self.interval_s.value().unwrap_or(INTERVAL_S);
        Duration::from_secs_f64((starts as f64 * interval).min(1e6))
    }

    fn started(&mut self, key: Key, now: Instant) {
        if let Some(last) = self.last_start.replace(now) {
            // Several at one moment are one opening shared; a floor keeps the mean honest and positive.
            self.interval_s.learn(now.since(last).as_secs_f64().max(1e-4), now);
        }
        if !key.0 {
            self.clock = self.clock.max(key.1);
        }
        let clock = self.clock;
        self.tags.retain(|_, tag| *tag > clock);
    }
}

#[cfg(test)]
mod tests;
