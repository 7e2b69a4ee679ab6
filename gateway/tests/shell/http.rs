//! HTTP as it should be, and as attackers send it.

use crate::support::{Act, Client, Gateway, Stub, chat, get, request};

async fn rig() -> (Stub, Gateway) {
    let stub = Stub::start(|_| Act::json(200, "{}")).await;
    let gateway = Gateway::ready(&[&stub], &[]).await;
    (stub, gateway)
}

#[tokio::test]
async fn what_could_be_read_in_two_ways_is_refused_or_reaches_the_replica_once() {
    // U096
    let (stub, gateway) = rig().await;
    let body = chat("x");
    let length = body.len();
    let chunked = format!("{length:x}\r\n{body}\r\n0\r\n\r\n");
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n";
    let smuggled = "GET /v1/smuggled HTTP/1.1\r\nhost: x\r\n\r\n";
    let corpus = [
        format!("{head}content-length: {length}\r\ntransfer-encoding: chunked\r\n\r\n{chunked}"),
        format!("{head}transfer-encoding: chunked, identity\r\n\r\n{chunked}"),
        format!("{head}transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n{chunked}"),
        format!("{head}transfer-encoding: xchunked\r\n\r\n{chunked}"),
        format!("{head}content-length: {length}\r\ncontent-length: {}\r\n\r\n{body}", length + 1),
        format!("{head}content-length: +{length}\r\n\r\n{body}"),
        format!("{head}content-length: {length}, {length}\r\n\r\n{body}"),
        format!("{head}content-length: {length}\r\nx: a\r\n b\r\n\r\n{body}"),
        format!("{head}content-length : {length}\r\n\r\n{body}"),
        format!("POST /v1/chat/completions HTTP/1.1\nhost: x\ncontent-length: {length}\n\n{body}"),
        format!("{head}transfer-encoding: chunked\r\n\r\n{length:x};a=\rb\r\n{body}\r\n0\r\n\r\n{smuggled}"),
        format!("{head}transfer-encoding: chunked\r\n\r\n{length:x}\n{body}\r\n0\r\n\r\n"),
        format!("{head}content-length: -1\r\n\r\n"),
        "POST /v1/chat/completions HTTP/1.1\r\ncontent-length: 0\r\n\r\n".to_owned(),
        "\u{16}\u{3}\u{1}\u{2}aaaaaaaa\r\n\r\n".to_owned(),
        "GARBAGE\r\n\r\n".to_owned(),
        "POST http://[::bad HTTP/1.1\r\nhost: x\r\n\r\n".to_owned(),
    ];
    for case in corpus {
        let before = stub.requests();
        let mut client = Client::connect(gateway.public).await;
        client.send(&case).await;
        let answer = client.answer().await;
        let reached = stub.requests() - before;
        match &answer {
            Some(answer) if answer.status == 200 => {
                assert_eq!(reached, 1, "{case}");
                let recorded = stub.recorded().pop().unwrap();
                assert_eq!(recorded.body, body.as_bytes(), "{case}");
                assert_eq!(recorded.header("content-length").len(), 1);
                assert!(recorded.header("transfer-encoding").is_empty());
            }
            Some(answer) => {
                assert_eq!((answer.status, reached), (400, 0), "{case}");
                assert_eq!(answer.header("connection"), Some("close"), "{case}");
                assert!(!answer.code().is_empty());
                assert!(client.is_closed().await, "{case}");
            }
            None => assert_eq!(reached, 0, "{case}"),
        }
    }
    assert!(stub.recorded().iter().all(|recorded| recorded.target != "/v1/smuggled"));
    assert_eq!(gateway.post("/v1/chat/completions", &chat("x")).await.status, 200);
}

#[tokio::test]
async fn every_route_is_where_it_belongs() {
    // U108
    let (stub, gateway) = rig().await;
    let aliases =
        ["//v1/models", "/V1/models", "/v1/../metrics", "/v1/%2e%2e/metrics", "/v1/models/", "/health/"];
    for path in aliases.iter().chain(&["/metrics", "/fleet", "/scale", "/", "/v1", "/admin"]) {
        for method in ["GET", "POST", "HEAD", "OPTIONS", "DELETE"] {
            let answer = request(gateway.public, method, path, "", b"").await;
            assert_eq!(answer.status, 404, "{method} {path}");
        }
    }
    for path in ["/health", "/ready", "/ping", "/v1/models", "/v1/models/m"] {
        assert_eq!(get(gateway.public, path).await.status, 200, "{path}");
        assert_eq!(request(gateway.public, "HEAD", path, "", b"").await.status, 200, "{path}");
        let answer = request(gateway.public, "POST", path, "", b"{}").await;
        assert_eq!((answer.status, answer.code().as_str()), (405, "method_not_allowed"), "{path}");
    }
    for path in ["/health", "/ready", "/metrics", "/fleet", "/"] {
        assert_eq!(get(gateway.admin, path).await.status, 200, "{path}");
    }
    assert_eq!(get(gateway.admin, "/v1/models").await.status, 404);
    assert_eq!(stub.requests(), 0);
}

#[tokio::test]
async fn the_admin_port_asks_for_its_key() {
    // U108
    let stub = Stub::start(|_| Act::json(200, "{}")).await;
    let gateway = Gateway::start(&[&stub], &[("ADMIN__KEY", "canary-key")]);
    for path in ["/health", "/ping"] {
        assert_eq!(get(gateway.admin, path).await.status, 200, "{path}");
    }
    for path in ["/metrics", "/fleet", "/", "/fleet/x", "/nothing"] {
        let refused = get(gateway.admin, path).await;
        assert_eq!((refused.status, refused.code().as_str()), (401, "invalid_api_key"), "{path}");
        let wrong = request(gateway.admin, "GET", path, "authorization: Bearer canary-kez\r\n", b"").await;
        assert_eq!(wrong.status, 401, "{path}");
    }
    let right = request(gateway.admin, "GET", "/fleet", "authorization: Bearer canary-key\r\n", b"").await;
    assert_eq!(right.status, 200);
}

#[tokio::test]
async fn models_are_those_of_the_fleet() {
    let one = Stub::start(|_| Act::json(200, "{}")).await;
    let two = Stub::start(|_| Act::json(200, "{}")).await;
    one.set_models(&["a", "both"]);
    two.set_models(&["b/c", "both"]);
    let gateway = Gateway::ready(&[&one, &two], &[]).await;
    let list = get(gateway.public, "/v1/models").await.json();
    let names: Vec<_> =
        list["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "b/c", "both"]);
    assert_eq!(get(gateway.public, "/v1/models/b/c").await.json()["id"], "b/c");
    assert_eq!(get(gateway.public, "/v1/models/b%2Fc").await.json()["id"], "b/c");
    for answer in [
        get(gateway.public, "/v1/models/x").await,
        gateway.post("/v1/chat/completions", r#"{"model":"x","messages":[]}"#).await,
    ] {
        assert_eq!((answer.status, answer.code().as_str()), (404, "model_not_found"));
        assert!(answer.text().contains("a, b/c, both"), "{}", answer.text());
    }
    for (model, stub) in [("a", &one), ("b/c", &two)] {
        let answer = gateway.post("/v1/chat/completions", &format!(r#"{{"model":"{model}"}}"#)).await;
        assert_eq!(answer.header("x-flotilla-replica").unwrap(), stub.name());
    }
    let missing = gateway.post("/v1/chat/completions", r#"{"messages":[]}"#).await;
    assert_eq!((missing.status, missing.json()["error"]["param"].as_str()), (400, Some("model")));
}

#[tokio::test]
async fn requests_and_headers_pass_byte_for_byte() {
    let (stub, gateway) = rig().await;
    let body = "{ \"model\" : \"m\",\"zz\":{\"b\":1,\"a\":2}, \"temperature\":0.10,\n\"messages\":[{\"role\":\"user\",\"x\":7}]}";
    let headers =
        "traceparent: 00-aa-bb-01\r\nx-custom: Kept As Is\r\nconnection: x-private\r\nx-private: 1\r\n";
    let path = "/v1/chat/completions?beta=true&x=%20";
    let answer = request(gateway.public, "POST", path, headers, body.as_bytes()).await;
    assert_eq!(answer.status, 200);
    let recorded = stub.recorded().pop().unwrap();
    assert_eq!(recorded.body, body.as_bytes());
    assert_eq!((recorded.method.as_str(), recorded.target.as_str()), ("POST", path));
    assert_eq!(recorded.header("traceparent"), ["00-aa-bb-01"]);
    assert_eq!(recorded.header("x-custom"), ["Kept As Is"]);
    assert!(recorded.header("x-private").is_empty() && recorded.header("connection").is_empty());
    assert_eq!(recorded.header("host"), [stub.name()]);
}

#[tokio::test]
async fn old_and_pipelining_clients_are_served() {
    let (stub, gateway) = rig().await;
    let body = chat("x");
    let mut old = Client::connect(gateway.public).await;
    old.send(format!(
        "POST /v1/chat/completions HTTP/1.0\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ))
    .await;
    let answer = old.answer().await.unwrap();
    assert_eq!((answer.status, answer.text().as_str()), (200, "{}"));
    assert!(answer.header("transfer-encoding").is_none());
    assert!(old.is_closed().await);

    let mut shortest = Client::connect(gateway.public).await;
    shortest.send("GET /ping HTTP/1.0\r\n\r\n").await;
    assert_eq!(shortest.answer().await.unwrap().status, 200);

    let mut client = Client::connect(gateway.public).await;
    let one = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    client.send(one.repeat(3)).await;
    for _ in 0..3 {
        assert_eq!(client.answer().await.unwrap().status, 200);
    }
    assert_eq!(stub.requests(), 4);
}

#[tokio::test]
async fn what_no_replica_needs_to_know_is_refused_here() {
    let (stub, gateway) = rig().await;
    for (body, param) in [("", None), ("[]", None), ("{\"model\":", None), ("{\"model\":5}", Some("model"))] {
        let answer = gateway.post("/v1/chat/completions", body).await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_body"), "{body}");
        assert_eq!(answer.json()["error"]["param"].as_str(), param);
    }
    let mut client = Client::connect(gateway.public).await;
    client.ask("POST", "/v1/chat/completions", &format!("x: {}\r\n", "y".repeat(70_000)), b"{}").await;
    assert_eq!(client.answer().await.unwrap().status, 431);
    assert_eq!(stub.requests(), 0);
}
