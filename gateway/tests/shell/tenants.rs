//! Keys, limits and models of tenants, through the real binary.

use crate::support::{Act, Client, Gateway, Stub, chat, get, request, until};
use shared::keys::digest;
use std::path::PathBuf;

const OK: &str = "{\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":5}}";
const CHAT: &str = "/v1/chat/completions";

/// A file of keys: (tenant, key, its other settings).
fn write_keys(path: &PathBuf, tenants: &[(&str, &str, serde_json::Value)]) {
    let entry = |(name, key, settings): &(&str, &str, serde_json::Value)| {
        let mut entry = settings.clone();
        entry["name"] = (*name).into();
        entry["keys"] = serde_json::json!([{ "id": name, "sha256": digest(key.as_bytes()) }]);
        entry
    };
    let file = serde_json::json!({ "tenants": tenants.iter().map(entry).collect::<Vec<_>>() });
    let new = path.with_extension("new");
    std::fs::write(&new, file.to_string()).unwrap();
    std::fs::rename(&new, path).unwrap();
}

struct Rig {
    gateway: Gateway,
    stub: Stub,
    keys: PathBuf,
    _folder: tempfile::TempDir,
}

impl Rig {
    async fn start(tenants: &[(&str, &str, serde_json::Value)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let keys = folder.path().join("keys.json");
        write_keys(&keys, tenants);
        let stub = Stub::start(|_| Act::json(200, OK)).await;
        let gateway = Gateway::ready(&[&stub], &[("TENANTS__KEYS_FILE", keys.to_str().unwrap())]).await;
        Self { gateway, stub, keys, _folder: folder }
    }

    async fn chat(&self, key: &str) -> crate::support::Answer {
        let headers = format!("authorization: Bearer {key}\r\n");
        request(self.gateway.public, "POST", CHAT, &headers, chat("x").as_bytes()).await
    }
}

fn plain() -> serde_json::Value {
    serde_json::json!({})
}

/// U108: without a key only /health, /ready and /ping are answered.
#[tokio::test]
async fn without_a_key_only_health_is_told() {
    let rig = Rig::start(&[("a", "key-a", plain())]).await;
    for path in ["/health", "/ready", "/ping"] {
        assert_eq!(get(rig.gateway.public, path).await.status, 200, "{path}");
    }
    for path in
        ["/v1/models", "/v1/models/m", "//v1/models", "/V1/models", "/v1/../v1/models", "/metrics", "/"]
    {
        let answer = get(rig.gateway.public, path).await;
        assert_eq!((answer.status, answer.code().as_str()), (401, "invalid_api_key"), "{path}");
    }
    for key in ["", "key-b", "key-a-and-more"] {
        assert_eq!(rig.chat(key).await.status, 401, "{key:?}");
    }
    assert_eq!(rig.stub.requests(), 0);
    assert_eq!(rig.chat("key-a").await.status, 200);
    let seen = &rig.stub.recorded()[0];
    assert!(seen.header("authorization").is_empty(), "a key of ours goes no further");
}

/// Lines of a usage log, once there are so many.
async fn usage_lines(path: &std::path::Path, count: usize) -> Vec<serde_json::Value> {
    let read = || std::fs::read_to_string(path).unwrap_or_default();
    until("the usage log is written", async || read().lines().count() >= count).await;
    read().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn every_answer_is_in_the_usage_log_with_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let (keys, log) = (folder.path().join("keys.json"), folder.path().join("usage.jsonl"));
    write_keys(&keys, &[("a", "key-a", plain())]);
    let stub = Stub::start(|_| Act::json(200, OK)).await;
    let settings = [("TENANTS__KEYS_FILE", keys.to_str().unwrap()), ("LOG__USAGE", log.to_str().unwrap())];
    let gateway = Gateway::ready(&[&stub], &settings).await;
    let auth = "authorization: Bearer key-a\r\nx-request-id: whole\r\n";
    assert_eq!(request(gateway.public, "POST", CHAT, auth, chat("x").as_bytes()).await.status, 200);
    let line = &usage_lines(&log, 1).await[0];
    assert_eq!(
        (&line["tenant"], &line["key"], &line["request_id"]),
        (&"a".into(), &"a".into(), &"whole".into())
    );
    assert_eq!((&line["prompt_tokens"], &line["completion_tokens"]), (&10.into(), &5.into()));
    // One that its client leaves is billed by what went by; one that is refused not at all.
    assert_eq!(request(gateway.public, "POST", CHAT, "", chat("x").as_bytes()).await.status, 401);
    stub.set_script(|_| {
        let mut acts = Act::stream(&["a", "b"]);
        acts.truncate(3);
        acts.push(Act::AwaitClose);
        acts
    });
    let mut client = Client::connect(gateway.public).await;
    client.ask("POST", CHAT, "authorization: Bearer key-a\r\n", chat("x").as_bytes()).await;
    client.read_until("\"b\"").await;
    drop(client);
    let lines = usage_lines(&log, 2).await;
    assert_eq!((&lines[1]["outcome"], &lines[1]["completion_events"]), (&"client_closed".into(), &2.into()));
    assert!(lines[1]["prompt_tokens_estimated"].as_u64() > Some(0), "{}", lines[1]);
    assert!(!std::fs::read_to_string(&log).unwrap().contains("key-a"));
}

#[tokio::test]
async fn a_tenant_over_its_limit_is_told_when_to_come_back() {
    let limited = serde_json::json!({ "requests_per_min": 2, "tokens_per_min": 100_000 });
    let rig = Rig::start(&[("a", "key-a", limited), ("b", "key-b", plain())]).await;
    let first = rig.chat("key-a").await;
    assert_eq!(first.status, 200);
    assert_eq!(first.header("x-ratelimit-limit-requests"), Some("2"));
    assert_eq!(first.header("x-ratelimit-remaining-requests"), Some("1"));
    assert!(first.header("x-ratelimit-reset-tokens").is_some());
    assert_eq!(rig.chat("key-a").await.status, 200);
    let refused = rig.chat("key-a").await;
    assert_eq!((refused.status, refused.code().as_str()), (429, "rate_limit_exceeded"));
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=30).contains(&wait), "{wait}");
    assert_eq!(refused.header("x-ratelimit-remaining-requests"), Some("0"));
    let other = rig.chat("key-b").await;
    assert_eq!((other.status, other.header("x-ratelimit-limit-requests")), (200, None));
    rig.gateway.await_idle().await;
}

#[tokio::test]
async fn what_an_answer_did_not_use_is_given_back() {
    let limited = serde_json::json!({ "tokens_per_min": 2000 });
    let rig = Rig::start(&[("a", "key-a", limited)]).await;
    let remaining = |answer: &crate::support::Answer| -> u64 {
        answer.header("x-ratelimit-remaining-tokens").unwrap().parse().unwrap()
    };
    // Each of these is let in at an estimate of some 260 tokens, and takes 15.
    let first = remaining(&rig.chat("key-a").await);
    rig.gateway.await_idle().await;
    let second = remaining(&rig.chat("key-a").await);
    assert!(second + 100 >= first, "{first} then {second}");
}

#[tokio::test]
async fn requests_at_once_are_bounded_and_freed() {
    let one = serde_json::json!({ "requests_max": 1 });
    let rig = Rig::start(&[("a", "key-a", one)]).await;
    rig.stub
        .set_script(|_| vec![Act::events_head(), Act::chunk("data: {\"choices\":[]}\n\n"), Act::AwaitClose]);
    let mut client = Client::connect(rig.gateway.public).await;
    client.ask("POST", CHAT, "authorization: Bearer key-a\r\n", chat("x").as_bytes()).await;
    client.read_until("data:").await;
    assert_eq!(rig.chat("key-a").await.status, 429);
    drop(client);
    rig.stub.set_script(|_| Act::json(200, OK));
    until("the place is free", async || rig.chat("key-a").await.status == 200).await;
}

#[tokio::test]
async fn a_tenant_sees_and_uses_its_models_only() {
    let held = serde_json::json!({ "models": ["other"] });
    let rig = Rig::start(&[("a", "key-a", held)]).await;
    let refused = rig.chat("key-a").await;
    assert_eq!((refused.status, refused.code().as_str()), (403, "model_not_allowed"));
    let list = request(rig.gateway.public, "GET", "/v1/models", "authorization: Bearer key-a\r\n", b"").await;
    assert_eq!(list.json()["data"], serde_json::json!([]));
    assert_eq!(rig.stub.requests(), 0);
}

#[tokio::test]
async fn keys_change_without_a_restart() {
    let rig = Rig::start(&[("a", "old", plain())]).await;
    write_keys(&rig.keys, &[("a", "new", plain())]);
    until("the new key is good", async || rig.chat("new").await.status == 200).await;
    assert_eq!(rig.chat("old").await.status, 401);
    std::fs::write(&rig.keys, "nonsense").unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    assert_eq!(rig.chat("new").await.status, 200);
}
