//! TensorRT-LLM's `trtllm-serve`, with its Prometheus metrics switched on; without them the load is unknown.

use super::{Reply, Report, Unreadable, exposition, openai, ready_if};
use gateway_core::load::Sample;
use gateway_core::replica::Engine;
use shared::time::Instant;

pub const PATHS: &[&str] = &["/health", "/v1/models", "/prometheus/metrics"];

pub fn read(replies: &[Reply], at: Instant) -> Result<Report, Unreadable> {
    let [health, models, metrics] = replies else { return Err(Unreadable("three replies")) };
    let text = metrics.text();
    let block_tokens = exposition::sum(text, &["trtllm_kv_cache_tokens_per_block"]);
    let blocks = exposition::sum(text, &["trtllm_kv_cache_max_blocks"]);
    let sample = Sample {
        running: exposition::count(text, &["trtllm_num_requests_running"]),
        running_max: exposition::count(text, &["trtllm_max_num_active_requests"]),
        waiting: exposition::count(text, &["trtllm_num_requests_waiting"]),
        kv_usage: exposition::mean(text, &["trtllm_kv_cache_utilization"]),
        kv_tokens_max: block_tokens.zip(blocks).map(|(tokens, blocks)| (tokens * blocks) as u64),
        ..Sample::default()
    };
    openai::report(Engine::TensorRt, models, ready_if(health.is_ok()), sample, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_names_are_read() {
        // Names as in tensorrt_llm 1.1, serve with return_perf_metrics.
        let metrics = "trtllm_num_requests_running 3\ntrtllm_num_requests_waiting 1\n\
                       trtllm_kv_cache_utilization 0.5\ntrtllm_kv_cache_tokens_per_block 32\n\
                       trtllm_kv_cache_max_blocks 100\ntrtllm_max_num_active_requests 64\n";
        let models = r#"{"data":[{"id":"llama","owned_by":"tensorrt_llm"}]}"#;
        let reply = |body: &str| Reply { status: 200, body: body.into() };
        let report = read(&[reply(""), reply(models), reply(metrics)], Instant::ZERO).unwrap();
        assert_eq!((report.sample.running, report.sample.waiting), (Some(3), Some(1)));
        assert_eq!(report.sample.kv_tokens_max, Some(3200));
        assert_eq!(report.sample.running_max, Some(64));
    }
}
