//! One JSON line for every answer that somebody may be billed for: whose, with which key, and how many tokens.
//!
//! Counts are the replica's where it gave them. An answer that broke off, or whose client left, tells no usage: its
//! line says what the gateway saw itself, under other names, so that nobody takes one for the other.

use super::Outcome;
use super::lines::string;
use crate::http::stream::Usage;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// What is told of one answer.
#[derive(Clone, Copy, Debug)]
pub struct Used<'a> {
    /// The request's id, the same as in the access log.
    pub request_id: &'a str,
    /// Whose it was; empty where no keys are asked for.
    pub tenant: &'a str,
    /// The id of the key, never the key.
    pub key: Option<&'a str>,
    /// The model asked for.
    pub model: &'a str,
    /// The model that answered.
    pub resolved: &'a str,
    /// How it ended.
    pub outcome: Outcome,
    /// Token counts as the replica gave them.
    pub usage: Usage,
    /// What the gateway takes the prompt for.
    pub prompt_tokens_estimated: u32,
    /// Events with text that went by.
    pub events: u32,
}

/// Appends the line.
pub fn format(out: &mut Vec<u8>, used: &Used<'_>, at: SystemTime) {
    let at = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    // Writing into a Vec can't fail.
    let _ = write!(out, "{{\"ts\":{}.{:03}", at.as_secs(), at.subsec_millis());
    let texts = [
        ("request_id", Some(used.request_id)),
        ("tenant", Some(used.tenant).filter(|tenant| !tenant.is_empty())),
        ("key", used.key),
        ("model", Some(used.model)),
        ("resolved", Some(used.resolved)),
        ("outcome", Some(used.outcome.word())),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            let _ = write!(out, ",\"{name}\":");
            string(out, text);
        }
    }
    let usage = &used.usage;
    let counts = [
        ("prompt_tokens", usage.prompt_tokens),
        ("cached_tokens", usage.cached_tokens),
        ("completion_tokens", usage.completion_tokens),
        (
            "prompt_tokens_estimated",
            Some(used.prompt_tokens_estimated).filter(|_| usage.prompt_tokens.is_none()),
        ),
        ("completion_events", Some(used.events).filter(|_| usage.completion_tokens.is_none())),
    ];
    for (name, count) in counts {
        if let Some(count) = count {
            let _ = write!(out, ",\"{name}\":{count}");
        }
    }
    out.extend_from_slice(b"}\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(used: &Used<'_>) -> serde_json::Value {
        let mut out = Vec::new();
        format(&mut out, used, UNIX_EPOCH);
        assert!(out.ends_with(b"}\n"));
        serde_json::from_slice(&out).unwrap()
    }

    const USED: Used<'_> = Used {
        request_id: "r1",
        tenant: "t",
        key: Some("k1"),
        model: "alias",
        resolved: "m",
        outcome: Outcome::Ok,
        usage: Usage { prompt_tokens: Some(9), completion_tokens: Some(2), cached_tokens: None },
        prompt_tokens_estimated: 8,
        events: 3,
    };

    #[test]
    fn the_replicas_own_counts_are_billed() {
        let line = line(&USED);
        assert_eq!(
            (&line["tenant"], &line["key"], &line["resolved"]),
            (&"t".into(), &"k1".into(), &"m".into())
        );
        assert_eq!((&line["prompt_tokens"], &line["completion_tokens"]), (&9.into(), &2.into()));
        assert_eq!(line.get("prompt_tokens_estimated"), None);
        assert_eq!(line.get("completion_events"), None);
    }

    #[test]
    fn without_counts_the_gateways_own_have_other_names() {
        let line = line(&Used { usage: Usage::default(), outcome: Outcome::ClientClosed, key: None, ..USED });
        assert_eq!((&line["prompt_tokens_estimated"], &line["completion_events"]), (&8.into(), &3.into()));
        assert_eq!(line["outcome"], "client_closed");
        assert!(["prompt_tokens", "completion_tokens", "key"].iter().all(|name| line.get(name).is_none()));
    }
}
