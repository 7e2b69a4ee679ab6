//! Responses: plain JSON, text, and error bodies with their headers.

use std::convert::Infallible;

use bytes::Bytes;
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use serde::Serialize;

use crate::error::Error;

/// What every route gives.
pub type Response = http::Response<UnsyncBoxBody<Bytes, Infallible>>;

/// JSON bytes.
pub fn json_response(status: StatusCode, body: Vec<u8>) -> Response {
    text(status, "application/json", body)
}

/// A struct as JSON.
pub fn json(value: &impl Serialize) -> Response {
    let mut body = Vec::new();
    super::json::write(&mut body, value);
    json_response(StatusCode::OK, body)
}

/// Bytes of a given type.
pub fn text(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response {
    let mut response = http::Response::new(Full::new(body.into()).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A stream of events.
pub fn stream(body: UnsyncBoxBody<Bytes, Infallible>) -> Response {
    let mut response = http::Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

/// An error body.
pub fn error(error: &Error) -> Response {
    let mut response = json_response(error.status, error.body.to_json());
    let headers = response.headers_mut();
    if let Some(wait) = error.retry_after {
        headers.insert(RETRY_AFTER, HeaderValue::from(wait.as_secs_f64().ceil() as u64));
    }
    if error.status.is_client_error() && error.retry_after.is_none() {
        headers.insert(HeaderName::from_static("x-should-retry"), HeaderValue::from_static("false"));
    }
    if error.status == StatusCode::UNAUTHORIZED {
        headers.insert(http::header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}
