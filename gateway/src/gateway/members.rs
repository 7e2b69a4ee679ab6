//! Who is in the fleet: events go to the core, and what they change goes to peers, probes, connections and the log.

use super::Gateway;
use crate::config::Configured;
use crate::http::endpoint::Endpoint;
use arc_swap::ArcSwap;
use gateway_core::fleet::{Change, Event, Report, Source};
use gateway_core::health::Fault;
use gateway_core::prefix_index::{PieceChange, Sync};
use gateway_core::replica::{Engine, Identity};
use shared::id::ReplicaId;
use shared::prefix::PIECE_BYTES;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// Bytes of prompt text a token stands for, to tell how many pieces a KV pool can hold.
const BYTES_PER_TOKEN: usize = 4;

/// A replica as the shell sees it: how to reach it, and what it said about itself.
#[derive(Debug)]
pub struct Peer {
    /// Its number in this gateway.
    pub id: ReplicaId,
    /// Where it listens.
    pub endpoint: Endpoint,
    /// Who answered there last.
    pub identity: ArcSwap<Identity>,
    /// Its engine, when configuration says so.
    pub engine: Option<Engine>,
    /// How it came here.
    pub source: &'static str,
    /// Asks for a probe out of turn.
    pub probe_now: Notify,
    /// Tells whoever waits for it that it can't be reached or does not move.
    pub lost: Notify,
    /// It can't be reached or does not move, as far as is known now.
    pub is_lost: AtomicBool,
    /// Set when it is forgotten.
    pub is_gone: AtomicBool,
}

impl Gateway {
    /// A source names a replica.
    pub fn join(self: &Arc<Self>, replica: &Configured, source: Source) {
        self.core().configured.insert(replica.url.clone(), replica.clone());
        self.apply(Event::Joined {
            endpoint: replica.url.clone(),
            source,
            models: replica.models.clone(),
            running_max: replica.running_max,
        });
    }

    /// Takes in what happened, and starts or ends what follows from it.
    pub fn apply(self: &Arc<Self>, event: Event) {
        let source = if let Event::Joined { source, .. } = &event { Some(*source) } else { None };
        let now = self.now();
        let changes = self.core().fleet.apply(event, now);
        for change in &changes {
            if let Change::Added(id) = change {
                self.add_peer(*id, source.map_or("", word));
            }
        }
        self.note(&changes);
        self.dispatch();
    }

    fn add_peer(self: &Arc<Self>, id: ReplicaId, source: &'static str) {
        let mut core = self.core();
        let Some(url) = core.fleet.get(id).map(|replica| replica.endpoint().to_owned()) else { return };
        let configured = core.configured.get(&url);
        let key =
            configured.and_then(|configured| configured.key.as_ref()).map(|key| key.reveal().to_owned());
        let engine = configured.and_then(|configured| configured.engine);
        let endpoint = Endpoint::parse(&url, key).expect("whoever named it has parsed its URL");
        let peer = Arc::new(Peer {
            id,
            endpoint,
            identity: ArcSwap::default(),
            engine,
            source,
            probe_now: Notify::new(),
            lost: Notify::new(),
            is_lost: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
        });
        core.peers.insert(id, peer.clone());
        drop(core);
        tracing::info!(replica = %peer.endpoint.authority, source, "joined");
        self.metrics.add_replica(&peer.endpoint.authority);
        self.background.spawn(crate::probe::watch(self.clone(), peer.clone()));
        self.background.spawn(crate::events::follow(self.clone(), peer));
    }

    /// A probe was answered, or not.
    pub fn probed(self: &Arc<Self>, peer: &Peer, report: Option<Report>) {
        let Some(report) = report else {
            self.metrics.probe_failures.with_label_values(&[&peer.endpoint.authority]).inc();
            self.apply(Event::ProbeFailed(peer.id));
            return;
        };
        let known = peer.identity.load();
        if known.instance != report.identity.instance || known.engine != report.identity.engine {
            peer.endpoint.forget_connections();
        }
        for model in report.identity.models.iter().filter(|model| !known.models.contains(model)) {
            self.metrics.add_model(model);
        }
        peer.identity.store(Arc::new(report.identity.clone()));
        let pieces =
            report.sample.kv_tokens_max.map(|tokens| tokens as usize * BYTES_PER_TOKEN / PIECE_BYTES);
        self.core().index.set_capacity(peer.id, pieces);
        self.apply(Event::Reported(peer.id, report));
        peer.endpoint.set_verified(self.now());
    }

    /// Pieces came and went on a replica.
    pub fn apply_pieces(&self, id: ReplicaId, change: PieceChange<'_>) -> Sync {
        self.core().index.apply(id, change)
    }

    /// A replica's events are no longer complete.
    pub fn lost_events(&self, id: ReplicaId) {
        self.core().index.lost_stream(id);
    }

    /// Tells the log, the index and the connections what changed.
    pub(super) fn note(&self, changes: &[Change]) {
        for change in changes {
            match *change {
                Change::Added(_) => {}
                Change::State(id, state, why) => {
                    tracing::info!(replica = self.name(id), state = state.word(), why, "state");
                }
                Change::Instance(id) => {
                    tracing::warn!(replica = self.name(id), "another process answers here now");
                    self.core().index.forget(id);
                    if let Some(peer) = self.peer(id) {
                        peer.endpoint.forget_connections();
                    }
                }
                Change::Opened(id, fault) => {
                    tracing::warn!(replica = self.name(id), fault = fault.what(), "ejected");
                    self.metrics.ejections.with_label_values(&[&self.name(id)]).inc();
                    if let Some(peer) = self.peer(id) {
                        peer.probe_now.notify_one();
                        if matches!(fault, Fault::Refused | Fault::Unreachable | Fault::Stalled) {
                            peer.is_lost.store(true, Ordering::Relaxed);
                            peer.lost.notify_waiters();
                        }
                    }
                }
                Change::Closed(id) => {
                    tracing::info!(replica = self.name(id), "readmitted");
                    if let Some(peer) = self.peer(id) {
                        peer.is_lost.store(false, Ordering::Relaxed);
                    }
                }
                Change::Gone(id) => self.remove_peer(id),
            }
        }
    }

    fn remove_peer(&self, id: ReplicaId) {
        let mut core = self.core();
        core.index.forget(id);
        let Some(peer) = core.peers.remove(&id) else { return };
        drop(core);
        tracing::info!(replica = %peer.endpoint.authority, "gone");
        peer.is_gone.store(true, Ordering::Relaxed);
        peer.endpoint.forget_connections();
        peer.probe_now.notify_one();
        self.metrics.remove_replica(&peer.endpoint.authority);
    }

    fn peer(&self, id: ReplicaId) -> Option<Arc<Peer>> {
        self.core().peers.get(&id).cloned()
    }

    fn name(&self, id: ReplicaId) -> String {
        self.peer(id).map_or_else(|| format!("#{}", id.0), |peer| peer.endpoint.authority.clone())
    }

    /// The peer that is called so.
    pub fn peer_named(&self, authority: &str) -> Option<Arc<Peer>> {
        self.core().peers.values().find(|peer| peer.endpoint.authority == authority).cloned()
    }

    /// What is due every so often: first tokens that come far too late, and room that came with time alone.
    pub fn tick(self: &Arc<Self>) {
        let now = self.now();
        let changes = self.core().fleet.eject_outliers(now);
        self.note(&changes);
        self.observe_scale();
        self.dispatch();
    }
}

const fn word(source: Source) -> &'static str {
    match source {
        Source::Config => "config",
        Source::Lease => "lease",
        Source::Redis => "redis",
        Source::Dns => "dns",
        Source::Kubernetes => "kubernetes",
    }
}
