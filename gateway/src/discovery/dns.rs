//! Replicas behind a name: every address it resolves to is one.

use super::roster::Roster;
use crate::config::Configured;
use crate::gateway::Gateway;
use gateway_core::fleet::{Event, Source};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A server may answer with some of its addresses at a time; one must be missing for so long to be gone.
const MISSING_MAX: Duration = Duration::from_secs(30);
/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Resolves `name` (host and port) again and again, for ever.
pub async fn watch(gateway: Arc<Gateway>, name: String, interval: Duration) {
    let mut roster = Roster::new(MISSING_MAX);
    let mut last_error = String::new();
    loop {
        match resolve(&name).await {
            Ok(urls) => {
                last_error.clear();
                follow(&gateway, &mut roster, urls);
            }
            // Whoever is known stays: a silent name server says nothing about replicas.
            Err(error) if error == last_error => {}
            Err(error) => {
                tracing::warn!(name, error, "does not resolve");
                last_error = error;
            }
        }
        tokio::time::sleep(interval).await;
    }
}

fn follow(gateway: &Arc<Gateway>, roster: &mut Roster, urls: Vec<String>) {
    let (joined, left) = roster.look(urls, Instant::now());
    for url in joined {
        let replica = Configured { url, engine: None, models: Vec::new(), running_max: None, key: None };
        gateway.join(&replica, Source::Dns);
    }
    for endpoint in left {
        gateway.apply(Event::Left { endpoint, source: Source::Dns });
    }
}

/// URLs of all addresses of a name.
async fn resolve(name: &str) -> Result<Vec<String>, String> {
    let addresses = tokio::time::timeout(PATIENCE, tokio::net::lookup_host(name)).await;
    let addresses =
        addresses.map_err(|_| "no answer in time".to_owned())?.map_err(|error| error.to_string())?;
    let mut urls: Vec<_> = addresses.map(|address: SocketAddr| format!("http://{address}")).collect();
    urls.sort();
    urls.dedup();
    Ok(urls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_address_of_a_name_is_a_url() {
        assert_eq!(resolve("127.0.0.1:8001").await, Ok(vec!["http://127.0.0.1:8001".to_owned()]));
        let local = resolve("localhost:8001").await.unwrap();
        assert!(
            local.contains(&"http://127.0.0.1:8001".to_owned())
                || local.contains(&"http://[::1]:8001".to_owned())
        );
    }

    #[tokio::test]
    async fn a_name_without_a_port_is_an_error() {
        assert!(resolve("localhost").await.is_err());
    }
}
