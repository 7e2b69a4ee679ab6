//! Why a request ends without a good answer: who failed, and the only map to status codes.

use shared::openai::ErrorBody;
use std::fmt;
use std::time::Duration;

/// One kind of ending, as in the table of refusals. Its word is the error's code, a metric label and a log field.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum What {
    /// The request line, a header or the framing is wrong.
    BadHttp,
    /// The body has no structure, or a routing field the wrong type.
    BadBody,
    /// The headers are over the limit.
    HeadTooLarge,
    /// No such route.
    UnknownRoute,
    /// The route exists for other methods.
    WrongMethod,
    /// The body is over the limit.
    BodyTooLarge,
    /// The body did not come in time.
    BodyTooSlow,
    /// The body's encoding is none we read.
    UnknownEncoding,
    /// The key is missing or wrong.
    InvalidKey,
    /// The keys can't be read, so nobody can be let in.
    NoKeys,
    /// The key may not use the model.
    ForbiddenModel,
    /// A browser's page of another site asks to change something.
    ForbiddenOrigin,
    /// No replica has that name.
    UnknownReplica,
    /// Nobody here serves the model.
    UnknownModel,
    /// The tenant is over its limit.
    RateLimited,
    /// The queue is full, or the deadline can't be met.
    Overloaded,
    /// Nobody who serves the model takes work.
    NoReplica,
    /// Every attempt failed.
    ReplicaFailed,
    /// The first byte did not come in time.
    TooLate,
    /// Two replicas died of it.
    Poison,
    /// The answer broke off after its first byte.
    Broken,
    /// A fault of this program.
    Internal,
}

impl What {
    /// All of them.
    pub const ALL: [Self; 22] = [
        Self::BadHttp,
        Self::BadBody,
        Self::HeadTooLarge,
        Self::UnknownRoute,
        Self::WrongMethod,
        Self::BodyTooLarge,
        Self::BodyTooSlow,
        Self::UnknownEncoding,
        Self::InvalidKey,
        Self::NoKeys,
        Self::ForbiddenModel,
        Self::ForbiddenOrigin,
        Self::UnknownReplica,
        Self::UnknownModel,
        Self::RateLimited,
        Self::Overloaded,
        Self::NoReplica,
        Self::ReplicaFailed,
        Self::TooLate,
        Self::Poison,
        Self::Broken,
        Self::Internal,
    ];

    /// Its row: status, OpenAI's class, code.
    const fn row(self) -> (u16, &'static str, &'static str) {
        match self {
            Self::BadHttp => (400, "invalid_request_error", "bad_http"),
            Self::BadBody => (400, "invalid_request_error", "invalid_body"),
            Self::HeadTooLarge => (431, "invalid_request_error", "headers_too_large"),
            Self::UnknownRoute => (404, "invalid_request_error", "unknown_url"),
            Self::WrongMethod => (405, "invalid_request_error", "method_not_allowed"),
            Self::BodyTooLarge => (413, "invalid_request_error", "body_too_large"),
            Self::BodyTooSlow => (408, "invalid_request_error", "body_timeout"),
            Self::UnknownEncoding => (415, "invalid_request_error", "unsupported_encoding"),
            Self::InvalidKey => (401, "authentication_error", "invalid_api_key"),
            Self::NoKeys => (503, "server_error", "no_keys"),
            Self::ForbiddenModel => (403, "permission_error", "model_not_allowed"),
            Self::ForbiddenOrigin => (403, "permission_error", "origin_not_allowed"),
            Self::UnknownReplica => (404, "invalid_request_error", "replica_not_found"),
            Self::UnknownModel => (404, "invalid_request_error", "model_not_found"),
            Self::RateLimited => (429, "rate_limit_error", "rate_limit_exceeded"),
            Self::Overloaded => (429, "server_error", "overloaded"),
            Self::NoReplica => (503, "server_error", "no_replica"),
            Self::ReplicaFailed | Self::Broken => (502, "server_error", "replica_failed"),
            Self::TooLate => (504, "server_error", "first_byte_timeout"),
            Self::Poison => (500, "server_error", "request_failed_replicas"),
            Self::Internal => (500, "server_error", "internal"),
        }
    }

    /// The status it is answered with.
    pub const fn status(self) -> u16 {
        self.row().0
    }

    /// The word for logs, metrics and clients.
    pub const fn code(self) -> &'static str {
        self.row().2
    }

    /// Whether it is the client's own fault.
    pub const fn is_clients(self) -> bool {
        let status = self.status();
        status < 500 && !matches!(self, Self::Overloaded)
    }

    /// Whether it is unknown where the next request begins, so that the connection can't carry one.
    pub const fn ends_connection(self) -> bool {
        matches!(self, Self::BadHttp | Self::BodyTooLarge | Self::BodyTooSlow | Self::HeadTooLarge)
    }

    /// Whether sending the same again can help.
    pub const fn should_retry(self) -> bool {
        !matches!(self, Self::Poison)
    }
}

/// An ending with what the client is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    /// What kind.
    pub what: What,
    /// One sentence.
    pub message: String,
    /// The request field at fault.
    pub param: Option<&'static str>,
    /// When to come back.
    pub retry_after: Option<Duration>,
}

impl Error {
    /// An error without a field.
    pub fn new(what: What, message: impl Into<String>) -> Self {
        Self { what, message: message.into(), param: None, retry_after: None }
    }

    /// The same with the field at fault.
    #[must_use]
    pub fn param(mut self, param: &'static str) -> Self {
        self.param = Some(param);
        self
    }

    /// The same with a time to come back.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// The body every API of ours gives.
    pub fn body(&self) -> ErrorBody {
        let (_, kind, code) = self.what.row();
        let body = ErrorBody::new(kind, self.message.clone()).code(code);
        match self.param {
            Some(param) => body.param(param),
            None => body,
        }
    }

    /// The last event of a broken stream, in the words of the API that streams.
    pub fn event(&self, is_responses_api: bool) -> Vec<u8> {
        if is_responses_api {
            let (_, _, code) = self.what.row();
            let event = serde_json::json!({
                "type": "error", "code": code, "message": self.message, "param": null, "sequence_number": 0,
            });
            return format!("event: error\ndata: {event}\n\n").into_bytes();
        }
        let mut event = b"data: ".to_vec();
        event.extend_from_slice(&self.body().to_json());
        event.extend_from_slice(b"\n\n");
        event
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what.code(), self.message)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_read_as_openai_clients_expect() {
        let error = Error::new(What::UnknownModel, "the model `x` does not exist").param("model");
        insta::assert_snapshot!(String::from_utf8(error.body().to_json()).unwrap(),
            @r#"{"error":{"message":"the model `x` does not exist","type":"invalid_request_error","param":"model","code":"model_not_found"}}"#);
        let broken = Error::new(What::Broken, "the replica went away");
        insta::assert_snapshot!(String::from_utf8(broken.event(false)).unwrap().trim_end(),
            @r#"data: {"error":{"message":"the replica went away","type":"server_error","param":null,"code":"replica_failed"}}"#);
    }

    #[test]
    fn only_poison_says_not_to_try_again() {
        assert!(!What::Poison.should_retry());
        assert!(What::NoReplica.should_retry());
        assert!(What::RateLimited.is_clients() && !What::Overloaded.is_clients());
    }
}
