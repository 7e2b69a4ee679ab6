//! Replicas that register themselves, and stay for as long as they renew.

use crate::config::Configured;
use crate::engine;
use crate::gateway::Gateway;
use crate::http::endpoint::Endpoint;
use gateway_core::fleet::{Event, Source};
use shared::wire::Registration;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Leases that may be open at once: whoever can reach the admin port can't fill the memory.
const LEASES_MAX: usize = 10_000;

/// Open leases, by URL.
#[derive(Debug, Default)]
pub struct Leases {
    until: Mutex<BTreeMap<String, Option<Instant>>>,
}

impl Leases {
    /// Opens or renews a lease; the replica's URL as the fleet knows it.
    ///
    /// # Errors
    ///
    /// Says which field is wrong.
    pub fn register(&self, gateway: &Arc<Gateway>, asked: &Registration) -> Result<Endpoint, String> {
        let endpoint = Endpoint::parse(&asked.url, None).map_err(|error| format!("`url`: {error}"))?;
        let engine = match asked.engine.as_deref().filter(|word| !word.is_empty()) {
            None => None,
            Some(word) => {
                Some(engine::parse(word).ok_or_else(|| format!("`engine`: `{word}` is none we know"))?)
            }
        };
        if asked.lease_s == Some(0) {
            return Err("`lease_s` must be at least 1".to_owned());
        }
        let until = asked.lease_s.map(|seconds| Instant::now() + Duration::from_secs(u64::from(seconds)));
        let mut leases = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        if leases.len() >= LEASES_MAX && !leases.contains_key(&endpoint.url()) {
            return Err(format!("there are {LEASES_MAX} leases already"));
        }
        leases.insert(endpoint.url(), until);
        drop(leases);
        let replica =
            Configured { url: endpoint.url(), engine, models: Vec::new(), running_max: None, key: None };
        gateway.join(&replica, Source::Lease);
        Ok(endpoint)
    }

    /// Open leases, and how long each has left; `None` is until it is removed.
    pub fn open(&self) -> Vec<(String, Option<Duration>)> {
        let now = Instant::now();
        let leases = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        let left = |until: &Option<Instant>| until.map(|until| until.saturating_duration_since(now));
        leases.iter().map(|(url, until)| (url.clone(), left(until))).collect()
    }

    /// Ends a lease before its time.
    pub fn end(&self, url: &str) {
        self.until.lock().unwrap_or_else(PoisonError::into_inner).remove(url);
    }

    /// Takes back the replicas whose leases ran out.
    pub fn expire(&self, gateway: &Arc<Gateway>) {
        let now = Instant::now();
        let mut leases = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |until: &Option<Instant>| until.is_some_and(|until| until <= now);
        let over: Vec<_> =
            leases.iter().filter(|(_, until)| is_over(until)).map(|(url, _)| url.clone()).collect();
        leases.retain(|_, until| !is_over(until));
        drop(leases);
        for endpoint in over {
            tracing::info!(replica = endpoint, "lease ran out");
            gateway.apply(Event::Left { endpoint, source: Source::Lease });
        }
    }
}
