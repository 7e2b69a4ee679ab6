//! What is said when all is ready: where, what, and a line to try that works as it stands.

use std::time::Duration;

use http::StatusCode;
use serde_json::Value;

use crate::http::Peer;

const DEADLINE: Duration = Duration::from_secs(5);

/// Asks the gateway what it serves. One that wants a key doesn't say; then a replica is asked.
pub async fn greeting(
    gateway: &str,
    replica: Option<&str>,
    replica_key: Option<&str>,
    replicas: usize,
) -> [String; 2] {
    let answer = Peer { authority: gateway, key: None, deadline: DEADLINE }.get("/v1/models").await.ok();
    let wants_key = answer.as_ref().is_some_and(|answer| answer.status == StatusCode::UNAUTHORIZED);
    let mut model = answer.and_then(|answer| first_model(&answer.body));
    if let (None, Some(replica)) = (&model, replica) {
        let peer = Peer { authority: replica, key: replica_key, deadline: DEADLINE };
        model = peer.get("/v1/models").await.ok().and_then(|answer| first_model(&answer.body));
    }
    lines(gateway, model.as_deref(), replicas, wants_key)
}

fn first_model(body: &[u8]) -> Option<String> {
    let models: Value = serde_json::from_slice(body).ok()?;
    models["data"][0]["id"].as_str().map(str::to_owned)
}

fn lines(gateway: &str, model: Option<&str>, replicas: usize, wants_key: bool) -> [String; 2] {
    let what = model.unwrap_or("a model");
    let ready = format!("ready: http://{gateway}/v1 serves {what} on {replicas} replicas. Try:");
    // The key itself is told once, by `flotilla key create`, and by nobody else.
    let key = if wants_key { " -H \"Authorization: Bearer $FLOTILLA_API_KEY\"" } else { "" };
    let Some(model) = model else {
        return [ready, format!("curl http://{gateway}/v1/models{key}")];
    };
    let body = serde_json::json!({
        "model": model, "stream": true,
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
    });
    let body = body.to_string().replace('\'', "'\\''");
    let curl = format!(
        "curl -N http://{gateway}/v1/chat/completions{key} -H 'Content-Type: application/json' -d '{body}'"
    );
    [ready, curl]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_to_try_names_the_model_and_needs_a_key_only_where_one_is_asked_for() {
        let [ready, open] = lines("127.0.0.1:8000", Some("smol"), 2, false);
        assert!(ready.contains("serves smol on 2 replicas"), "{ready}");
        assert!(open.contains(r#""model":"smol""#) && !open.contains("Authorization"), "{open}");
        let [_, guarded] = lines("127.0.0.1:8000", Some("smol"), 2, true);
        assert!(guarded.contains("Bearer $FLOTILLA_API_KEY"), "{guarded}");
    }

    #[test]
    fn a_model_that_nobody_names_is_asked_for_and_not_invented() {
        let [ready, curl] = lines("127.0.0.1:8000", None, 1, true);
        assert!(
            !ready.contains("MODEL") && curl.contains("/v1/models") && curl.contains("Bearer"),
            "{ready} {curl}"
        );
    }

    #[test]
    fn a_quote_in_a_name_does_not_end_the_shells_word() {
        let [_, curl] = lines("127.0.0.1:8000", Some("it's"), 1, false);
        assert!(curl.contains(r"it'\''s"), "{curl}");
    }
}
