//! One request leaves one connected trace, from the gateway through the replica, at a collector of this test's own.

use std::convert::Infallible;
use std::fmt::Write;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::client;
use crate::fleet::{Fleet, until};

/// Spans with the service that sent them.
type Received = Arc<Mutex<Vec<(String, Span)>>>;

/// A collector as small as can be: it takes OTLP over HTTP, in protobuf.
struct Collector {
    url: String,
    received: Received,
}

impl Collector {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let received = Received::default();
        let taken = received.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let taken = taken.clone();
                let take = service_fn(move |request| take(request, taken.clone()));
                let connection =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), take);
                tokio::spawn(connection);
            }
        });
        Self { url, received }
    }

    /// Spans of one trace so far.
    fn trace(&self, id: &str) -> Vec<(String, Span)> {
        let received = self.received.lock().unwrap();
        received.iter().filter(|(_, span)| hex(&span.trace_id) == id).cloned().collect()
    }
}

async fn take(
    request: http::Request<Incoming>,
    taken: Received,
) -> Result<http::Response<Full<Bytes>>, Infallible> {
    assert_eq!(request.uri().path(), "/v1/traces");
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let request = ExportTraceServiceRequest::decode(body).unwrap();
    for resource in request.resource_spans {
        let service = text(&resource.resource.unwrap().attributes, "service.name").unwrap();
        let spans = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
        taken.lock().unwrap().extend(spans.map(|span| (service.clone(), span)));
    }
    Ok(http::Response::new(Full::default()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing into a String can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

type Attributes = [opentelemetry_proto::tonic::common::v1::KeyValue];

/// An attribute as text.
fn text(attributes: &Attributes, name: &str) -> Option<String> {
    let value = attributes.iter().find(|attribute| attribute.key == name)?.value.as_ref()?.value.as_ref()?;
    Some(match value {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(number) => number.to_string(),
        other => panic!("{name}: {other:?}"),
    })
}

/// The one span of that service and name.
fn only<'a>(spans: &'a [(String, Span)], service: &str, name: &str) -> &'a Span {
    let found: Vec<_> = spans
        .iter()
        .filter(|(from, span)| from == service && span.name == name)
        .map(|(_, span)| span)
        .collect();
    assert_eq!(found.len(), 1, "{service} {name}: {spans:?}");
    found[0]
}

fn assert_within(inner: &Span, outer: &Span) {
    assert_eq!(hex(&inner.parent_span_id), hex(&outer.span_id), "{} below {}", inner.name, outer.name);
    let (from, to) = (outer.start_time_unix_nano, outer.end_time_unix_nano);
    let (began, ended) = (inner.start_time_unix_nano, inner.end_time_unix_nano);
    assert!(from <= began && began <= ended && ended <= to, "{inner:?} within {outer:?}");
}

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CLIENT_SPAN: &str = "b7ad6b7169203331";
const GATEWAY: &str = "flotilla-gateway";
const REPLICA: &str = "flotilla-replica";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_leaves_one_connected_trace_through_gateway_and_replica() {
    let collector = Collector::start().await;
    let flags = ["--otlp-traces-endpoint", collector.url.as_str()];
    let fleet = Fleet::start_with(1, &flags, &flags).await;
    let traceparent = format!("00-{TRACE}-{CLIENT_SPAN}-01");
    let headers = [("traceparent", traceparent.as_str()), ("x-request-id", "traced-1")];
    let usage = json!({"stream_options": {"include_usage": true}});
    let answer = client::chat_as(fleet.port, "trace me", 8, usage, &headers).await.unwrap();
    assert_eq!((answer.status, answer.dones()), (200, 1), "{answer:?}");
    until("both sides have sent their spans", async || {
        let spans = collector.trace(TRACE);
        [GATEWAY, REPLICA].iter().all(|side| spans.iter().any(|(service, _)| service == side))
    })
    .await;

    let spans = collector.trace(TRACE);
    let request = only(&spans, GATEWAY, "chat fake");
    assert_eq!(hex(&request.parent_span_id), CLIENT_SPAN);
    let attempt = only(&spans, GATEWAY, "attempt");
    assert_within(attempt, request);
    assert_within(only(&spans, GATEWAY, "route"), request);
    let answered = only(&spans, REPLICA, "chat fake");
    // Its times come from another process, and are not compared with this one's.
    assert_eq!(hex(&answered.parent_span_id), hex(&attempt.span_id));
    let parts = ["queue", "prefill", "decode"].map(|part| only(&spans, REPLICA, part));
    for part in parts {
        assert_within(part, answered);
    }
    assert!(parts[0].end_time_unix_nano <= parts[1].start_time_unix_nano);
    assert!(parts[1].end_time_unix_nano <= parts[2].start_time_unix_nano);
    for span in [request, answered] {
        let told = |name| text(&span.attributes, name).unwrap();
        assert_eq!(told("gen_ai.operation.name"), "chat");
        assert_eq!(told("gen_ai.request.model"), "fake");
        assert_eq!(told("gen_ai.usage.output_tokens"), "8");
        assert_eq!(told("flotilla.request_id"), "traced-1");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_in_the_gateways_queue_is_a_span() {
    let collector = Collector::start().await;
    let endpoint = ["--otlp-traces-endpoint", collector.url.as_str()];
    let fleet = Fleet::start_with(1, &["--max-num-seqs", "1", "--queue-max", "1"], &endpoint).await;
    let mut clients = JoinSet::new();
    for index in 0..8 {
        let port = fleet.port;
        clients.spawn(async move { client::chat(port, &format!("{index} [[stall:40]]"), 4).await });
    }
    while let Some(answer) = clients.join_next().await {
        assert_eq!(answer.unwrap().unwrap().status, 200);
    }
    until("a wait has been sent", async || {
        let received = collector.received.lock().unwrap();
        received.iter().any(|(service, span)| service == GATEWAY && span.name == "queue")
    })
    .await;
}
