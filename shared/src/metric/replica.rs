//! What the replica exports: vLLM's names verbatim, so that its dashboards, autoscalers and endpoint pickers work
//! unchanged, and `flotilla_replica_*` for what vLLM has no name for.

use super::{Kind, Metric};

/// Labels of everything under vLLM's names.
pub const MODEL_LABELS: &[&str] = &["model_name", "engine"];

const fn counter(name: &'static str, help: &'static str) -> Metric {
    Metric { name, help, kind: Kind::Counter, labels: MODEL_LABELS }
}

const fn gauge(name: &'static str, help: &'static str) -> Metric {
    Metric { name, help, kind: Kind::Gauge, labels: MODEL_LABELS }
}

const fn histogram(name: &'static str, help: &'static str) -> Metric {
    Metric { name, help, kind: Kind::Histogram, labels: MODEL_LABELS }
}

/// Sequences in the running set.
pub const RUNNING: Metric = gauge("vllm:num_requests_running", "Sequences in the running set.");
/// Sequences that wait.
pub const WAITING: Metric = gauge("vllm:num_requests_waiting", "Sequences that wait for their first step.");
/// Held share of the KV pool.
pub const KV_USAGE: Metric = gauge("vllm:kv_cache_usage_perc", "Share of KV blocks held, from 0 to 1.");
/// The pool's shape, in labels.
pub const CACHE_CONFIG: Metric = Metric {
    name: "vllm:cache_config_info",
    help: "Shape of the KV pool; the value is always 1.",
    kind: Kind::Gauge,
    labels: &["model_name", "engine", "block_size", "num_gpu_blocks", "enable_prefix_caching"],
};
/// Tokens looked up in the prefix cache.
pub const PREFIX_QUERIES: Metric =
    counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.");
/// Tokens found there.
pub const PREFIX_HITS: Metric =
    counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.");
/// Sequences that gave their blocks back.
pub const PREEMPTIONS: Metric =
    counter("vllm:num_preemptions_total", "Times a sequence gave its blocks back and waited again.");
/// Prompt tokens.
pub const PROMPT_TOKENS: Metric = counter("vllm:prompt_tokens_total", "Prompt tokens of started requests.");
/// Answer tokens.
pub const GENERATION_TOKENS: Metric = counter("vllm:generation_tokens_total", "Answer tokens generated.");
/// Finished requests.
pub const SUCCESS: Metric = Metric {
    name: "vllm:request_success_total",
    help: "Choices that ended, by reason.",
    kind: Kind::Counter,
    labels: &["model_name", "engine", "finished_reason"],
};
/// Rows of a step.
pub const ITERATION_TOKENS: Metric = histogram("vllm:iteration_tokens_total", "Tokens computed in one step.");
/// Arrival to first token.
pub const TTFT: Metric = histogram("vllm:time_to_first_token_seconds", "From arrival to the first token.");
/// Between two tokens.
pub const INTER_TOKEN: Metric =
    histogram("vllm:inter_token_latency_seconds", "From one token of a choice to the next.");
/// The same under the name that older dashboards read.
pub const TPOT: Metric = histogram(
    "vllm:time_per_output_token_seconds",
    "From one token of a choice to the next (older name of inter_token_latency).",
);
/// Mean time a token of a request.
pub const REQUEST_TPOT: Metric = histogram(
    "vllm:request_time_per_output_token_seconds",
    "Mean time per token after the first, one value a choice.",
);
/// Arrival to end.
pub const E2E: Metric = histogram("vllm:e2e_request_latency_seconds", "From arrival to the last token.");
/// Arrival to first row.
pub const QUEUE_TIME: Metric =
    histogram("vllm:request_queue_time_seconds", "From arrival to the first scheduled row.");
/// First row to first token.
pub const PREFILL_TIME: Metric =
    histogram("vllm:request_prefill_time_seconds", "From the first scheduled row to the first token.");
/// First token to last.
pub const DECODE_TIME: Metric =
    histogram("vllm:request_decode_time_seconds", "From the first token to the last.");
/// First row to last token.
pub const INFERENCE_TIME: Metric =
    histogram("vllm:request_inference_time_seconds", "From the first scheduled row to the last token.");
/// Prompt lengths.
pub const REQUEST_PROMPT: Metric = histogram("vllm:request_prompt_tokens", "Prompt tokens of a choice.");
/// Answer lengths.
pub const REQUEST_GENERATION: Metric =
    histogram("vllm:request_generation_tokens", "Answer tokens of a choice.");
/// Wanted choices.
pub const PARAMS_N: Metric = histogram("vllm:request_params_n", "Choices a request asks for (n).");
/// Wanted lengths.
pub const PARAMS_MAX_TOKENS: Metric =
    histogram("vllm:request_params_max_tokens", "Most answer tokens a request asks for.");

/// HTTP answers.
pub const RESPONSES: Metric = Metric {
    name: "flotilla_replica_responses_total",
    help: "HTTP answers begun, by route and status class.",
    kind: Kind::Counter,
    labels: &["route", "code"],
};
/// How generation requests end.
pub const REQUESTS: Metric = Metric {
    name: "flotilla_replica_requests_total",
    help: "Generation requests that ended, by outcome.",
    kind: Kind::Counter,
    labels: &["outcome"],
};
/// Refusals by reason.
pub const REFUSALS: Metric = Metric {
    name: "flotilla_replica_refusals_total",
    help: "Requests answered with an error body, by reason.",
    kind: Kind::Counter,
    labels: &["reason"],
};
/// Requests being answered.
pub const IN_FLIGHT: Metric = Metric {
    name: "flotilla_replica_requests_in_flight",
    help: "Generation requests between their last body byte and their last answer byte.",
    kind: Kind::Gauge,
    labels: &[],
};
/// Open connections.
pub const CONNECTIONS: Metric = Metric {
    name: "flotilla_replica_connections",
    help: "Open client connections.",
    kind: Kind::Gauge,
    labels: &[],
};
/// State.
pub const STATE: Metric = Metric {
    name: "flotilla_replica_state",
    help: "1 for the state the replica is in, 0 for the others.",
    kind: Kind::Gauge,
    labels: &["state"],
};
/// Blocks free.
pub const BLOCKS_FREE: Metric = Metric {
    name: "flotilla_replica_kv_blocks_free",
    help: "KV blocks nobody holds; cached ones count as free.",
    kind: Kind::Gauge,
    labels: &[],
};
/// Blocks there are.
pub const BLOCKS_TOTAL: Metric = Metric {
    name: "flotilla_replica_kv_blocks",
    help: "KV blocks in the pool.",
    kind: Kind::Gauge,
    labels: &[],
};
/// Prompt tokens to compute.
pub const WAITING_TOKENS: Metric = Metric {
    name: "flotilla_replica_waiting_tokens",
    help: "Prompt tokens still to be computed.",
    kind: Kind::Gauge,
    labels: &[],
};
/// Measured prefill rate.
pub const PREFILL_RATE: Metric = Metric {
    name: "flotilla_replica_prefill_tokens_per_second",
    help: "Measured prefill rate; 0 until measured.",
    kind: Kind::Gauge,
    labels: &[],
};
/// Measured decode rate.
pub const DECODE_RATE: Metric = Metric {
    name: "flotilla_replica_decode_tokens_per_second",
    help: "Measured decode rate over all sequences; 0 until measured.",
    kind: Kind::Gauge,
    labels: &[],
};
/// Steps run.
pub const STEPS: Metric =
    Metric { name: "flotilla_replica_steps_total", help: "Steps run.", kind: Kind::Counter, labels: &[] };
/// Time in steps.
pub const STEP_SECONDS: Metric = Metric {
    name: "flotilla_replica_step_seconds_total",
    help: "Time spent in steps.",
    kind: Kind::Counter,
    labels: &[],
};
/// Weight bytes a rank.
pub const RANK_WEIGHT_BYTES: Metric = Metric {
    name: "flotilla_replica_rank_weight_bytes",
    help: "Bytes of weights a rank holds.",
    kind: Kind::Gauge,
    labels: &["rank", "device"],
};
/// KV bytes a rank.
pub const RANK_KV_BYTES: Metric = Metric {
    name: "flotilla_replica_rank_kv_bytes",
    help: "Bytes of KV pool a rank holds.",
    kind: Kind::Gauge,
    labels: &["rank", "device"],
};
/// Who and what.
pub const BUILD: Metric = Metric {
    name: "flotilla_replica_info",
    help: "Identity of this process; the value is always 1.",
    kind: Kind::Gauge,
    labels: &["version", "instance", "revision", "dtype"],
};

/// All of them.
pub const ALL: &[Metric] = &[
    RUNNING,
    WAITING,
    KV_USAGE,
    CACHE_CONFIG,
    PREFIX_QUERIES,
    PREFIX_HITS,
    PREEMPTIONS,
    PROMPT_TOKENS,
    GENERATION_TOKENS,
    SUCCESS,
    ITERATION_TOKENS,
    TTFT,
    INTER_TOKEN,
    TPOT,
    REQUEST_TPOT,
    E2E,
    QUEUE_TIME,
    PREFILL_TIME,
    DECODE_TIME,
    INFERENCE_TIME,
    REQUEST_PROMPT,
    REQUEST_GENERATION,
    PARAMS_N,
    PARAMS_MAX_TOKENS,
    RESPONSES,
    REQUESTS,
    REFUSALS,
    IN_FLIGHT,
    CONNECTIONS,
    STATE,
    BLOCKS_FREE,
    BLOCKS_TOTAL,
    WAITING_TOKENS,
    PREFILL_RATE,
    DECODE_RATE,
    STEPS,
    STEP_SECONDS,
    RANK_WEIGHT_BYTES,
    RANK_KV_BYTES,
    BUILD,
];

/// Upper bounds of times, in seconds: fine where a token takes milliseconds, and past any sane timeout.
pub const TIME_BOUNDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0,
    320.0, 640.0, 1280.0, 2560.0,
];

/// Upper bounds of counts of tokens.
pub const TOKEN_BOUNDS: &[f64] = &[
    1.0,
    2.0,
    5.0,
    10.0,
    20.0,
    50.0,
    100.0,
    200.0,
    500.0,
    1000.0,
    2000.0,
    5000.0,
    10_000.0,
    20_000.0,
    50_000.0,
    100_000.0,
    200_000.0,
    500_000.0,
    1_000_000.0,
];

/// Upper bounds of counts of choices.
pub const CHOICE_BOUNDS: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0];
