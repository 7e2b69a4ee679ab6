//! `SGLang`, started with `--enable-metrics`.

use super::{Reply, Report, Unreadable, exposition, openai, ready_if};
use gateway_core::load::Sample;
use gateway_core::replica::Engine;
use shared::time::Instant;

pub const PATHS: &[&str] = &["/health", "/v1/models", "/metrics"];

pub fn read(replies: &[Reply], at: Instant) -> Result<Report, Unreadable> {
    let [health, models, metrics] = replies else { return Err(Unreadable("three replies")) };
    let text = metrics.text();
    let page = exposition::label(text, "sglang:cache_config_info", "page_size");
    let pages = exposition::label(text, "sglang:cache_config_info", "num_pages");
    let sample = Sample {
        running: exposition::count(text, &["sglang:num_running_reqs"]),
        waiting: exposition::count(text, &["sglang:num_queue_reqs"]),
        kv_usage: exposition::mean(text, &["sglang:token_usage"]),
        kv_tokens_max: page.zip(pages).map(|(page, pages)| page * pages),
        ..Sample::default()
    };
    openai::report(Engine::Sglang, models, ready_if(health.is_ok()), sample, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_names_are_read() {
        // U113
        let metrics = include_str!("../../tests/fixtures/sglang-0.5-metrics.txt");
        let models = r#"{"object":"list","data":[{"id":"qwen","owned_by":"sglang","max_model_len":32768}]}"#;
        let reply = |body: &str| Reply { status: 200, body: body.into() };
        let report = read(&[reply(""), reply(models), reply(metrics)], Instant::ZERO).unwrap();
        assert_eq!(report.sample.running, Some(7));
        assert_eq!(report.sample.waiting, Some(4));
        assert_eq!(report.sample.kv_usage, Some(0.28));
        assert_eq!(report.sample.kv_tokens_max, Some(64 * 1000));
        assert_eq!(report.sample.context_tokens_max, Some(32768));
    }
}
