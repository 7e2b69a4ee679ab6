//! What replicas are told of a trace, with a collector and without; that nobody waits for a collector.

use crate::support::{Act, Client, Gateway, Recorded, Stub, chat, until};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";
/// A collector's URL where nobody listens.
const NOBODY: (&str, &str) = ("TRACES__ENDPOINT", "http://127.0.0.1:9");

fn traceparent(request: &Recorded) -> Option<String> {
    let values = request.header("traceparent");
    assert!(values.len() <= 1, "{values:?}");
    values.first().map(|value| (*value).to_owned())
}

async fn ask(gateway: &Gateway, headers: &str) {
    let mut client = Client::connect(gateway.public).await;
    client.ask("POST", "/v1/chat/completions", headers, chat("x").as_bytes()).await;
    assert_eq!(client.answer().await.unwrap().status, 200);
}

/// What the one request that a stub got said.
async fn told(settings: &[(&str, &str)], headers: &str) -> Option<String> {
    let stub = Stub::start(|_| Act::json(200, "{}")).await;
    let gateway = Gateway::ready(&[&stub], settings).await;
    ask(&gateway, headers).await;
    traceparent(&stub.recorded()[0])
}

#[tokio::test]
async fn without_a_collector_headers_pass_as_they_are() {
    let said = format!("00-{TRACE}-{SPAN}-01");
    assert_eq!(told(&[], &format!("traceparent: {said}\r\n")).await, Some(said));
    assert_eq!(told(&[], "").await, None);
}

#[tokio::test]
async fn with_one_the_trace_goes_on_below_the_attempt() {
    let made = told(&[NOBODY], "").await.unwrap();
    assert!(made.starts_with("00-") && made.ends_with("-01"), "{made}");
    let kept = told(&[NOBODY], &format!("traceparent: 00-{TRACE}-{SPAN}-01\r\n")).await.unwrap();
    assert!(kept.starts_with(&format!("00-{TRACE}-")) && !kept.contains(SPAN), "{kept}");
    let broken = told(&[NOBODY], "traceparent: 00-nonsense\r\n").await.unwrap();
    assert!(broken.ends_with("-01") && !broken.contains("nonsense"), "{broken}");
    let unsampled = format!("00-{TRACE}-{SPAN}-00");
    assert_eq!(told(&[NOBODY], &format!("traceparent: {unsampled}\r\n")).await, Some(unsampled));
}

#[tokio::test]
async fn each_attempt_is_a_span_of_its_own_in_one_trace() {
    let fails = Stub::start(|_| Act::json(500, "{}")).await;
    let works = Stub::start(|_| Act::json(200, "{}")).await;
    let settings = [NOBODY, ("ROUTING__POLICY", "round_robin")];
    let gateway = Gateway::ready(&[&fails, &works], &settings).await;
    until("the failing replica is tried", async || {
        ask(&gateway, "").await;
        fails.requests() > 0
    })
    .await;
    let first = traceparent(&fails.recorded()[0]).unwrap();
    let (trace, span) = (&first[3..35], &first[36..52]);
    let second =
        works.recorded().iter().find_map(|request| traceparent(request).filter(|it| it[3..35] == *trace));
    assert_ne!(&second.unwrap()[36..52], span);
}
