//! One JSON line a request.

use super::Outcome;
use super::lines::string;
use crate::http::stream::Usage;
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What is told of one request.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// Its id.
    pub request_id: &'a str,
    /// `GET`, `POST`, ….
    pub method: &'a str,
    /// The path, without query.
    pub path: &'a str,
    /// The status the client got; 0 when it left before.
    pub status: u16,
    /// How it ended.
    pub outcome: Outcome,
    /// The error's code, if it ended in one.
    pub error: Option<&'static str>,
    /// Whose it was; empty where no keys are asked for.
    pub tenant: &'a str,
    /// The model asked for.
    pub model: &'a str,
    /// What replicas call it, when that is another name.
    pub resolved: Option<&'a str>,
    /// The last replica that had it.
    pub replica: Option<&'a str>,
    /// Why that one was chosen.
    pub reason: Option<&'static str>,
    /// Attempts.
    pub attempts: u32,
    /// Bytes of the request's body.
    pub bytes_in: usize,
    /// Bytes of the answer's body.
    pub bytes_out: u64,
    /// Wait in the gateway.
    pub queue: Duration,
    /// Until the answer's first byte, from the request's end.
    pub first_byte: Option<Duration>,
    /// In all.
    pub total: Duration,
    /// Token counts.
    pub usage: Usage,
}

/// Appends the line.
pub fn format(out: &mut Vec<u8>, line: &Line<'_>, at: SystemTime) {
    let ms = |duration: Duration| duration.as_secs_f64() * 1000.0;
    let at = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    // Writing into a Vec can't fail.
    let _ = write!(out, "{{\"ts\":{}.{:03},\"request_id\":", at.as_secs(), at.subsec_millis());
    string(out, line.request_id);
    out.extend_from_slice(b",\"method\":");
    string(out, line.method);
    out.extend_from_slice(b",\"path\":");
    string(out, line.path);
    let _ = write!(out, ",\"status\":{},\"outcome\":\"{}\",\"model\":", line.status, line.outcome.word());
    string(out, line.model);
    if !line.tenant.is_empty() {
        out.extend_from_slice(b",\"tenant\":");
        string(out, line.tenant);
    }
    if let Some(resolved) = line.resolved {
        out.extend_from_slice(b",\"resolved\":");
        string(out, resolved);
    }
    if let Some(error) = line.error {
        let _ = write!(out, ",\"error\":\"{error}\"");
    }
    if let Some(replica) = line.replica {
        let _ = write!(out, ",\"replica\":\"{replica}\"");
    }
    if let Some(reason) = line.reason {
        let _ = write!(out, ",\"reason\":\"{reason}\"");
    }
    let _ = write!(
        out,
        ",\"attempts\":{},\"bytes_in\":{},\"bytes_out\":{},\"queue_ms\":{:.3}",
        line.attempts,
        line.bytes_in,
        line.bytes_out,
        ms(line.queue)
    );
    if let Some(first_byte) = line.first_byte {
        let _ = write!(out, ",\"first_byte_ms\":{:.3}", ms(first_byte));
    }
    let counts = [
        ("prompt_tokens", line.usage.prompt_tokens),
        ("cached_tokens", line.usage.cached_tokens),
        ("completion_tokens", line.usage.completion_tokens),
    ];
    for (name, count) in counts {
        if let Some(count) = count {
            let _ = write!(out, ",\"{name}\":{count}");
        }
    }
    let _ = writeln!(out, ",\"total_ms\":{:.3}}}", ms(line.total));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_json_object() {
        let line = Line {
            request_id: "r\"1",
            method: "POST",
            path: "/v1/chat/completions",
            status: 200,
            outcome: Outcome::FailedOver,
            error: None,
            tenant: "t",
            model: "m\n",
            resolved: Some("real"),
            replica: Some("127.0.0.1:8001"),
            reason: Some("soonest"),
            attempts: 2,
            bytes_in: 330,
            bytes_out: 900,
            queue: Duration::ZERO,
            first_byte: Some(Duration::from_micros(1500)),
            total: Duration::from_millis(20),
            usage: Usage { prompt_tokens: Some(7), ..Usage::default() },
        };
        let mut out = Vec::new();
        format(&mut out, &line, UNIX_EPOCH + Duration::from_millis(1500));
        assert!(out.ends_with(b"}\n"));
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(value["ts"], 1.5);
        assert_eq!(value["request_id"], "r\"1");
        assert_eq!(value["resolved"], "real");
        assert_eq!(value["outcome"], "failed_over");
        assert_eq!(value["first_byte_ms"], 1.5);
        assert_eq!(value["prompt_tokens"], 7);
        assert_eq!(value.get("completion_tokens"), None);
    }
}
