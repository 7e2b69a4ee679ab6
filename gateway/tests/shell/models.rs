//! Other names for models: aliases, splits, a default, fallbacks. Bodies change in one place only.

use crate::support::{Act, Client, Gateway, Recorded, Stub, get, until};

const CONFIG: &str = r#"
[models.aliases]
short = "a-rather-long-model-name"
"an-alias-that-is-longer-than-the-name" = "a-rather-long-model-name"
canary = [{ model = "a-rather-long-model-name", weight = 3 }, { model = "new", weight = 1 }]
[models.fallbacks]
"a-rather-long-model-name" = ["new"]
"#;

fn answer(request: &Recorded) -> Vec<Act> {
    let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
    let model = body["model"].as_str().unwrap_or_default();
    if body["stream"] == true {
        let event =
            format!("data: {{\"id\":\"c\",\"model\":\"{model}\",\"choices\":[{{\"text\":\"x\"}}]}}\n\n");
        return vec![Act::events_head(), Act::chunk(&event), Act::chunk("data: [DONE]\n\n"), Act::end()];
    }
    Act::json(200, &format!("{{\"id\":\"c\", \"model\":\"{model}\",\"choices\":[]}}"))
}

async fn rig(more: &str) -> (Stub, Stub, Gateway, tempfile::TempDir) {
    let (old, new) = (Stub::start(answer).await, Stub::start(answer).await);
    old.set_models(&["a-rather-long-model-name"]);
    new.set_models(&["new"]);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gateway.toml");
    std::fs::write(&path, format!("{more}\n{CONFIG}")).unwrap();
    let urls = [old.url(), new.url()];
    let gateway = Gateway::start_with(&urls, &[], &["--config", path.to_str().unwrap()]);
    gateway.await_serving(2).await;
    (old, new, gateway, directory)
}

#[tokio::test]
async fn an_alias_changes_one_place_of_the_body_and_the_answer_carries_it() {
    // U081, U082
    let (old, _new, gateway, _directory) = rig("").await;
    for alias in ["short", "an-alias-that-is-longer-than-the-name"] {
        for stream in [true, false] {
            let body = format!(
                "{{ \"t\":0.10, \"model\" : \"{alias}\",\"stream\":{stream} ,\"zz\":{{\"model\":1}}}}"
            );
            let expected = body.replace(alias, "a-rather-long-model-name");
            let whole = gateway.post("/v1/completions", &body).await;
            let mut client = Client::connect(gateway.public).await;
            client
                .send("POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
                .await;
            client.send(format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len())).await;
            let chunked = client.answer().await.unwrap();
            for answer in [whole, chunked] {
                assert_eq!((answer.status, answer.is_whole), (200, true));
                assert!(answer.text().contains(&format!("\"model\":\"{alias}\"")), "{}", answer.text());
                assert_eq!(answer.header("x-flotilla-model"), Some("a-rather-long-model-name"));
                let recorded = old.recorded().pop().unwrap();
                assert_eq!(String::from_utf8(recorded.body.clone()).unwrap(), expected);
                assert_eq!(recorded.header("content-length"), [expected.len().to_string()]);
                assert!(recorded.header("transfer-encoding").is_empty());
            }
        }
        assert_eq!(get(gateway.public, &format!("/v1/models/{alias}")).await.json()["id"], alias);
    }
    let list = get(gateway.public, "/v1/models").await.text();
    for name in ["short", "canary", "new", "a-rather-long-model-name"] {
        assert!(list.contains(&format!("\"id\":\"{name}\"")), "{list}");
    }
    let logged = gateway.log.clone();
    until("both names are logged", async || {
        let lines = logged.lock().unwrap();
        lines
            .iter()
            .any(|line| line.contains("\"model\":\"short\",\"resolved\":\"a-rather-long-model-name\""))
    })
    .await;
}

#[tokio::test]
async fn a_split_sends_each_its_share() {
    let (old, new, gateway, _directory) = rig("").await;
    for _ in 0..200 {
        assert_eq!(gateway.post("/v1/completions", r#"{"model":"canary"}"#).await.status, 200);
    }
    assert_eq!(old.requests() + new.requests(), 200);
    assert!((20..=85).contains(&new.requests()), "{} of 200, 50 expected", new.requests());
}

#[tokio::test]
async fn a_fallback_serves_while_nobody_else_does() {
    let (old, new, gateway, _directory) = rig("").await;
    old.set_state("loading");
    gateway.await_serving(1).await;
    let answer = gateway.post("/v1/completions", r#"{"model":"a-rather-long-model-name"}"#).await;
    assert_eq!(answer.header("x-flotilla-replica").unwrap(), new.name());
    assert_eq!(answer.json()["model"], "a-rather-long-model-name");
    old.set_state("ready");
    gateway.await_serving(2).await;
    let answer = gateway.post("/v1/completions", r#"{"model":"a-rather-long-model-name"}"#).await;
    assert_eq!(answer.header("x-flotilla-replica").unwrap(), old.name());
}

#[tokio::test]
async fn a_default_serves_what_nobody_knows_and_is_off_unless_set() {
    // U146
    let (_old, _new, gateway, _directory) = rig("").await;
    let unknown = gateway.post("/v1/completions", r#"{"model":"gpt-x"}"#).await;
    assert_eq!((unknown.status, unknown.code().as_str()), (404, "model_not_found"));
    assert!(unknown.text().contains("a-rather-long-model-name"), "{}", unknown.text());

    let (_old, new, gateway, _directory) = rig("[models]\ndefault = \"new\"\nhide_aliases = true\n").await;
    let answer = gateway.post("/v1/completions", r#"{"model":"gpt-x"}"#).await;
    assert_eq!(answer.header("x-flotilla-replica").unwrap(), new.name());
    assert_eq!(answer.header("x-flotilla-model"), Some("new"));
    assert_eq!(answer.json()["model"], "gpt-x");
    assert_eq!(gateway.post("/v1/completions", r#"{"prompt":"x"}"#).await.status, 200);
    assert!(!get(gateway.public, "/v1/models").await.text().contains("canary"));
}
