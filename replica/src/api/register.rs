//! Joins a gateway's fleet, and renews the lease for as long as this process lives.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, Uri};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use shared::wire::Registration;
use tokio::net::TcpStream;

/// A replica that says nothing for this long is forgotten.
const LEASE: Duration = Duration::from_secs(15);
/// Two renewals may be lost.
const RENEW_EVERY: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(5);

/// Where to register, and as what.
#[derive(Clone, Debug)]
pub struct Registrar {
    /// A gateway's admin port.
    pub gateway: Uri,
    /// Its admin key, where it has one.
    pub key: Option<String>,
    /// Where this replica is reached.
    pub url: String,
}

impl Registrar {
    /// Renews until the process ends. A gateway that can't be reached is told of once, and again when it is back.
    pub async fn keep(self) {
        let mut was_well = None;
        loop {
            let outcome = match tokio::time::timeout(PATIENCE, self.register()).await {
                Ok(outcome) => outcome,
                Err(_) => Err("it does not answer".to_owned()),
            };
            if was_well != Some(outcome.is_ok()) {
                match &outcome {
                    Ok(()) => tracing::info!(gateway = %self.gateway, url = self.url, "registered"),
                    Err(reason) => tracing::warn!(gateway = %self.gateway, reason, "cannot register"),
                }
            }
            was_well = Some(outcome.is_ok());
            tokio::time::sleep(RENEW_EVERY).await;
        }
    }

    async fn register(&self) -> Result<(), String> {
        let authority = self.gateway.authority().ok_or("its URL has no host")?;
        let address = (authority.host().trim_matches(['[', ']']), authority.port_u16().unwrap_or(80));
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| error.to_string())?;
        let talking = tokio::spawn(connection);
        let answer = sender.send_request(self.request(authority.as_str())?).await;
        talking.abort();
        match answer.map_err(|error| error.to_string())?.status() {
            status if status.is_success() => Ok(()),
            StatusCode::UNAUTHORIZED => Err("it wants an admin key (--register-key)".to_owned()),
            status => Err(format!("it answers {status}")),
        }
    }

    fn request(&self, authority: &str) -> Result<Request<Full<Bytes>>, String> {
        let registration = Registration {
            url: self.url.clone(),
            engine: Some("flotilla".to_owned()),
            lease_s: Some(LEASE.as_secs() as u32),
        };
        let mut body = Vec::new();
        super::json::write(&mut body, &registration);
        let mut request =
            Request::post("/fleet").header("host", authority).header("content-type", "application/json");
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        request.body(Full::new(body.into())).map_err(|error| error.to_string())
    }
}
