//! vLLM, with the metric names of both generations (renamed in 0.10: `gpu_cache_usage_perc` became
//! `kv_cache_usage_perc`).

use super::{Reply, Report, Unreadable, exposition, openai, ready_if};
use gateway_core::load::Sample;
use gateway_core::replica::Engine;
use shared::time::Instant;

pub const PATHS: &[&str] = &["/health", "/v1/models", "/metrics"];

pub fn read(replies: &[Reply], at: Instant) -> Result<Report, Unreadable> {
    let [health, models, metrics] = replies else { return Err(Unreadable("three replies")) };
    let text = metrics.text();
    let block_size = exposition::label(text, "vllm:cache_config_info", "block_size");
    let blocks = exposition::label(text, "vllm:cache_config_info", "num_gpu_blocks");
    let sample = Sample {
        running: exposition::count(text, &["vllm:num_requests_running"]),
        waiting: exposition::count(text, &["vllm:num_requests_waiting"]),
        kv_usage: exposition::mean(text, &["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"]),
        kv_tokens_max: block_size.zip(blocks).map(|(size, blocks)| size * blocks),
        ..Sample::default()
    };
    openai::report(Engine::Vllm, models, ready_if(health.is_ok()), sample, at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gateway_core::fleet::Readiness;

    const NEW: &str = include_str!("../../tests/fixtures/vllm-0.11-metrics.txt");
    const OLD: &str = include_str!("../../tests/fixtures/vllm-0.6-metrics.txt");

    fn report(health: u16, metrics: &str) -> Report {
        let models =
            r#"{"object":"list","data":[{"id":"Qwen/Qwen3-0.6B","owned_by":"vllm","max_model_len":40960}]}"#;
        let reply = |status, body: &str| Reply { status, body: body.into() };
        read(&[reply(health, ""), reply(200, models), reply(200, metrics)], Instant::ZERO).unwrap()
    }

    #[test]
    fn both_generations_of_names_are_read() {
        // U113
        for (text, usage, tokens) in [(NEW, 0.25, Some(16 * 27_000)), (OLD, 0.5, None)] {
            let report = report(200, text);
            assert_eq!(report.sample.running, Some(3));
            assert_eq!(report.sample.waiting, Some(2));
            assert_eq!(report.sample.kv_usage, Some(usage));
            assert_eq!(report.sample.kv_tokens_max, tokens);
            assert_eq!(report.sample.context_tokens_max, Some(40960));
            assert_eq!(report.readiness, Readiness::Ready);
        }
    }

    #[test]
    fn without_metrics_the_load_is_unknown() {
        let report = report(503, "");
        assert_eq!(report.sample.running, None);
        assert_eq!(report.sample.kv_usage, None);
        assert_eq!(report.readiness, Readiness::Loading);
    }
}
