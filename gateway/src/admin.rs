//! The operator's port: metrics, the fleet, a page to look at. Guarded by a key unless only this machine reaches it.

use crate::discovery::lease::Leases;
use crate::gateway::{Gateway, Peer};
use crate::http::body::{self, Limits};
use crate::http::error::{Error, What};
use crate::http::session::{self, HeadLimits};
use crate::http::{attempts, reply, request};
use crate::status;
use crate::telemetry::Moment;
use async_trait::async_trait;
use base64::Engine;
use gateway_core::fleet::Event;
use gateway_core::route::Policy;
use http::Method;
use pingora::apps::{HttpServerApp, ReusedHttpStream};
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;
use shared::wire::{FleetList, PolicyChange, PolicyList, Registration, ScaleList};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Largest body anybody has reason to send here.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// Longest pause of a client.
const CLIENT_IDLE: Duration = Duration::from_secs(10);

/// The application of the admin port.
#[derive(Debug)]
pub struct Admin {
    gateway: Arc<Gateway>,
    leases: Arc<Leases>,
}

#[async_trait]
impl HttpServerApp for Admin {
    async fn process_new_http(
        self: &Arc<Self>,
        mut session: ServerSession,
        _shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        if !session::open(&mut session, HeadLimits { head: CLIENT_IDLE, client_idle: CLIENT_IDLE }).await {
            return None;
        }
        let id = request::id(&session.req_header().headers);
        let keep = match self.answer(&mut session).await {
            Ok(keep) => keep,
            Err(error) => {
                let ends = error.what.ends_connection();
                if ends {
                    session.set_keepalive(None);
                }
                // Browsers ask for a name and a password then: any name, and the key.
                let ask = [("www-authenticate", "Basic realm=\"flotilla\"".to_owned())];
                let extra = if error.what == What::InvalidKey { &ask[..] } else { &[] };
                reply::error(&mut session, &error, &id, 0, extra).await && !ends && session.is_body_done()
            }
        };
        session::close(session, keep && !self.gateway.is_draining.load(Ordering::Relaxed)).await
    }
}

/// The password that a browser sends.
fn password(authorization: &[u8]) -> Option<Vec<u8>> {
    let pair =
        base64::engine::general_purpose::STANDARD.decode(authorization.strip_prefix(b"Basic ")?).ok()?;
    let colon = memchr::memchr(b':', &pair)?;
    Some(pair[colon + 1..].to_vec())
}

/// Browsers send a key that they were told along with requests of other sites' pages: such ones change nothing.
fn check_origin(session: &ServerSession) -> Result<(), Error> {
    let head = session.req_header();
    let Some(origin) = head.headers.get(http::header::ORIGIN) else { return Ok(()) };
    let host = head.headers.get(http::header::HOST).map(http::HeaderValue::as_bytes);
    let from =
        origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, host)| host.as_bytes());
    if from.is_some() && from == host {
        return Ok(());
    }
    Err(Error::new(What::ForbiddenOrigin, "a page of another site may not change anything here"))
}

impl Admin {
    /// For one gateway.
    pub fn new(gateway: Arc<Gateway>, leases: Arc<Leases>) -> Self {
        Self { gateway, leases }
    }

    async fn answer(&self, session: &mut ServerSession) -> Result<bool, Error> {
        let method = session.req_header().method.clone();
        let path = session.req_header().uri.path().to_owned();
        let is_get = matches!(method, Method::GET | Method::HEAD);
        match path.as_str() {
            "/health" | "/ping" if is_get => {
                return Ok(reply::json(session, 200, &serde_json::json!({ "status": "alive" })).await);
            }
            "/ready" if is_get && self.gateway.is_ready() => {
                return Ok(reply::json(session, 200, &serde_json::json!({ "status": "ready" })).await);
            }
            "/ready" if is_get => return Err(attempts::no_replica(&self.gateway, "any model")),
            _ => self.check_key(session)?,
        }
        if !is_get {
            check_origin(session)?;
        }
        match (method.as_str(), path.as_str()) {
            ("GET" | "HEAD", "/") => {
                Ok(reply::write(session, 200, "text/html; charset=utf-8", status::PAGE.into(), &[]).await)
            }
            ("GET" | "HEAD", "/metrics") => {
                let (fleet, ready) = (self.gateway.entries(), self.gateway.ready_replicas());
                let slo = self.gateway.config.load().scale.slo;
                let text = self.gateway.metrics.render(&Moment { fleet: &fleet, ready: &ready, slo });
                Ok(reply::write(session, 200, "text/plain; version=0.0.4", text, &[]).await)
            }
            ("GET" | "HEAD", "/fleet") => {
                let list = FleetList { replicas: self.gateway.entries() };
                Ok(reply::json(session, 200, &list).await)
            }
            ("GET" | "HEAD", "/status") => {
                Ok(reply::json(session, 200, &status::status(&self.gateway)).await)
            }
            ("GET" | "HEAD", "/scale") => {
                let list = ScaleList { models: self.gateway.scale() };
                Ok(reply::json(session, 200, &list).await)
            }
            ("GET" | "HEAD", "/routing") => Ok(reply::json(session, 200, &self.policies()).await),
            ("POST", "/routing") => self.change_policy(session).await,
            ("POST", "/fleet") => self.register(session).await,
            ("POST", "/upgrade") if self.gateway.config.load().server.upgrade_socket.is_some() => {
                self.gateway.upgrade.notify_one();
                Ok(reply::json(session, 200, &serde_json::json!({ "status": "handing over" })).await)
            }
            (_, path) => match path.strip_prefix("/fleet/") {
                Some(rest) => self.replica(session, &method, rest).await,
                None => Err(Error::new(What::UnknownRoute, format!("there is no {method} {path} here"))),
            },
        }
    }

    fn check_key(&self, session: &ServerSession) -> Result<(), Error> {
        let config = self.gateway.config.load();
        let Some(key) = &config.admin.key else { return Ok(()) };
        let given = session.get_header_bytes(http::header::AUTHORIZATION);
        let is_right = given.strip_prefix(b"Bearer ").is_some_and(|given| key.is(given))
            || password(given).is_some_and(|given| key.is(&given));
        is_right
            .then_some(())
            .ok_or_else(|| Error::new(What::InvalidKey, "the admin key is missing or wrong"))
    }

    async fn register(&self, session: &mut ServerSession) -> Result<bool, Error> {
        let body = body::read(session, Limits { bytes_max: BODY_BYTES_MAX, idle: CLIENT_IDLE }).await?;
        let asked: Registration = serde_json::from_slice(&body)
            .map_err(|error| Error::new(What::BadBody, format!("the body is no registration: {error}")))?;
        let endpoint =
            self.leases.register(&self.gateway, &asked).map_err(|why| Error::new(What::BadBody, why))?;
        let peer = self.peer(&endpoint.authority)?;
        peer.probe_now.notify_one();
        Ok(self.show(session, &peer).await)
    }

    fn policies(&self) -> PolicyList {
        let (policy, models) = self.gateway.policies();
        let models = models.into_iter().map(|(model, policy)| (model, policy.word().to_owned())).collect();
        PolicyList { policy: policy.word().to_owned(), models }
    }

    async fn change_policy(&self, session: &mut ServerSession) -> Result<bool, Error> {
        let body = body::read(session, Limits { bytes_max: BODY_BYTES_MAX, idle: CLIENT_IDLE }).await?;
        let refuse = |why: String| Error::new(What::BadBody, why);
        let asked: PolicyChange = serde_json::from_slice(&body)
            .map_err(|error| refuse(format!("the body is no change of a policy: {error}")))?;
        let parsed = |word: &String| {
            let words = || Policy::ALL.map(Policy::word).join(", ");
            Policy::parse(word).ok_or_else(|| refuse(format!("`policy` must be one of {}", words())))
        };
        match (&asked.model, asked.policy.as_ref().map(parsed).transpose()?) {
            (Some(model), policy) => self.gateway.set_policy(model, policy).map_err(refuse)?,
            (None, Some(policy)) => self.gateway.set_default_policy(policy),
            (None, None) => return Err(refuse("`policy` is missing".to_owned())),
        }
        tracing::info!(model = asked.model, policy = asked.policy, "operator");
        Ok(reply::json(session, 200, &self.policies()).await)
    }

    async fn replica(&self, session: &mut ServerSession, method: &Method, rest: &str) -> Result<bool, Error> {
        let (name, verb) = rest.split_once('/').map_or((rest, None), |(name, verb)| (name, Some(verb)));
        let peer = self.peer(name)?;
        let event = match (method.as_str(), verb) {
            ("GET" | "HEAD", None) => return Ok(self.show(session, &peer).await),
            ("DELETE", None) => Event::Remove(peer.id),
            ("POST", Some("drain")) => Event::Drain(peer.id),
            ("DELETE", Some("drain")) => Event::Undrain(peer.id),
            _ => return Err(Error::new(What::UnknownRoute, format!("there is no {method} /fleet/{rest}"))),
        };
        if matches!(event, Event::Remove(_)) {
            self.leases.end(&peer.endpoint.url());
        }
        tracing::info!(replica = %peer.endpoint.authority, ?event, "operator");
        self.gateway.apply(event);
        peer.probe_now.notify_one();
        Ok(self.show(session, &peer).await)
    }

    fn peer(&self, name: &str) -> Result<Arc<Peer>, Error> {
        let unknown = || Error::new(What::UnknownReplica, format!("there is no replica `{name}`"));
        self.gateway.peer_named(name).ok_or_else(unknown)
    }

    /// What is believed of one replica; an empty object once it is gone.
    async fn show(&self, session: &mut ServerSession, peer: &Peer) -> bool {
        let entry = self.gateway.entries().into_iter().find(|entry| entry.id == peer.endpoint.authority);
        match entry {
            Some(entry) => reply::json(session, 200, &entry).await,
            None => reply::json(session, 200, &serde_json::json!({})).await,
        }
    }
}
