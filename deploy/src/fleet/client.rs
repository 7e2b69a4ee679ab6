//! The gateway's admin API, as far as the operator's command uses it (ports and routes of the README).

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use serde::de::DeserializeOwned;
use shared::openai::ErrorBody;
use shared::wire::{FleetEntry, FleetList, PolicyChange, PolicyList, Registration, ScaleList};

use crate::http::Peer;

const DEADLINE: Duration = Duration::from_secs(10);

/// One gateway's admin port.
#[derive(Debug)]
pub struct Admin {
    authority: String,
    key: Option<String>,
}

impl Admin {
    /// Reads address and key; asks nothing yet.
    ///
    /// # Errors
    ///
    /// When the address is no `http://host:port`, or the key can't be read.
    pub fn new(url: &str, key_file: Option<&Path>) -> Result<Self, String> {
        let key = key_file.map(read_key).transpose()?;
        Ok(Self { authority: authority(url)?, key })
    }

    /// `host:port`.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// `GET /fleet`.
    ///
    /// # Errors
    ///
    /// When the gateway can't be reached or says no: its own words. So for all below.
    pub async fn list(&self) -> Result<FleetList, String> {
        parsed(&self.ask(Method::GET, "/fleet", Bytes::new()).await?)
    }

    /// `GET /scale`.
    pub async fn scale(&self) -> Result<ScaleList, String> {
        parsed(&self.ask(Method::GET, "/scale", Bytes::new()).await?)
    }

    /// `GET /fleet/{id}`.
    pub async fn show(&self, id: &str) -> Result<FleetEntry, String> {
        parsed(&self.ask(Method::GET, &route(id, ""), Bytes::new()).await?)
    }

    /// `POST /fleet`, then what the gateway believes of it.
    pub async fn add(&self, registration: &Registration) -> Result<FleetEntry, String> {
        let body = serde_json::to_vec(registration).map_err(|error| error.to_string())?;
        self.ask(Method::POST, "/fleet", Bytes::from(body)).await?;
        self.show(&authority(&registration.url)?).await
    }

    /// `POST /fleet/{id}/drain`.
    pub async fn drain(&self, id: &str) -> Result<(), String> {
        self.ask(Method::POST, &route(id, "/drain"), Bytes::new()).await.map(drop)
    }

    /// `DELETE /fleet/{id}/drain`.
    pub async fn undrain(&self, id: &str) -> Result<(), String> {
        self.ask(Method::DELETE, &route(id, "/drain"), Bytes::new()).await.map(drop)
    }

    /// `DELETE /fleet/{id}`.
    pub async fn remove(&self, id: &str) -> Result<(), String> {
        self.ask(Method::DELETE, &route(id, ""), Bytes::new()).await.map(drop)
    }

    /// `GET /routing`.
    pub async fn policies(&self) -> Result<PolicyList, String> {
        parsed(&self.ask(Method::GET, "/routing", Bytes::new()).await?)
    }

    /// `POST /routing`.
    pub async fn change_policy(&self, change: &PolicyChange) -> Result<PolicyList, String> {
        let body = serde_json::to_vec(change).map_err(|error| error.to_string())?;
        parsed(&self.ask(Method::POST, "/routing", Bytes::from(body)).await?)
    }

    async fn ask(&self, method: Method, path: &str, body: Bytes) -> Result<Bytes, String> {
        let peer = Peer { authority: &self.authority, key: self.key.as_deref(), deadline: DEADLINE };
        let answer = peer.send(method, path, body).await;
        let answer = answer.map_err(|error| format!("gateway at {}: {error}", self.authority))?;
        if answer.status.is_success() { Ok(answer.body) } else { Err(refusal(answer.status, &answer.body)) }
    }
}

/// A replica is named by host and port; whoever pastes its URL means the same.
fn route(id: &str, what: &str) -> String {
    let id = authority(id).unwrap_or_else(|_| id.to_owned());
    format!("/fleet/{}{what}", id.replace('[', "%5B").replace(']', "%5D"))
}

fn authority(url: &str) -> Result<String, String> {
    let rest = url.strip_prefix("http://").unwrap_or(url).trim_end_matches('/');
    let is_plain = !rest.contains('/')
        && rest.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if is_plain {
        Ok(rest.to_owned())
    } else {
        Err(format!("{url}: give an address like http://127.0.0.1:9000"))
    }
}

fn read_key(path: &Path) -> Result<String, String> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let key = text.trim();
    if key.is_empty() { Err(format!("{}: holds no key", path.display())) } else { Ok(key.to_owned()) }
}

fn parsed<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| format!("the gateway's answer is not understood: {error}"))
}

fn refusal(status: StatusCode, body: &[u8]) -> String {
    let said = serde_json::from_slice::<ErrorBody>(body).ok().map(|body| body.error.message);
    let hint = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "; give the admin key with --admin-key-file",
        _ => "",
    };
    format!("the gateway says {}: {}{hint}", status.as_u16(), said.unwrap_or_else(|| status.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_needs_host_and_port_and_nothing_else() {
        assert_eq!(authority("http://127.0.0.1:9000/").unwrap(), "127.0.0.1:9000");
        assert_eq!(authority("replica-1:8001").unwrap(), "replica-1:8001");
        for wrong in ["http://host", "https://host:1", "http://host:99999", "http://host:1/fleet", ":80"] {
            assert!(authority(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_replica_is_named_by_its_address_or_its_url() {
        assert_eq!(route("10.0.0.5:8001", "/drain"), "/fleet/10.0.0.5:8001/drain");
        assert_eq!(route("http://10.0.0.5:8001", ""), "/fleet/10.0.0.5:8001");
        assert_eq!(route("[::1]:8001", ""), "/fleet/%5B::1%5D:8001");
    }

    #[test]
    fn a_refusal_keeps_the_gateways_words_and_says_what_to_do() {
        let body = ErrorBody::new("invalid_request_error", "no such key").to_json();
        let text = refusal(StatusCode::UNAUTHORIZED, &body);
        assert_eq!(text, "the gateway says 401: no such key; give the admin key with --admin-key-file");
        assert_eq!(refusal(StatusCode::BAD_GATEWAY, b"<html>"), "the gateway says 502: 502 Bad Gateway");
    }
}
