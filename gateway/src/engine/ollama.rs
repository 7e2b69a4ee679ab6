//! ollama: it lists what is installed and what is loaded, and says nothing of its load.

use super::{Reply, Report, Unreadable, openai};
use gateway_core::fleet::Readiness;
use gateway_core::load::Sample;
use gateway_core::replica::Engine;
use serde::Deserialize;
use shared::time::Instant;

pub const PATHS: &[&str] = &["/v1/models", "/api/ps"];

#[derive(Deserialize)]
struct Version {
    version: String,
}

#[derive(Deserialize)]
struct Loaded {
    models: Vec<LoadedModel>,
}

#[derive(Deserialize)]
struct LoadedModel {
    context_length: Option<u32>,
}

/// Whether this is ollama's `/api/version`.
pub fn is_version(text: &str) -> bool {
    serde_json::from_str::<Version>(text).is_ok_and(|version| !version.version.is_empty())
}

pub fn read(replies: &[Reply], at: Instant) -> Result<Report, Unreadable> {
    let [models, loaded] = replies else { return Err(Unreadable("two replies")) };
    let loaded: Option<Loaded> = serde_json::from_str(loaded.text()).ok();
    let context_tokens_max = loaded.and_then(|loaded| loaded.models.first()?.context_length);
    let sample = Sample { context_tokens_max, ..Sample::default() };
    openai::report(Engine::Ollama, models, Readiness::Ready, sample, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installed_models_are_served_and_the_loaded_one_tells_its_context() {
        // As recorded from ollama 0.12.
        let models =
            r#"{"object":"list","data":[{"id":"qwen3:0.6b","object":"model","owned_by":"library"}]}"#;
        let loaded = r#"{"models":[{"name":"qwen3:0.6b","size":1,"size_vram":1,"context_length":4096}]}"#;
        let reply = |body: &str| Reply { status: 200, body: body.into() };
        let report = read(&[reply(models), reply(loaded)], Instant::ZERO).unwrap();
        assert_eq!(report.identity.models, ["qwen3:0.6b"]);
        assert_eq!(report.sample.context_tokens_max, Some(4096));
        assert_eq!(report.sample.running, None);
    }
}
