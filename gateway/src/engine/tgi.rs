//! Text Generation Inference.

use super::{Reply, Report, Unreadable, exposition, openai, ready_if};
use gateway_core::load::Sample;
use gateway_core::replica::Engine;
use serde::Deserialize;
use shared::time::Instant;

pub const PATHS: &[&str] = &["/health", "/v1/models", "/metrics", "/info"];

#[derive(Deserialize)]
struct Settings {
    router: Option<String>,
    max_concurrent_requests: Option<u32>,
    max_total_tokens: Option<u32>,
    max_batch_total_tokens: Option<u64>,
}

/// Whether this is TGI's `/info`.
pub fn is_info(text: &str) -> bool {
    serde_json::from_str::<Settings>(text)
        .is_ok_and(|info| info.router.is_some_and(|router| router.starts_with("text-generation")))
}

pub fn read(replies: &[Reply], at: Instant) -> Result<Report, Unreadable> {
    let [health, models, metrics, info] = replies else { return Err(Unreadable("four replies")) };
    let info: Option<Settings> = serde_json::from_str(info.text()).ok();
    let text = metrics.text();
    let sample = Sample {
        running: exposition::count(text, &["tgi_batch_current_size"]),
        running_max: info.as_ref().and_then(|info| info.max_concurrent_requests),
        waiting: exposition::count(text, &["tgi_queue_size"]),
        kv_tokens_max: info.as_ref().and_then(|info| info.max_batch_total_tokens),
        context_tokens_max: info.as_ref().and_then(|info| info.max_total_tokens),
        ..Sample::default()
    };
    openai::report(Engine::Tgi, models, ready_if(health.is_ok()), sample, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_names_are_read() {
        // `/info` and metrics as in text-generation-inference 3.3.
        let info = r#"{"model_id":"m","router":"text-generation-router","max_concurrent_requests":128,
            "max_total_tokens":4096,"max_batch_total_tokens":100000}"#;
        let reply = |body: &str| Reply { status: 200, body: body.into() };
        assert!(is_info(info) && !is_info("{}"));
        let metrics = "tgi_queue_size 4\ntgi_batch_current_size 9\n";
        let report =
            read(&[reply(""), reply(r#"{"data":[{"id":"m"}]}"#), reply(metrics), reply(info)], Instant::ZERO)
                .unwrap();
        assert_eq!((report.sample.running, report.sample.waiting), (Some(9), Some(4)));
        assert_eq!(report.sample.kv_tokens_max, Some(100_000));
        assert_eq!(report.sample.context_tokens_max, Some(4096));
    }
}
