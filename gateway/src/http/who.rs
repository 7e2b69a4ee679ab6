//! Who asks, and whether they may: key, model, limits. The core counts; here it becomes words for the client.

use super::error::{Error, What};
use super::request::Request;
use crate::gateway::{Gateway, Unadmitted};
use crate::tenants::{Caller, Stranger};
use gateway_core::admission::{Limit, Standing};
use gateway_core::queue::Class;
use gateway_core::replica::ModelKey;
use http::{HeaderMap, header};
use std::sync::Arc;
use std::time::Duration;

/// Whose key the headers carry.
///
/// # Errors
///
/// When it is missing or nobody's.
pub fn identify(gateway: &Gateway, headers: &HeaderMap) -> Result<Caller, Error> {
    let key = headers.get(header::AUTHORIZATION).map_or(&b""[..], |value| value.as_bytes());
    gateway.tenants.identify(key).map_err(|stranger| {
        let message = match stranger {
            Stranger::Unread => {
                let message = "the API keys have not been read yet";
                return Error::new(What::NoKeys, message).retry_after(Duration::from_secs(1));
            }
            Stranger::Missing => "an API key is needed: `Authorization: Bearer KEY`",
            Stranger::Unknown => "the API key is wrong, or no longer good",
        };
        Error::new(What::InvalidKey, message)
    })
}

/// How urgent the client says its request is.
pub fn class(headers: &HeaderMap) -> Option<Class> {
    match headers.get("x-flotilla-priority")?.to_str().ok()? {
        "high" => Some(Class::High),
        "normal" => Some(Class::Normal),
        "low" => Some(Class::Low),
        "batch" => Some(Class::Batch),
        _ => None,
    }
}

/// Lets a request in, and writes into it the leave and what is left of the limits.
///
/// # Errors
///
/// When its tenant may not use the model, or is over a limit.
pub fn admit(gateway: &Arc<Gateway>, request: &mut Request, model: ModelKey) -> Result<(), Error> {
    if !request.tenant.may_use(&request.model) {
        let message = format!("the API key may not use the model `{}`", request.model);
        return Err(Error::new(What::ForbiddenModel, message).param("model"));
    }
    let admitted = gateway.admit(&request.tenant, model, request.prompt_bytes, request.answer_tokens_max);
    request.limits = limits(gateway.standing(request.tenant.id));
    request.leave = Some(admitted.map_err(|Unadmitted(denied)| {
        let message = match denied.limit {
            Limit::Requests => "over the limit of requests per minute",
            Limit::Tokens => "over the limit of tokens per minute",
            Limit::Concurrency => "over the limit of requests at once",
        };
        Error::new(What::RateLimited, message).retry_after(denied.retry_after)
    })?);
    Ok(())
}

/// OpenAI's headers for what is left of requests and tokens a minute.
fn limits((requests, tokens): (Option<Standing>, Option<Standing>)) -> Vec<(&'static str, String)> {
    let mut headers = Vec::new();
    if let Some(requests) = requests {
        headers.push(("x-ratelimit-limit-requests", requests.limit.to_string()));
        headers.push(("x-ratelimit-remaining-requests", requests.remaining.to_string()));
        headers.push(("x-ratelimit-reset-requests", span(requests.reset_after)));
    }
    if let Some(tokens) = tokens {
        headers.push(("x-ratelimit-limit-tokens", tokens.limit.to_string()));
        headers.push(("x-ratelimit-remaining-tokens", tokens.remaining.to_string()));
        headers.push(("x-ratelimit-reset-tokens", span(tokens.reset_after)));
    }
    headers
}

/// A time as OpenAI writes it: `120ms`, `7.66s`, `6m0s`.
fn span(time: Duration) -> String {
    let (minutes, seconds) = (time.as_secs() / 60, time.as_secs_f64() % 60.0);
    let seconds = format!("{seconds:.2}");
    let seconds = seconds.trim_end_matches('0').trim_end_matches('.');
    match (minutes, time.as_millis()) {
        (0, millis @ 0..1000) => format!("{millis}ms"),
        (0, _) => format!("{seconds}s"),
        _ => format!("{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_openai_writes_them() {
        for (millis, text) in
            [(0, "0ms"), (120, "120ms"), (7660, "7.66s"), (60_000, "1m0s"), (360_500, "6m0.5s")]
        {
            assert_eq!(span(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn only_what_is_limited_has_headers() {
        assert_eq!(limits((None, None)), vec![]);
        let standing = Standing { limit: 60, remaining: 59, reset_after: Duration::from_secs(1) };
        let headers = limits((Some(standing), None));
        assert_eq!(headers[1], ("x-ratelimit-remaining-requests", "59".to_owned()));
        assert_eq!(headers.len(), 3);
    }

    #[test]
    fn a_priority_is_one_of_four_words() {
        let headers = |value: &str| {
            HeaderMap::from_iter([("x-flotilla-priority".parse().unwrap(), value.parse().unwrap())])
        };
        assert_eq!(class(&headers("batch")), Some(Class::Batch));
        assert_eq!(class(&headers("urgent")), None);
        assert_eq!(class(&HeaderMap::new()), None);
    }
}
