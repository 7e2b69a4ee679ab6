//! Replicas that the configuration and flags name.

use crate::config::Config;
use crate::gateway::Gateway;
use gateway_core::fleet::{Event, Source};
use std::sync::Arc;

/// Names those of `now`, and takes back those of `before` that are not among them.
pub fn apply(gateway: &Arc<Gateway>, before: Option<&Config>, now: &Config) {
    for replica in &now.replicas {
        gateway.join(replica, Source::Config);
    }
    let before = before.map_or(&[][..], |config| &config.replicas);
    for left in before.iter().filter(|old| now.replicas.iter().all(|new| new.url != old.url)) {
        gateway.apply(Event::Left { endpoint: left.url.clone(), source: Source::Config });
    }
}
