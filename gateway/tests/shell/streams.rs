//! Streams pass as they come, end as they should, and end at once when somebody leaves.

use crate::support::{Act, Client, Gateway, Stub, chat, chat_stream, event, until};
use std::time::Duration;

#[tokio::test]
async fn a_stream_passes_unchanged_with_the_right_headers() {
    // U093
    let stub = Stub::start(|_| Act::stream(&["a", "b", "c"])).await;
    let gateway = Gateway::ready(&[&stub], &[]).await;
    let mut client = Client::connect(gateway.public).await;
    for _ in 0..3 {
        client
            .ask("POST", "/v1/chat/completions", "x-request-id: mine\r\n", chat_stream("x").as_bytes())
            .await;
        let answer = client.answer().await.unwrap();
        let expected = [event("a"), event("b"), event("c"), "data: [DONE]\n\n".into()].concat();
        assert_eq!(answer.text(), expected);
        assert!(answer.is_whole);
        assert_eq!(answer.header("content-type"), Some("text/event-stream"));
        assert_eq!(answer.header("cache-control"), Some("no-cache"));
        assert_eq!(answer.headers_named("x-accel-buffering"), 1);
        assert_eq!(answer.header("x-accel-buffering"), Some("no"));
        assert_eq!(answer.header("x-request-id"), Some("mine"));
        let timing = answer.header("server-timing").unwrap();
        for part in ["queue;dur=", "route;dur=", "connect;dur=", "first_byte;dur="] {
            assert!(timing.contains(part), "{timing}");
        }
        assert_eq!(stub.recorded().last().unwrap().header("x-request-id"), ["mine"]);
    }
    assert_eq!(stub.connections(), 2, "one for probes, one that is used again");
}

#[tokio::test]
async fn events_are_not_held_back_and_any_cut_is_mended() {
    let wire: Vec<u8> = Act::stream(&["héllo", "wörld"])
        .into_iter()
        .flat_map(|act| if let Act::Write(bytes) = act { bytes } else { Vec::new() })
        .collect();
    let head_end = wire.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    let stub = Stub::start(move |request| {
        // Every request is cut elsewhere, and in two pieces far apart.
        let cut = 1 + (request.number * 7) % (wire.len() - 1);
        let (first, second) = wire.split_at(cut);
        vec![Act::Write(first.into()), Act::Sleep(Duration::from_millis(3)), Act::Write(second.into())]
    })
    .await;
    let gateway = Gateway::ready(&[&stub], &[]).await;
    let expected = [event("héllo"), event("wörld"), "data: [DONE]\n\n".into()].concat();
    for _ in 0..head_end / 2 {
        let answer = gateway.post("/v1/chat/completions", &chat_stream("x")).await;
        assert_eq!(answer.text(), expected);
    }
    let stub = Stub::start(|_| {
        let mut acts =
            vec![Act::events_head(), Act::chunk(&event("first")), Act::Sleep(Duration::from_secs(1000))];
        acts.push(Act::end());
        acts
    })
    .await;
    let gateway = Gateway::ready(&[&stub], &[]).await;
    let mut client = Client::connect(gateway.public).await;
    client.ask("POST", "/v1/chat/completions", "", chat_stream("x").as_bytes()).await;
    client.read_until("first").await;
}

#[tokio::test]
async fn a_stream_that_breaks_ends_with_one_error_event() {
    // U013
    let breaks = [
        vec![Act::Reset],
        vec![Act::Close],
        vec![Act::end()],
        vec![Act::chunk("data: {\"id\":\"half"), Act::Reset],
        vec![Act::Write(b"zz\r\n".to_vec())],
    ];
    for ending in breaks {
        let acts = ending.clone();
        let stub = Stub::start(move |_| {
            let mut all = vec![Act::events_head()];
            all.extend((0..5).map(|at| Act::chunk(&event(&format!("token {at}")))));
            all.push(Act::Sleep(Duration::from_millis(30)));
            all.extend(acts.clone());
            all
        })
        .await;
        let gateway = Gateway::ready(&[&stub], &[]).await;
        let mut client = Client::connect(gateway.public).await;
        client.ask("POST", "/v1/chat/completions", "", chat_stream("x").as_bytes()).await;
        let answer = client.answer().await.unwrap();
        let text = answer.text();
        assert_eq!(answer.status, 200);
        assert_eq!(text.matches("token").count(), 5, "{ending:?}: {text}");
        assert_eq!(text.matches("data: {\"error\":").count(), 1, "{ending:?}: {text}");
        assert!(text.contains("replica_failed") && !text.contains("[DONE]"), "{text}");
        assert!(
            text.split("\n\n").filter(|event| !event.is_empty()).all(|event| event.starts_with("data: {"))
        );
        assert!(client.is_closed().await);
        let failures = format!(
            "flotilla_gateway_replica_failures_total{{replica=\"{}\",what=\"broken_stream\"}}",
            stub.name()
        );
        assert_eq!(gateway.metric(&failures).await, 1.0);
        gateway.await_idle().await;
        until("logged", async || gateway.logged("broken") == 1).await;
    }
}

#[tokio::test]
async fn a_fault_before_the_first_token_is_no_stream() {
    // U012
    let stub =
        Stub::start(|_| vec![Act::events_head(), Act::Sleep(Duration::from_millis(20)), Act::Reset]).await;
    let gateway = Gateway::ready(&[&stub], &[]).await;
    let answer = gateway.post("/v1/chat/completions", &chat_stream("x")).await;
    assert_eq!((answer.status, answer.code().as_str()), (502, "replica_failed"));
    assert_eq!(answer.header("content-type"), Some("application/json"));
}

#[tokio::test]
async fn a_client_that_leaves_is_seen_at_once_and_the_replica_told() {
    // U004; before the head, in mid-stream, and while the answer is one JSON body
    let stub = Stub::start(|request| match request.number {
        0 => vec![Act::AwaitClose],
        1 => vec![Act::events_head(), Act::chunk(&event("a")), Act::AwaitClose],
        _ => vec![Act::Write(b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n{".to_vec()), Act::AwaitClose],
    })
    .await;
    let gateway = Gateway::ready(&[&stub], &[]).await;
    for round in 0..3 {
        let mut client = Client::connect(gateway.public).await;
        client.ask("POST", "/v1/chat/completions", "", chat_stream("x").as_bytes()).await;
        match round {
            1 => drop(client.read_until("content\":\"a\"").await),
            _ => until("sent", async || stub.requests() == round + 1).await,
        }
        drop(client);
        let began = std::time::Instant::now();
        until("the replica is told", async || stub.closed_by_peer() == round + 1).await;
        assert!(began.elapsed() < Duration::from_secs(2));
        gateway.await_idle().await;
        until("logged", async || gateway.logged("client_closed") == round + 1).await;
    }
    let sample = "flotilla_gateway_requests_total{model=\"m\",outcome=\"client_closed\"}";
    assert_eq!(gateway.metric(sample).await, 3.0);
    assert_eq!(gateway.fleet().await[0]["state"], "warming");
}

#[tokio::test]
async fn each_time_limit_is_its_own() {
    // U090
    let stub = Stub::start(|request| match request.target.as_str() {
        "/v1/chat/completions" => vec![Act::AwaitClose],
        "/v1/completions" => {
            let mut acts = vec![Act::events_head()];
            for _ in 0..12 {
                acts.extend([Act::chunk(&event("tick")), Act::Sleep(Duration::from_millis(120))]);
            }
            acts.extend([Act::chunk("data: [DONE]\n\n"), Act::end()]);
            acts
        }
        _ => vec![Act::events_head(), Act::chunk(&event("one")), Act::AwaitClose],
    })
    .await;
    let settings = [("TIMEOUTS__FIRST_BYTE_MS", "600"), ("TIMEOUTS__IDLE_MS", "500")];
    let gateway = Gateway::ready(&[&stub], &settings).await;

    let began = std::time::Instant::now();
    let late = gateway.post("/v1/chat/completions", &chat("x")).await;
    assert_eq!((late.status, late.code().as_str()), (504, "first_byte_timeout"));
    assert!(began.elapsed() >= Duration::from_millis(550));
    until("closed", async || stub.closed_by_peer() == 1).await;

    let body = r#"{"model":"m","prompt":"x","stream":true}"#;
    let steady = gateway.post("/v1/completions", body).await;
    assert_eq!(steady.text().matches("tick").count(), 12);
    assert!(steady.text().ends_with("data: [DONE]\n\n"));

    let silent = gateway.post("/v1/other", body).await;
    assert!(silent.text().contains("stopped sending"), "{}", silent.text());

    let mut client = Client::connect(gateway.public).await;
    client.ask("POST", "/v1/completions", "x-request-timeout-ms: 400\r\n", body.as_bytes()).await;
    let cut = client.answer().await.unwrap().text();
    assert!(cut.contains("time was up") && !cut.contains("[DONE]"), "{cut}");
}

#[tokio::test]
async fn comments_keep_a_silent_stream_alive_when_wanted() {
    // U091
    let stub = Stub::start(|request| {
        let mut acts = vec![Act::Sleep(Duration::from_millis(500))];
        if request.number == 0 {
            acts.extend(Act::stream(&["late"]));
        } else {
            acts.extend(Act::json(500, "{}"));
        }
        acts
    })
    .await;
    let gateway = Gateway::ready(&[&stub], &[("TIMEOUTS__KEEP_ALIVE_MS", "100")]).await;
    let text = gateway.post("/v1/chat/completions", &chat_stream("x")).await.text();
    assert!(text.matches(": keep-alive\n\n").count() >= 3, "{text}");
    assert!(text.ends_with(&[event("late"), "data: [DONE]\n\n".into()].concat()), "{text}");
    let failed = gateway.post("/v1/chat/completions", &chat_stream("x")).await;
    assert_eq!(failed.status, 200);
    assert!(failed.text().contains("data: {\"error\":") && !failed.text().contains("[DONE]"));
}

#[tokio::test]
async fn answers_in_any_framing_arrive_as_they_are() {
    // U099
    let packed = {
        use std::io::Write;
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(b"{\"a\":1}").unwrap();
        packer.finish().unwrap()
    };
    let with = packed.clone();
    let stub = Stub::start(move |request| match request.number {
        0 => {
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n",
                with.len()
            );
            vec![Act::Write([head.as_bytes(), &with].concat())]
        }
        1 => vec![
            Act::Write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec()),
            Act::chunk("{\"a\""),
            Act::chunk(":1}"),
            Act::end(),
        ],
        2 => vec![Act::Write(b"HTTP/1.0 200 OK\r\n\r\n{\"a\":1}".to_vec()), Act::Close],
        _ => Act::json(200, "{\"a\":1}"),
    })
    .await;
    let gateway = Gateway::ready(&[&stub], &[]).await;
    let first = gateway.post("/v1/chat/completions", &chat("x")).await;
    assert_eq!(first.header("content-encoding"), Some("gzip"));
    assert_eq!(first.body, packed);
    for _ in 0..3 {
        let answer = gateway.post("/v1/chat/completions", &chat("x")).await;
        assert_eq!((answer.text().as_str(), answer.is_whole), ("{\"a\":1}", true));
        assert_eq!(answer.headers_named("content-length") + answer.headers_named("transfer-encoding"), 1);
    }
}
