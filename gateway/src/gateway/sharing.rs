//! What the store is told of this gateway, and what it tells.

use super::Gateway;
use crate::store::{Computed, Spent};
use gateway_core::prefix_index::Settlement;
use gateway_core::replica::Replica;
use shared::id::ReplicaId;
use shared::prefix::PieceHash;

/// Prompts kept for the other gateways until the next round, and pieces of one. The newest are worth most.
const COMPUTED_MAX: usize = 1000;
const PIECES_MAX: usize = 512;

impl Gateway {
    /// What limited tenants spent here since the last time.
    pub fn take_spent(&self) -> Vec<Spent> {
        let untold = self.core().admission.take_untold();
        let ring = self.tenants.ring();
        let spent = |(id, requests, tokens)| {
            Some(Spent { tenant: ring.numbered(id)?.name.clone(), requests, tokens })
        };
        untold.into_iter().filter_map(spent).collect()
    }

    /// What they spent elsewhere.
    pub fn absorb(&self, others: &[Spent]) {
        let ring = self.tenants.ring();
        let now = self.now();
        let mut core = self.core();
        for other in others {
            if let Some(tenant) = ring.named(&other.tenant) {
                core.admission.absorb(tenant.id, other.requests, other.tokens, now);
            }
        }
    }

    /// A prompt was computed on a replica that does not say itself what it holds.
    pub(super) fn remember_computed(&self, id: ReplicaId, pieces: &[PieceHash], predicted: u32) {
        let new = pieces.iter().skip(predicted as usize).take(PIECES_MAX);
        let mut core = self.core();
        if core.index.is_exact(id) || predicted as usize >= pieces.len() {
            return;
        }
        let Some(replica) = core.fleet.get(id) else { return };
        let instance = replica.identity().instance.clone();
        let one = Computed { url: replica.endpoint().to_owned(), instance, pieces: new.copied().collect() };
        if core.computed.len() == COMPUTED_MAX {
            core.computed.pop_front();
        }
        core.computed.push_back(one);
    }

    /// What was computed here since the last time.
    pub fn take_computed(&self) -> Vec<Computed> {
        self.core().computed.drain(..).collect()
    }

    /// What was computed elsewhere, on replicas that are known here too.
    pub fn learn_computed(&self, news: &[Computed]) {
        let mut core = self.core();
        for one in news {
            let same = core.fleet.at(&one.url).filter(|replica| replica.identity().instance == one.instance);
            if let Some(id) = same.map(Replica::id) {
                let end = Settlement { is_computed: true, predicted: 0, reported: None };
                core.index.settle(id, &one.pieces, end);
            }
        }
    }
}
