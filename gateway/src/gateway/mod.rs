//! What the parts of the shell share: the core behind one lock, the peers, configuration, telemetry.
//!
//! The lock is held for one decision or one event, never across a wait.

mod admitting;
mod members;
mod placing;
mod policies;
mod scaling;
mod sharing;
mod view;

pub use admitting::{Admitted, Unadmitted};
pub use members::Peer;
pub use placing::{Choice, Line, Order, Placed, Unplaced};
pub use view::NoModel;

use crate::config::{Config, Configured, Routing};
use crate::store::Computed;
use crate::telemetry::{History, Logs, Metrics};
use crate::tenants::Tenants;
use arc_swap::ArcSwap;
use gateway_core::admission::Admission;
use gateway_core::capacity::Scale;
use gateway_core::fleet::Fleet;
use gateway_core::prefix_index::{Matches, PrefixIndex};
use gateway_core::queue::{Bounds, Queue};
use gateway_core::replica::ModelKey;
use gateway_core::retry::Budget;
use gateway_core::route::Router;
use pingora::connectors::TransportConnector;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use shared::id::{ReplicaId, RequestId};
use shared::time::Instant;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use traces::Tracer;

/// Entries of the prefix index over all replicas: about 100 MB when full, and 2 GB of prompt text.
const HOLDINGS_MAX: usize = 4 << 20;

/// Second tries that a quiet gateway may make each second, whatever its traffic.
const RETRIES_PER_S: f64 = 1.0;

/// What changes with every request.
struct Core {
    fleet: Fleet,
    router: Router,
    budget: Budget,
    index: PrefixIndex,
    matches: Matches,
    queue: Queue,
    admission: Admission,
    /// Replicas wanted, by model.
    scales: BTreeMap<ModelKey, Scale>,
    /// Prompts that other gateways have not heard of.
    computed: VecDeque<Computed>,
    waiters: BTreeMap<RequestId, placing::Waiter>,
    next_request: u64,
    rng: SmallRng,
    peers: BTreeMap<ReplicaId, Arc<Peer>>,
    /// What configuration says of an endpoint, by URL, for when it joins.
    configured: BTreeMap<String, Configured>,
}

/// The shared state of one gateway.
pub struct Gateway {
    /// The settings now.
    pub config: ArcSwap<Config>,
    /// Who may use it.
    pub tenants: Arc<Tenants>,
    /// Counters.
    pub metrics: Metrics,
    /// The last minutes.
    pub history: Mutex<History>,
    /// Lines of what happened.
    pub logs: Logs,
    /// Where traces go; absent: nothing is gathered for them.
    pub tracer: Option<Tracer>,
    /// Opens connections to replicas.
    pub connector: TransportConnector,
    /// Set at the end: no connection is kept, `/ready` says no.
    pub is_draining: AtomicBool,
    /// Requests being served on the public port.
    pub running: AtomicUsize,
    /// Wakes whoever waits for the last request to end.
    pub idle: Notify,
    /// Another process asks for the listening sockets.
    pub upgrade: Notify,
    core: Mutex<Core>,
    origin: std::time::Instant,
    background: tokio::runtime::Handle,
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").finish_non_exhaustive()
    }
}

impl Gateway {
    /// A gateway without replicas. `background` runs its probes.
    pub fn new(
        config: Config,
        tenants: Arc<Tenants>,
        logs: Logs,
        background: tokio::runtime::Handle,
    ) -> Self {
        let bounds = Bounds { requests_max: config.queue.requests_max, bytes_max: config.queue.bytes_max };
        let core = Core {
            fleet: Fleet::new(config.health),
            router: Router::new(config.routing.policy),
            budget: Budget::new(config.retry.share, RETRIES_PER_S, config.retry.burst),
            index: PrefixIndex::new(HOLDINGS_MAX),
            matches: Matches::default(),
            queue: Queue::new(bounds),
            admission: Admission::default(),
            scales: BTreeMap::new(),
            computed: VecDeque::new(),
            waiters: BTreeMap::new(),
            next_request: 0,
            rng: SmallRng::from_os_rng(),
            peers: BTreeMap::new(),
            configured: BTreeMap::new(),
        };
        let gateway = Self {
            config: ArcSwap::from_pointee(config),
            tenants,
            metrics: Metrics::new(),
            history: Mutex::default(),
            logs,
            tracer: None,
            connector: TransportConnector::new(None),
            is_draining: AtomicBool::new(false),
            running: AtomicUsize::new(0),
            idle: Notify::new(),
            upgrade: Notify::new(),
            core: Mutex::new(core),
            origin: std::time::Instant::now(),
            background,
        };
        gateway.set_tenants(&gateway.tenants.ring());
        let routing = gateway.config.load().routing.clone();
        gateway.change_policies(&Routing { policies: BTreeMap::new(), ..routing.clone() }, &routing);
        gateway
    }

    /// The time, as the core counts it.
    pub fn now(&self) -> Instant {
        self.at(std::time::Instant::now())
    }

    /// A time of the system's clock, as the core counts it.
    pub fn at(&self, time: std::time::Instant) -> Instant {
        Instant(u64::try_from(time.saturating_duration_since(self.origin).as_nanos()).unwrap_or(u64::MAX))
    }

    /// No core operation leaves it half done, so a panic elsewhere does not make it unusable.
    fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
