//! From a request's head to what is done; who may do it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, StatusCode};
use hyper::body::Body;
use serde_json::{Value, json};
use shared::wire::{CONTINUE_HEADER, ReplicaState};

use super::app::{App, model_names};
use super::generate::generate;
use super::options::Options;
use super::plan::Plan;
use super::record::Origin;
use super::respond::{self, Response};
use super::route::Route;
use super::served::Served;
use super::{body, chat, completion, embeddings, events, models, openapi, responses, tokens};
use crate::engine::clock;
use crate::error::Error;
use crate::telemetry::page::EnginePage;
use crate::telemetry::trace::Trace;

/// Answers one request; whatever goes wrong is an answer too.
pub async fn serve<B: Body<Data = Bytes> + Unpin>(
    app: Arc<App>,
    request: Request<B>,
) -> Result<Response, Infallible> {
    let arrival = Instant::now();
    let route = Route::of(request.uri().path());
    let (head, body) = request.into_parts();
    let request_id = request_id(&head.headers);
    let outcome = answer(&app, route, &head, body, &request_id, arrival).await;
    let mut response = outcome.unwrap_or_else(|error| {
        app.metrics.count_refusal(error.what);
        tracing::info!(request_id, route = route.name(), error = %error, "refused");
        respond::error(&error)
    });
    app.metrics.count_response(route.name(), response.status());
    tracing::debug!(request_id, route = route.name(), status = response.status().as_u16(), "answering");
    if let Ok(value) = HeaderValue::from_str(&request_id) {
        response.headers_mut().insert(HeaderName::from_static("x-request-id"), value);
    }
    Ok(response)
}

async fn answer<B: Body<Data = Bytes> + Unpin>(
    app: &Arc<App>,
    route: Route,
    head: &http::request::Parts,
    body: B,
    request_id: &str,
    arrival: Instant,
) -> Result<Response, Error> {
    if !route.is_open() {
        check_key(app, &head.headers)?;
    }
    check_method(route, head)?;
    if !route.takes_body() {
        return look(app, route, head.uri.path());
    }
    let bytes = body::read(&head.headers, body, app.config.body_bytes_max).await?;
    let served = app.served()?;
    match route {
        Route::Tokenize => on_body(app, served, bytes, tokens::tokenize).await,
        Route::Detokenize => on_body(app, served, bytes, tokens::detokenize).await,
        Route::Embeddings => {
            let mut asked = on_body(app, served, bytes, embeddings::plan).await?;
            let mut origin = origin(&head.headers, request_id, arrival, asked.options())?;
            origin.trace = trace(app, route, &head.headers, &asked.options().model);
            embeddings::embed(asked, origin, app, served).await
        }
        _ => {
            let understand = match route {
                Route::Chat => chat::plan,
                Route::Responses => responses::plan,
                _ => completion::plan,
            };
            let mut plan = on_text(app, served, bytes, understand).await?;
            let mut origin = origin(&head.headers, request_id, arrival, &mut plan.options)?;
            origin.trace = trace(app, route, &head.headers, &plan.options.model);
            generate(plan, origin, head.headers.contains_key(CONTINUE_HEADER), app, served).await
        }
    }
}

/// As [`on_body`] for what has an answer in text, whose pieces may be cached.
async fn on_text(
    app: &Arc<App>,
    served: &Arc<Served>,
    bytes: Bytes,
    understand: fn(&Value, &Served) -> Result<Plan, Error>,
) -> Result<Plan, Error> {
    let served = served.clone();
    app.understand(move || {
        let value = body::parse(&bytes)?;
        let mut plan = understand(&value, &served)?;
        plan.land(&value, body::tools(&bytes), &served);
        Ok(plan)
    })
    .await
}

/// Parses and understands a body off the async threads.
async fn on_body<T: Send + 'static>(
    app: &Arc<App>,
    served: &Arc<Served>,
    bytes: Bytes,
    understand: fn(&Value, &Served) -> Result<T, Error>,
) -> Result<T, Error> {
    let served = served.clone();
    app.understand(move || understand(&body::parse(&bytes)?, &served)).await
}

/// Routes without a body.
fn look(app: &Arc<App>, route: Route, path: &str) -> Result<Response, Error> {
    Ok(match route {
        Route::Health => respond::json(&json!({"status": "ok"})),
        Route::Ready => {
            let state = app.state();
            let status =
                if state == ReplicaState::Ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            let mut response = respond::json(&json!({"status": state}));
            *response.status_mut() = status;
            response
        }
        Route::Metrics => {
            let (report, snapshot) = (app.report(), app.snapshot());
            let engine = EnginePage {
                report: &report,
                snapshot: &snapshot,
                prefix_caching: app.config.prefix_caching,
            };
            let page = engine.render() + &app.metrics.page() + &app.cards.render();
            respond::text(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", page)
        }
        Route::OpenApi => respond::json(&openapi::document(&model_names(&app.config))),
        Route::Events => events::begin(app),
        Route::Report => respond::json(&app.report()),
        _ => match path.strip_prefix("/v1/models/") {
            Some(name) => models::one(app, name)?,
            None => models::list(app)?,
        },
    })
}

fn check_method(route: Route, head: &http::request::Parts) -> Result<(), Error> {
    let (method, path) = (&head.method, head.uri.path());
    match route {
        Route::Unknown => Err(Error::unknown_route(method, path)),
        _ if route.takes_body() && method != Method::POST => Err(Error::wrong_method(method, path, "POST")),
        _ if !route.takes_body() && method != Method::GET && method != Method::HEAD => {
            Err(Error::wrong_method(method, path, "GET"))
        }
        _ => Ok(()),
    }
}

fn check_key(app: &App, headers: &HeaderMap) -> Result<(), Error> {
    let keys = &app.config.api_keys;
    if keys.is_empty() {
        return Ok(());
    }
    let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let key = given
        .and_then(|given| given.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    match key {
        Some((_, key)) if keys.contains(key.trim()) => Ok(()),
        _ => Err(Error::unauthorized()),
    }
}

/// The client's id where it is a decent one, else one of ours.
fn request_id(headers: &HeaderMap) -> String {
    let given = headers.get("x-request-id").and_then(|id| id.to_str().ok());
    let is_decent = |id: &&str| !id.is_empty() && id.len() <= 128 && id.chars().all(|c| c.is_ascii_graphic());
    given.filter(is_decent).map_or_else(|| uuid::Uuid::new_v4().simple().to_string(), ToOwned::to_owned)
}

/// Reads the headers that say when an answer is worth something and how much.
fn origin(
    headers: &HeaderMap,
    request_id: &str,
    arrival: Instant,
    options: &mut Options,
) -> Result<Origin, Error> {
    let number = |name: &str| -> Result<Option<i64>, Error> {
        let Some(value) = headers.get(name) else { return Ok(None) };
        let number = value.to_str().ok().and_then(|value| value.trim().parse().ok());
        number
            .map(Some)
            .ok_or_else(|| Error::field(name, format!("the header {name} must be a whole number")))
    };
    if let Some(priority) = number("x-flotilla-priority")? {
        options.priority = priority.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32;
    }
    let arrived = clock::now();
    let deadline = match number("x-request-timeout-ms")? {
        Some(ms) if ms > 0 => Some(arrived + Duration::from_millis(ms as u64)),
        Some(_) => {
            return Err(Error::field("x-request-timeout-ms", "x-request-timeout-ms must be more than 0"));
        }
        None => None,
    };
    Ok(Origin { request_id: request_id.to_owned(), arrival, arrived, deadline, trace: None })
}

/// What a request will leave in a trace, where one is wanted.
fn trace(app: &App, route: Route, headers: &HeaderMap, model: &str) -> Option<Box<Trace>> {
    app.tracer.as_ref()?;
    let traceparent = headers.get("traceparent").and_then(|value| value.to_str().ok());
    Trace::begin(traceparent, route.operation(), model)
}
