//! What goes wrong with one request, and the only map from that to a status and an OpenAI error body.

use std::fmt;
use std::time::Duration;

use http::StatusCode;
use shared::openai::ErrorBody;

/// A request that gets no answer.
#[derive(Debug)]
pub struct Error {
    /// Status, where no byte has been sent yet.
    pub status: StatusCode,
    /// Constant, so it can be a metric label.
    pub what: &'static str,
    /// What the client reads.
    pub body: Box<ErrorBody>,
    /// When trying again makes sense.
    pub retry_after: Option<Duration>,
}

/// Every `what` there is: all are counted from the start, as 0.
pub const REASONS: [&str; 14] = [
    "invalid_field",
    "malformed",
    "too_long",
    "unauthorized",
    "unknown_model",
    "unknown_route",
    "wrong_method",
    "too_large",
    "too_slow",
    "encoded",
    "queue_full",
    "unavailable",
    "expired",
    "failed",
];

/// The classes OpenAI's clients know.
const INVALID: &str = "invalid_request_error";
const OVERLOADED: &str = "overloaded_error";
const SERVER: &str = "server_error";

impl Error {
    fn new(status: StatusCode, what: &'static str, body: ErrorBody) -> Self {
        Self { status, what, body: Box::new(body), retry_after: None }
    }

    fn later(mut self, retry_after: Duration) -> Self {
        self.retry_after = Some(retry_after);
        self
    }

    /// A field of the wrong type or range.
    pub fn field(param: impl Into<String>, message: impl Into<String>) -> Self {
        let body = ErrorBody::new(INVALID, message).param(param).code("invalid_value");
        Self::new(StatusCode::BAD_REQUEST, "invalid_field", body)
    }

    /// A request that no field alone explains.
    pub fn malformed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "malformed", ErrorBody::new(INVALID, message))
    }

    /// Longer than the context, or than the KV pool can ever hold.
    pub fn too_long(param: &str, message: impl Into<String>) -> Self {
        let body = ErrorBody::new(INVALID, message).param(param).code("context_length_exceeded");
        Self::new(StatusCode::BAD_REQUEST, "too_long", body)
    }

    /// No key, or a wrong one.
    pub fn unauthorized() -> Self {
        let body = ErrorBody::new(INVALID, "a valid key is needed in the Authorization header: Bearer KEY");
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", body.code("invalid_api_key"))
    }

    /// A model that isn't here.
    pub fn unknown_model(name: &str, known: &[String]) -> Self {
        let message = format!("the model {name:?} does not exist; available: {}", known.join(", "));
        let body = ErrorBody::new(INVALID, message).param("model").code("model_not_found");
        Self::new(StatusCode::NOT_FOUND, "unknown_model", body)
    }

    /// No such route.
    pub fn unknown_route(method: &http::Method, path: &str) -> Self {
        let body = ErrorBody::new(INVALID, format!("there is no {method} {path}")).code("not_found");
        Self::new(StatusCode::NOT_FOUND, "unknown_route", body)
    }

    /// A route that has other methods.
    pub fn wrong_method(method: &http::Method, path: &str, allowed: &str) -> Self {
        let body = ErrorBody::new(INVALID, format!("{path} takes {allowed}, not {method}"));
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", body.code("method_not_allowed"))
    }

    /// A body over the limit.
    pub fn too_large(limit: usize) -> Self {
        let body = ErrorBody::new(INVALID, format!("the body is larger than the limit of {limit} bytes"));
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", body.code("request_too_large"))
    }

    /// A body whose bytes come too slowly.
    pub fn too_slow() -> Self {
        let body = ErrorBody::new(INVALID, "the body did not arrive in time").code("request_timeout");
        Self::new(StatusCode::REQUEST_TIMEOUT, "too_slow", body)
    }

    /// A body in an encoding that isn't decoded here.
    pub fn encoded(encoding: &str) -> Self {
        let message = format!("content-encoding {encoding:?} is not supported; send the body as it is");
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "encoded", ErrorBody::new(INVALID, message))
    }

    /// As many wait as may.
    pub fn queue_full(retry_after: Duration) -> Self {
        let body = ErrorBody::new(OVERLOADED, "the queue of this replica is full").code("overloaded");
        Self::new(StatusCode::TOO_MANY_REQUESTS, "queue_full", body).later(retry_after)
    }

    /// Loading, draining or ended.
    pub fn unavailable(state: &'static str) -> Self {
        let body = ErrorBody::new(OVERLOADED, format!("this replica is {state}")).code("not_ready");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", body).later(Duration::from_secs(1))
    }

    /// The request's own deadline passed while it waited.
    pub fn expired() -> Self {
        let body = ErrorBody::new(OVERLOADED, "the deadline passed while the request waited");
        Self::new(StatusCode::TOO_MANY_REQUESTS, "expired", body.code("overloaded"))
            .later(Duration::from_secs(1))
    }

    /// A fault of ours that ended this request alone.
    pub fn failed(reason: impl Into<String>) -> Self {
        let body = ErrorBody::new(SERVER, reason).code("replica_failed");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", body)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.status.as_u16(), self.what, self.body.error.message)
    }
}

impl std::error::Error for Error {}
