//! Which headers pass, in both directions, and the request head as a replica gets it.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use shared::wire::CONTINUE_HEADER;
use std::io::Write;

/// Headers that belong to one connection (RFC 9110, 7.6.1) and never pass.
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Request headers the gateway answers for itself, or writes anew.
const OWN: [&str; 7] = [
    "host",
    "content-length",
    "expect",
    "authorization",
    "content-encoding",
    "x-request-id",
    CONTINUE_HEADER,
];

/// Where in a trace a request stands (W3C Trace Context).
pub const TRACEPARENT: &str = "traceparent";

/// Whether a header belongs to one connection only.
pub fn is_hop_by_hop(name: &str) -> bool {
    HOP_BY_HOP.iter().any(|hop| name.eq_ignore_ascii_case(hop))
}

/// What the request head says beside the client's own headers.
#[derive(Debug)]
pub struct Forwarded<'a> {
    /// `GET`, `POST`, ….
    pub method: &'a str,
    /// Path and query.
    pub target: &'a str,
    /// The replica's host and port.
    pub host: &'a str,
    /// Bytes of the body as it will be sent.
    pub body_bytes: usize,
    /// Our id of the request.
    pub request_id: &'a str,
    /// The place in a trace that the replica goes on from; absent: what the client says passes.
    pub traceparent: Option<&'a str>,
    /// The replica's own key, sent in place of the client's.
    pub replica_key: Option<&'a str>,
    /// Whether the client's authorization passes, since the gateway has no keys of its own.
    pub pass_authorization: bool,
    /// Whether the replica is to name the tokens of each event.
    pub wants_ids: bool,
}

/// Writes the request head for a replica: HTTP/1.1, one framing header, the client's end-to-end headers unchanged.
pub fn write_head(out: &mut Vec<u8>, forwarded: &Forwarded<'_>, client: &HeaderMap) {
    // Writing into a Vec can't fail.
    let _ = write!(out, "{} {} HTTP/1.1\r\nhost: {}\r\n", forwarded.method, forwarded.target, forwarded.host);
    let listed = connection_options(client);
    for (name, value) in client {
        let passes = !is_hop_by_hop(name.as_str())
            && !OWN.contains(&name.as_str())
            && (name != TRACEPARENT || forwarded.traceparent.is_none())
            && !listed.iter().any(|option| option.eq_ignore_ascii_case(name.as_str()));
        if passes {
            write_line(out, name, value);
        }
    }
    if let Some(key) = forwarded.replica_key {
        let _ = write!(out, "authorization: Bearer {key}\r\n");
    } else if forwarded.pass_authorization
        && let Some(value) = client.get(header::AUTHORIZATION)
    {
        write_line(out, &header::AUTHORIZATION, value);
    }
    let _ = write!(out, "x-request-id: {}\r\n", forwarded.request_id);
    if let Some(traceparent) = forwarded.traceparent {
        let _ = write!(out, "{TRACEPARENT}: {traceparent}\r\n");
    }
    if forwarded.wants_ids {
        let _ = write!(out, "{CONTINUE_HEADER}: 1\r\n");
    }
    if forwarded.body_bytes > 0 || forwarded.method == "POST" {
        let _ = write!(out, "content-length: {}\r\n", forwarded.body_bytes);
    }
    out.extend_from_slice(b"\r\n");
}

fn write_line(out: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    out.extend_from_slice(name.as_str().as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Headers that the client's `Connection` names as its own.
fn connection_options(client: &HeaderMap) -> Vec<&str> {
    let values = client.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let options = values.flat_map(|value| value.split(',')).map(str::trim);
    options
        .filter(|option| !option.eq_ignore_ascii_case("keep-alive") && !option.eq_ignore_ascii_case("close"))
        .collect()
}

/// Why a request's framing can't be trusted; pingora's parser has refused the rest before.
pub fn framing_fault(headers: &HeaderMap) -> Option<&'static str> {
    let mut encodings = headers.get_all(header::TRANSFER_ENCODING).iter();
    if let Some(encoding) = encodings.next()
        && (!encoding.as_bytes().eq_ignore_ascii_case(b"chunked") || encodings.next().is_some())
    {
        return Some("transfer-encoding must be chunked, once");
    }
    let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    if let Some(length) = lengths.next()
        && (length.is_empty()
            || !length.as_bytes().iter().all(u8::is_ascii_digit)
            || lengths.next().is_some())
    {
        return Some("content-length must be a number, once");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(lines: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        headers
    }

    fn forwarded() -> Forwarded<'static> {
        Forwarded {
            method: "POST",
            target: "/v1/chat/completions",
            host: "replica:1",
            body_bytes: 5,
            request_id: "ours",
            traceparent: None,
            replica_key: None,
            pass_authorization: true,
            wants_ids: true,
        }
    }

    #[test]
    fn a_trace_goes_on_from_the_attempt_and_not_from_the_client() {
        let client = map(&[("traceparent", "00-1"), ("tracestate", "a=b")]);
        let mut out = Vec::new();
        write_head(&mut out, &Forwarded { traceparent: Some("00-2"), ..forwarded() }, &client);
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("\r\ntraceparent: 00-2\r\n") && !text.contains("00-1"), "{text}");
        assert!(text.contains("\r\ntracestate: a=b\r\n"), "{text}");
    }

    #[test]
    fn only_end_to_end_headers_pass() {
        let client = map(&[
            ("host", "public"),
            ("connection", "keep-alive, x-private"),
            ("x-private", "1"),
            ("te", "trailers"),
            ("accept", "*/*"),
            ("content-length", "9"),
            ("authorization", "Bearer client"),
            ("x-request-id", "theirs"),
            ("traceparent", "00-1"),
            ("x-flotilla-continue", "theirs"),
        ]);
        let mut out = Vec::new();
        write_head(&mut out, &forwarded(), &client);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "POST /v1/chat/completions HTTP/1.1\r\nhost: replica:1\r\naccept: */*\r\ntraceparent: 00-1\r\n\
             authorization: Bearer client\r\nx-request-id: ours\r\nx-flotilla-continue: 1\r\ncontent-length: 5\r\n\r\n"
        );
    }

    #[test]
    fn doubtful_framing_is_named() {
        // U096
        assert!(framing_fault(&map(&[("transfer-encoding", "chunked, identity")])).is_some());
        assert!(
            framing_fault(&map(&[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")]))
                .is_some()
        );
        assert!(framing_fault(&map(&[("content-length", "+5")])).is_some());
        assert!(framing_fault(&map(&[("content-length", "5"), ("content-length", "5")])).is_some());
        assert_eq!(framing_fault(&map(&[("transfer-encoding", "chunked")])), None);
        assert_eq!(framing_fault(&map(&[("content-length", "5")])), None);
    }
}
