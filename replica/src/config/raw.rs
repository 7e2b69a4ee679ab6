//! What was written, wherever it was written: every option once, as a flag, a file key and a variable.

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

/// All options, all optional. A file's key is the flag's name with underscores; a variable is
/// `FLOTILLA__REPLICA__` and the key in capitals.
#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawConfig {
    /// A GGUF file, a Hugging Face directory, or `fake` (deterministic, no weights)
    #[arg(long, value_name = "DIR_OR_GGUF")]
    pub model: Option<String>,
    /// Address to listen on [default: 127.0.0.1]
    #[arg(long)]
    pub host: Option<String>,
    /// Port to listen on; 0 takes a free one [default: 8001]
    #[arg(long)]
    pub port: Option<u16>,
    /// Names the model answers to; the first one is reported [default: the model's own]
    #[arg(long, num_args = 1.., value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub served_model_name: Option<Vec<String>>,
    /// Ranks that share the weights
    #[arg(long, visible_alias = "tp", value_name = "N")]
    pub tensor_parallel_size: Option<u32>,
    /// Stages of layers; only 1 is implemented
    #[arg(long, visible_alias = "pp", value_name = "N")]
    pub pipeline_parallel_size: Option<u32>,
    /// auto, float32, float16 or bfloat16
    #[arg(long)]
    pub dtype: Option<String>,
    /// Convert weights while loading: `q8_0`
    #[arg(long)]
    pub quantization: Option<String>,
    /// Longest sequence, in tokens [default: what the model was made for]
    #[arg(long, value_name = "TOKENS")]
    pub max_model_len: Option<u32>,
    /// Most sequences that run at once [default: 64]
    #[arg(long, value_name = "N")]
    pub max_num_seqs: Option<u32>,
    /// fcfs, or priority: lower `priority` (or `x-flotilla-priority`) runs first [default: fcfs]
    #[arg(long, value_name = "POLICY")]
    pub scheduling_policy: Option<String>,
    /// Most tokens a step computes [default: 2048]
    #[arg(long, value_name = "TOKENS")]
    pub max_num_batched_tokens: Option<u32>,
    /// Share of a GPU's memory to use [default: 0.9]
    #[arg(long, value_name = "SHARE")]
    pub gpu_memory_utilization: Option<f64>,
    /// Bytes of KV pool [default on CPU: a quarter of free memory, at most 4 GiB]
    #[arg(long, value_name = "BYTES")]
    pub kv_cache_memory_bytes: Option<u64>,
    /// Tokens a KV block; only 32 is implemented
    #[arg(long, value_name = "TOKENS")]
    pub block_size: Option<u32>,
    /// Compute every prompt from its first token
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub no_enable_prefix_caching: Option<bool>,
    /// Accepted for vLLM's sake: there are no captured graphs to turn off
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub enforce_eager: Option<bool>,
    /// auto, safetensors or gguf
    #[arg(long)]
    pub load_format: Option<String>,
    /// A Jinja file that replaces the model's chat template
    #[arg(long, value_name = "FILE")]
    pub chat_template: Option<PathBuf>,
    /// How the model writes tool calls: auto (by its template), hermes, `llama3_json`, mistral or json
    #[arg(long, value_name = "NAME")]
    pub tool_call_parser: Option<String>,
    /// Split `<think>` off the answer: auto (by its template), none, think, qwen3 or `deepseek_r1`
    #[arg(long, value_name = "NAME")]
    pub reasoning_parser: Option<String>,
    /// Keys that open everything but /health, /ready and /ping
    #[arg(long, num_args = 1.., value_name = "KEY")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key: Option<Vec<String>>,
    /// Seed of requests that bring none [default: drawn for each]
    #[arg(long)]
    pub seed: Option<u64>,
    /// auto, cpu or cuda
    #[arg(long)]
    pub device: Option<String>,
    /// Compute threads [default: one a core]
    #[arg(long, value_name = "N")]
    pub threads: Option<u32>,
    /// Most requests that wait [default: 256]
    #[arg(long, value_name = "N")]
    pub queue_max: Option<u32>,
    /// Seconds that a step may take on any rank before the process ends, to be started again [default: 120]
    #[arg(long, value_name = "SECONDS")]
    pub step_timeout: Option<f64>,
    /// Seconds that answers get to finish after SIGTERM [default: 30]
    #[arg(long, value_name = "SECONDS")]
    pub drain_timeout: Option<f64>,
    /// Largest request body, in bytes [default: 33554432]
    #[arg(long, value_name = "BYTES")]
    pub body_bytes_max: Option<u64>,
    /// A gateway's admin port to register with
    #[arg(long, value_name = "URL")]
    pub register: Option<String>,
    /// The admin key of that gateway
    #[arg(long, value_name = "KEY")]
    pub register_key: Option<String>,
    /// The endpoint to register [default: the address listened on]
    #[arg(long, value_name = "URL")]
    pub advertise: Option<String>,
    /// Collector that gets a trace of each request (OTLP over HTTP) [default: none]
    #[arg(long, value_name = "URL")]
    pub otlp_traces_endpoint: Option<String>,
    /// error, warn, info, debug or trace [default: info]
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// text or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<String>,
}

/// Options whose variables are taken as text, whatever they look like.
pub const TEXT_KEYS: &[&str] = &[
    "model",
    "host",
    "dtype",
    "quantization",
    "load_format",
    "scheduling_policy",
    "chat_template",
    "tool_call_parser",
    "reasoning_parser",
    "device",
    "register",
    "register_key",
    "advertise",
    "otlp_traces_endpoint",
    "log_level",
    "log_format",
];

/// Options that hold several texts; a variable separates them with commas.
pub const LIST_KEYS: &[&str] = &["served_model_name", "api_key"];

/// Options whose values are never shown.
pub const SECRET_KEYS: &[&str] = &["api_key", "register_key"];
