//! Keeps one gateway and the store in step: tells what happened here, takes in what happened elsewhere.
//!
//! When the store can't be reached the gateway goes on with what it knows; what it would have told is kept, within
//! bounds, and told afterwards.

use super::spending::Spending;
use super::{Cursor, Outage, Store};
use crate::config::Configured;
use crate::discovery::lease::Leases;
use crate::discovery::roster::Roster;
use crate::gateway::Gateway;
use crate::http::endpoint::Endpoint;
use gateway_core::fleet::{Event, Source};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between two rounds: how late a limit may be noticed over several gateways.
const ROUND: Duration = Duration::from_millis(200);
/// Time between two looks at who is registered, and two renewals of what is registered here.
const MEMBERSHIP_ROUND: Duration = Duration::from_secs(1);
/// Time between two tries while the store can't be reached.
const OUTAGE_PAUSE: Duration = Duration::from_secs(1);
/// A member must be missing for so long before it is taken to have left: after an outage its gateway needs a moment
/// to announce it again.
const MISSING_MAX: Duration = Duration::from_secs(5);
/// A lease is announced for no longer than this at a time, so that a gateway that dies takes its word with it.
const LEASE_SHOWN: Duration = Duration::from_secs(10);

/// Shares for ever.
pub async fn share(gateway: Arc<Gateway>, leases: Arc<Leases>, store: Arc<dyn Store>) {
    let mut sharer = Sharer {
        gateway,
        leases,
        store,
        spending: Spending::default(),
        cursor: Cursor::default(),
        announced: BTreeSet::new(),
        members: Roster::new(MISSING_MAX),
        looked_at: None,
    };
    let mut is_out = false;
    loop {
        let round = sharer.round().await;
        if let Err(outage) = &round
            && !is_out
        {
            tracing::warn!(%outage, "the store can't be reached; going on alone");
        }
        if round.is_ok() && is_out {
            tracing::info!("the store is back");
        }
        is_out = round.is_err();
        sharer.gateway.metrics.store_up.set(i64::from(!is_out));
        tokio::time::sleep(if is_out { OUTAGE_PAUSE } else { ROUND }).await;
    }
}

struct Sharer {
    gateway: Arc<Gateway>,
    leases: Arc<Leases>,
    store: Arc<dyn Store>,
    spending: Spending,
    cursor: Cursor,
    /// URLs of our leases that the others know of.
    announced: BTreeSet<String>,
    /// Members the fleet knows of through the store.
    members: Roster,
    looked_at: Option<Instant>,
}

impl Sharer {
    async fn round(&mut self) -> Result<(), Outage> {
        self.spending.add(self.gateway.take_spent());
        let told = self.spending.to_tell();
        if !told.is_empty() {
            let totals = self.store.spend(&told).await?;
            self.gateway.absorb(&self.spending.told(&told, totals, Instant::now()));
        }
        self.exchange_news().await?;
        if self.looked_at.is_none_or(|at| at.elapsed() >= MEMBERSHIP_ROUND) {
            self.announce().await?;
            let members = self.store.members().await?;
            self.follow(members);
            self.looked_at = Some(Instant::now());
        }
        Ok(())
    }

    async fn exchange_news(&mut self) -> Result<(), Outage> {
        // Taken in first: what is told below is ours and known already.
        let (news, cursor) = self.store.news(&self.cursor).await?;
        self.gateway.learn_computed(&news);
        self.cursor = cursor;
        let own = self.gateway.take_computed();
        if !own.is_empty() {
            self.store.publish(&own).await?;
        }
        Ok(())
    }

    async fn announce(&mut self) -> Result<(), Outage> {
        let open = self.leases.open();
        for (url, left) in &open {
            self.store.announce(url, left.unwrap_or(LEASE_SHOWN).min(LEASE_SHOWN)).await?;
        }
        let open: BTreeSet<_> = open.into_iter().map(|(url, _)| url).collect();
        for url in self.announced.difference(&open) {
            self.store.withdraw(url).await?;
        }
        self.announced = open;
        Ok(())
    }

    /// Names to the fleet who is there, and takes back who has been missing for long.
    fn follow(&mut self, members: Vec<String>) {
        let (joined, left) = self.members.look(members, Instant::now());
        for url in joined {
            self.join(url);
        }
        for endpoint in left {
            self.gateway.apply(Event::Left { endpoint, source: Source::Redis });
        }
    }

    fn join(&self, url: String) {
        if let Err(error) = Endpoint::parse(&url, None) {
            tracing::warn!(url, %error, "the store names a replica that can't be one");
            return;
        }
        let replica = Configured { url, engine: None, models: Vec::new(), running_max: None, key: None };
        self.gateway.join(&replica, Source::Redis);
    }
}
