//! What operators see: the status page's numbers, its drain button, metrics of everything that happened, and timings.

use crate::support::{Act, Answer, Gateway, Recorded, Stub, chat, chat_stream, get, request, until};
use std::process::Command;
use std::time::{Duration, Instant};

const USAGE: &str = r#"{"choices":[{"text":"a"}],"usage":{"prompt_tokens":100,"completion_tokens":7,
    "prompt_tokens_details":{"cached_tokens":25}}}"#;

#[tokio::test]
async fn the_status_tells_the_last_minutes_and_every_replica() {
    let stub = Stub::start(|_| Act::json(200, USAGE)).await;
    let gateway = Gateway::ready(&[&stub], &[]).await;
    let page = get(gateway.admin, "/").await;
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    until("a sample has seen requests", async || {
        assert_eq!(gateway.post("/v1/chat/completions", &chat("x")).await.status, 200);
        let status = get(gateway.admin, "/status").await.json();
        let replica = &status["replicas"][0];
        let seen = status["samples"].as_array().unwrap().iter().any(|sample| {
            sample["requests_per_s"].as_f64().unwrap() > 0.0
                && sample["tokens_per_s"].as_f64().unwrap() > 0.0
                && sample["ttft_p95_s"].is_number()
        });
        assert_eq!(replica["id"], stub.name());
        seen && replica["cached_share"].as_f64() == Some(0.25)
    })
    .await;
}

#[tokio::test]
async fn a_drain_wants_the_key_and_a_page_of_ours() {
    let stub = Stub::start(|_| Act::json(200, "{}")).await;
    let gateway = Gateway::start(&[&stub], &[("ADMIN__KEY", "open-sesame")]);
    let drain = format!("/fleet/{}/drain", stub.name());
    let post = async |headers: &str| request(gateway.admin, "POST", &drain, headers, b"").await;
    // `anybody:open-sesame` and `anybody:wrong`, as browsers write them.
    let (right, wrong) = ("Basic YW55Ym9keTpvcGVuLXNlc2FtZQ==", "Basic YW55Ym9keTp3cm9uZw==");
    let refused = get(gateway.admin, "/").await;
    assert_eq!((refused.status, refused.header("www-authenticate")), (401, Some("Basic realm=\"flotilla\"")));
    assert_eq!(post("").await.status, 401);
    assert_eq!(post(&format!("authorization: {wrong}\r\n")).await.status, 401);
    let other_site = format!("authorization: {right}\r\norigin: http://elsewhere.example\r\n");
    let answer = post(&other_site).await;
    assert_eq!((answer.status, answer.code().as_str()), (403, "origin_not_allowed"));
    let bearer = "authorization: Bearer open-sesame\r\n";
    let state = async || {
        request(gateway.admin, "GET", &format!("/fleet/{}", stub.name()), bearer, b"").await.json()["state"]
            .clone()
    };
    assert_ne!(state().await, "draining");
    assert_eq!(post(&format!("authorization: {right}\r\n")).await.status, 200);
    until("it drains", async || state().await == "draining").await;
}

/// What a `Server-Timing` header says in all.
fn told_ms(answer: &Answer) -> f64 {
    let header = answer.header("server-timing").unwrap();
    header.split("dur=").skip(1).map(|part| part.split(',').next().unwrap().parse::<f64>().unwrap()).sum()
}

#[tokio::test]
async fn the_parts_of_the_timing_add_up_to_the_latency() {
    // U117
    let slow = |fails: bool| {
        move |request: &Recorded| {
            let mut acts = vec![Act::Sleep(Duration::from_millis(400))];
            let resets = fails && request.number.is_multiple_of(2);
            acts.extend(if resets { vec![Act::Reset] } else { Act::stream(&["a"]) });
            acts
        }
    };
    let stubs = [Stub::start(slow(true)).await, Stub::start(slow(false)).await];
    let gateway = Gateway::ready(&[&stubs[0], &stubs[1]], &[]).await;
    let mut has_failed_over = false;
    // A machine that is busy elsewhere may stretch what happens between the parts: then it is asked again.
    until("parts and whole within 10 %", async || {
        let began = Instant::now();
        let answer = gateway.post("/v1/chat/completions", &chat_stream("x")).await;
        let whole = began.elapsed().as_secs_f64() * 1000.0;
        has_failed_over |= answer.header("x-flotilla-attempts") == Some("2");
        let parts = told_ms(&answer);
        assert!(parts <= whole + 1.0, "{parts} of {whole}");
        parts > 0.9 * whole && has_failed_over
    })
    .await;
}

#[tokio::test]
async fn the_page_of_metrics_is_what_prometheus_wants() {
    // U113
    let stub = Stub::start(|_| Act::json(200, USAGE)).await;
    let gateway = Gateway::ready(&[&stub], &[]).await;
    assert_eq!(gateway.post("/v1/chat/completions", &chat("x")).await.status, 200);
    // It is counted once its answer is out.
    until("counted", async || gateway.metric("flotilla_gateway_goodput_total{model=\"m\"}").await == 1.0)
        .await;
    let page = get(gateway.admin, "/metrics").await.text();
    for metric in shared::metric::gateway::ALL {
        assert!(page.contains(&format!("# TYPE {} ", metric.name)), "{}", metric.name);
    }
    let count = async |sample: &str| gateway.metric(&format!("flotilla_gateway_{sample}")).await;
    assert_eq!(count("tenant_tokens_total{kind=\"cached\",tenant=\"-\"}").await, 25.0);
    assert_eq!(count("overhead_seconds_count").await, 1.0);
    assert_eq!(count("slo_seconds{target=\"ttft\"}").await, 2.0);
    let decisions = ["soonest", "prefix", "session", "policy", "probe", "panic"];
    let mut sum = 0.0;
    for reason in decisions {
        sum += count(&format!("route_decisions_total{{reason=\"{reason}\"}}")).await;
    }
    assert_eq!(sum, 1.0);
    check_with_promtool(&page);
}

fn check_with_promtool(page: &str) {
    use std::io::Write;
    let started = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(error) => return println!("SKIPPED promtool check metrics: {error}"),
    };
    child.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
}
