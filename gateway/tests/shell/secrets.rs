//! Keys, prompts and answers stay where they belong.

use crate::support::{Act, Gateway, Stub, chat_stream, event, get, request};

const KEYS: [&str; 3] = ["canary-client-key", "canary-admin-key", "canary-replica-key"];
const TEXTS: [&str; 2] = ["canary-prompt", "canary-answer"];

/// Everything anybody can see of the gateway but the answers themselves.
async fn seen(level: &str) -> String {
    let stub = Stub::start(|_| {
        let mut acts = vec![Act::events_head(), Act::chunk(&event("canary-answer"))];
        acts.extend([Act::chunk("data: [DONE]\n\n"), Act::end()]);
        acts
    })
    .await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gateway.toml");
    let config = format!(
        "[[replicas]]\nurl = \"{}\"\nkey = \"{}\"\n[admin]\nkey = \"{}\"\n",
        stub.url(),
        KEYS[2],
        KEYS[1]
    );
    std::fs::write(&path, config).unwrap();
    let settings = [("LOG__LEVEL", level)];
    let mut gateway = Gateway::start_with(&[], &settings, &["--config", path.to_str().unwrap()]);
    let admin = format!("authorization: Bearer {}\r\n", KEYS[1]);
    crate::support::until("ready", async || get(gateway.public, "/ready").await.status == 200).await;
    let client = format!("authorization: Bearer {}\r\n", KEYS[0]);
    let asked = chat_stream("canary-prompt");
    let answer = request(gateway.public, "POST", "/v1/chat/completions", &client, asked.as_bytes()).await;
    assert!(answer.text().contains("canary-answer"));
    let sent = stub.recorded().pop().unwrap();
    assert_eq!(sent.header("authorization"), [format!("Bearer {}", KEYS[2])]);
    let mut text = format!("{:?}", answer.headers);
    for body in [b"{\"model\":\"canary-prompt\"".as_slice(), b"{\"model\":\"x\",\"p\":\"canary-prompt\"}"] {
        let refused = request(gateway.public, "POST", "/v1/chat/completions", &client, body).await;
        assert!(refused.status >= 400);
        text += &refused.text();
    }
    let wrong = format!("authorization: Bearer {}\r\n", KEYS[0]);
    text += &request(gateway.admin, "GET", "/fleet", &wrong, b"").await.text();
    for path in ["/fleet", "/metrics", "/"] {
        text += &request(gateway.admin, "GET", path, &admin, b"").await.text();
    }
    crate::support::until("logged", async || gateway.logged("ok") > 0).await;
    text += &gateway.log.lock().unwrap().join("\n");
    text + &gateway.errors()
}

#[tokio::test]
async fn at_no_level_is_a_key_shown_and_by_default_no_text() {
    // U109, U112
    let everything = seen("trace").await;
    assert!(everything.contains("TRACE"), "the level is on");
    for key in KEYS {
        assert!(!everything.contains(key), "{key} is shown");
    }
    let usual = seen("info").await;
    for word in KEYS.iter().chain(&TEXTS) {
        assert!(!usual.contains(word), "{word} is shown");
    }
}
