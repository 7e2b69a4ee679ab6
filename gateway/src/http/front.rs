//! The public port: one request in, one answer out, in named steps.

use super::attempts::{self, Search, Stop};
use super::body;
use super::deliver;
use super::error::{Error, What};
use super::naming;
use super::record::Ending;
use super::relay;
use super::request::{self, Request};
use super::route::{Api, Route, route};
use super::session::{self, HeadLimits};
use super::shadow;
use super::who;
use super::{headers, reply};
use crate::config::Config;
use crate::gateway::Gateway;
use crate::telemetry::{Outcome, Trace};
use crate::tenants::Caller;
use async_trait::async_trait;
use bytes::Bytes;
use gateway_core::replica::ModelKey;
use pingora::apps::{HttpServerApp, HttpServerOptions, ReusedHttpStream};
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Most bytes of all headers of a request.
const HEADER_BYTES_MAX: usize = 64 * 1024;

/// What is done with a request of the public port.
pub struct Front {
    gateway: Arc<Gateway>,
    options: HttpServerOptions,
}

impl std::fmt::Debug for Front {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Front").finish_non_exhaustive()
    }
}

#[async_trait]
impl HttpServerApp for Front {
    async fn process_new_http(
        self: &Arc<Self>,
        mut session: ServerSession,
        _shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        let client_idle = self.gateway.config.load().server.client_idle;
        let limits = HeadLimits { head: client_idle, client_idle };
        // All three steps are boxed, so that none takes room while another runs.
        if !Box::pin(session::open(&mut session, limits)).await {
            return None;
        }
        let running = Running::new(&self.gateway);
        if self.gateway.is_draining.load(Ordering::Relaxed) {
            session.set_keepalive(None);
        }
        let keep = Box::pin(self.serve(&mut session)).await;
        // The answer is out: what the connection still needs to close in order is no running request.
        drop(running);
        Box::pin(session::close(session, keep)).await
    }

    fn server_options(&self) -> Option<&HttpServerOptions> {
        Some(&self.options)
    }
}

/// Counts a request for as long as it lives.
struct Running<'a>(&'a Gateway);

impl<'a> Running<'a> {
    fn new(gateway: &'a Gateway) -> Self {
        gateway.running.fetch_add(1, Ordering::Relaxed);
        gateway.metrics.in_flight.inc();
        Self(gateway)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.metrics.in_flight.dec();
        if self.0.running.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}

impl Front {
    /// For connections that speak HTTP/2 without TLS, or for all others.
    pub fn new(gateway: Arc<Gateway>, h2c: bool) -> Self {
        let mut options = HttpServerOptions::default();
        options.h2c = h2c;
        Self { gateway, options }
    }

    /// Answers one request; whether the connection may carry another.
    async fn serve(&self, session: &mut ServerSession) -> bool {
        let config = self.gateway.config.load_full();
        let head = session.req_header();
        let id = request::id(&head.headers);
        let total = request::total(&head.headers, config.timeouts.total);
        let target = head.uri.path_and_query().map_or_else(String::new, |target| target.as_str().to_owned());
        let method = head.method.clone();
        let path = head.uri.path().to_owned();
        if let Some(error) = head_fault(head) {
            let request = Request::new(id, Api::Other, method, target, total);
            return self.refuse(session, &request, &error).await;
        }
        let route = route(&path);
        let Caller { tenant, key } = match who::identify(&self.gateway, &head.headers) {
            Ok(caller) => caller,
            // Whoever looks whether we live needs no key.
            Err(_) if matches!(route, Route::Health | Route::Ready) => Caller::anybody(),
            Err(error) => {
                let request = Request::new(id, Api::Other, method, target, total);
                return self.refuse(session, &request, &error).await;
            }
        };
        match route {
            Route::Api(api) => {
                let mut request = Box::new(Request::new(id, api, method, target, total));
                request.class = tenant.class_of(who::class(&head.headers));
                request.tenant = tenant;
                request.trace = self.gateway.tracer.as_ref().and_then(|_| Trace::begin(&head.headers));
                request.key = key;
                request.session = request::session(&head.headers, &config.routing.session_headers);
                self.answer(session, request, &config).await
            }
            local => {
                let mut request = Request::new(id, Api::Other, method, target, total);
                request.tenant = tenant;
                self.answer_here(session, &request, local, &config).await
            }
        }
    }

    async fn answer_here(
        &self,
        session: &mut ServerSession,
        request: &Request,
        route: Route<'_>,
        config: &Config,
    ) -> bool {
        if route != Route::Unknown && !matches!(request.method, http::Method::GET | http::Method::HEAD) {
            let error = Error::new(What::WrongMethod, format!("{} takes GET only", request.path()));
            return self.refuse(session, request, &error).await;
        }
        match route {
            Route::Health => reply::json(session, 200, &serde_json::json!({ "status": "alive" })).await,
            Route::Ready if self.gateway.is_ready() => {
                reply::json(session, 200, &serde_json::json!({ "status": "ready" })).await
            }
            Route::Ready => {
                // Asked many times a second while a fleet starts: an answer, not an event worth a line.
                self.tell(session, request, &attempts::no_replica(&self.gateway, "any model")).await
            }
            Route::Models => {
                let models = naming::names(&self.gateway, &config.models);
                let allowed = models.iter().filter(|name| request.tenant.may_use(name));
                let list: Vec<_> = allowed.map(|name| model_object(name)).collect();
                reply::json(session, 200, &serde_json::json!({ "object": "list", "data": list })).await
            }
            Route::Model(id) => {
                let name = id.replace("%2F", "/").replace("%2f", "/");
                let is_alias = config.models.aliases.contains_key(&name);
                if request.tenant.may_use(&name) && (is_alias || self.gateway.models().contains(&name)) {
                    return reply::json(session, 200, &model_object(&name)).await;
                }
                self.refuse(session, request, &naming::unknown(&self.gateway, &config.models, &name)).await
            }
            Route::Api(_) | Route::Unknown => {
                let error = Error::new(What::UnknownRoute, format!("there is no {}", request.path()));
                self.refuse(session, request, &error).await
            }
        }
    }

    async fn answer(&self, session: &mut ServerSession, mut request: Box<Request>, config: &Config) -> bool {
        let stop = match self.forward(session, &mut request, config).await {
            Ok(keep) => return keep,
            Err(stop) => stop,
        };
        match stop {
            Stop::Refused(error) => self.refuse(session, &request, &error).await,
            Stop::ClientGone => {
                Ending::of(Outcome::ClientClosed).record(&self.gateway, &request);
                false
            }
        }
    }

    /// Gather, admit, choose and send, relay, record.
    async fn forward(
        &self,
        session: &mut ServerSession,
        request: &mut Request,
        config: &Config,
    ) -> Result<bool, Stop> {
        let (body, is_json) = self.gather(session, request, config).await?;
        let model = self.admit(request, body, is_json, config)?;
        who::admit(&self.gateway, request, model)?;
        let latest = (request.received + config.queue.wait_max).min(request.deadline);
        let order = request.order(model, self.gateway.at(latest));
        shadow::cast(&self.gateway, request, &config.models, &config.timeouts);
        // Boxed, so that a stream under way takes no room for the search that is over.
        let found = Box::pin(Search::new(&self.gateway, session, request, order.clone()).run()).await?;
        Ok(deliver::deliver(&self.gateway, session, request, found, order).await)
    }

    async fn gather(
        &self,
        session: &mut ServerSession,
        request: &mut Request,
        config: &Config,
    ) -> Result<(Bytes, bool), Error> {
        let limits =
            body::Limits { bytes_max: config.server.body_bytes_max, idle: config.server.client_idle };
        let body = body::read(session, limits).await?;
        let content_type = session.get_header_bytes(http::header::CONTENT_TYPE);
        let is_json = content_type.is_empty() || content_type.starts_with(b"application/json");
        request.received = Instant::now();
        Ok((body, is_json))
    }

    fn admit(
        &self,
        request: &mut Request,
        body: Bytes,
        is_json: bool,
        config: &Config,
    ) -> Result<ModelKey, Error> {
        self.gateway.deposit();
        let resolve = |asked: &str| naming::resolve(&self.gateway, &config.models, asked);
        let model = request.set_body(body, is_json, resolve)?;
        request.times.route = request.received.elapsed();
        self.gateway.metrics.route_time.observe(request.times.route.as_secs_f64());
        Ok(model)
    }

    /// Tells the client why not, and everybody else too; whether the connection may carry another request.
    async fn refuse(&self, session: &mut ServerSession, request: &Request, error: &Error) -> bool {
        self.gateway.metrics.refused.with_label_values(&[error.what.code()]).inc();
        Ending::refused(error).record(&self.gateway, request);
        self.tell(session, request, error).await
    }

    /// Sends an error in the form that still fits; whether the connection may carry another request.
    async fn tell(&self, session: &mut ServerSession, request: &Request, error: &Error) -> bool {
        if session.response_written().is_some_and(|header| header.status.as_u16() >= 200) {
            let event = error.event(relay::has_own_error_event(request.api));
            return session::write(session, &event).await && session.finish_body().await.is_ok();
        }
        if error.what.ends_connection() {
            session.set_keepalive(None);
        }
        let is_told =
            reply::error(session, error, &request.id, request.history.attempts, &request.limits).await;
        is_told && !error.what.ends_connection() && session.is_body_done()
    }
}

/// Why a head that was parsed is refused all the same.
fn head_fault(head: &pingora::http::RequestHeader) -> Option<Error> {
    let lacks_host = head.version == http::Version::HTTP_11 && !head.headers.contains_key(http::header::HOST);
    let fault = headers::framing_fault(&head.headers).or(lacks_host.then_some("the host header is missing"));
    if let Some(fault) = fault {
        return Some(Error::new(What::BadHttp, fault));
    }
    let bytes: usize = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    (bytes > HEADER_BYTES_MAX).then(|| {
        Error::new(What::HeadTooLarge, format!("headers are over the limit of {HEADER_BYTES_MAX} bytes"))
    })
}

fn model_object(name: &str) -> serde_json::Value {
    serde_json::json!({ "id": name, "object": "model", "created": 0, "owned_by": "flotilla" })
}
