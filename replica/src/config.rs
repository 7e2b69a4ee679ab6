//! What the program may rely on. The only place that defaults and checks options; nothing reads the
//! environment later.

mod model;
mod raw;
mod registration;
mod source;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub use model::{Fake, ModelSource};
pub use raw::RawConfig;
pub use registration::Registration;
pub use source::load;

/// Tokens a KV block: the one size that CPU and GPU kernels share.
pub const BLOCK_TOKENS: u32 = 32;

/// Checked options.
#[expect(clippy::struct_excessive_bools, reason = "independent switches")]
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// Where the model is.
    pub model: ModelSource,
    /// Address to listen on.
    pub host: String,
    /// Port to listen on; 0 is any free one.
    pub port: u16,
    /// Names it answers to; empty for the model's own.
    pub served_names: Vec<String>,
    /// Ranks.
    pub tensor_parallel_size: u32,
    /// Arithmetic of float weights as kept.
    pub dtype: Dtype,
    /// Whether weights are converted to `Q8_0` while loading.
    pub quantize: bool,
    /// Files to look for in a directory.
    pub load_format: LoadFormat,
    /// Longest sequence in tokens, where it is less than the model's.
    pub context_tokens_max: Option<u32>,
    /// Most sequences in the running set.
    pub running_max: u32,
    /// Whether requests' priorities count; else first come, first served.
    pub by_priority: bool,
    /// Most tokens a step.
    pub step_tokens_max: u32,
    /// Share of a GPU's memory.
    pub gpu_memory_share: f64,
    /// Bytes of KV pool; chosen from free memory where absent.
    pub kv_bytes: Option<u64>,
    /// Whether prompts look for cached blocks.
    pub prefix_caching: bool,
    /// How tool calls are written.
    pub tool_call_parser: ToolCallParser,
    /// Whether thoughts are split off; by the template where absent.
    pub split_thoughts: Option<bool>,
    /// A template that replaces the model's.
    pub chat_template: Option<PathBuf>,
    /// Keys that open the API; empty for an open one.
    pub api_keys: Secrets,
    /// The fleet to join.
    pub registration: Option<Registration>,
    /// Seed of requests that bring none.
    pub seed: Option<u64>,
    /// Where to compute.
    pub device: Device,
    /// Compute threads; one a core where absent.
    pub threads: Option<u32>,
    /// Most sequences that wait.
    pub queue_max: u32,
    /// How long a step may take before the process ends.
    pub step_timeout: Duration,
    /// How long answers may take to finish once draining.
    pub drain_timeout: Duration,
    /// Largest request body.
    pub body_bytes_max: usize,
    /// The collector that gets a trace of each request; absent: nothing is gathered.
    pub traces: Option<traces::Endpoint>,
    /// How much is logged.
    pub log_level: String,
    /// Whether log lines are JSON.
    pub log_json: bool,
}

/// Arithmetic of float weights as kept in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dtype {
    /// As the checkpoint has them.
    Auto,
    /// Exact.
    Float32,
    /// Half precision.
    Float16,
    /// Half the bits, all of the range.
    Bfloat16,
}

/// Which files of a directory are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadFormat {
    /// By what is there.
    Auto,
    /// Hugging Face's.
    Safetensors,
    /// llama.cpp's.
    Gguf,
}

/// How a model writes tool calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ToolCallParser {
    /// As its template does.
    Auto,
    /// `<tool_call>{…}</tool_call>`
    Hermes,
    /// `[TOOL_CALLS][{…}]`
    Mistral,
    /// Bare objects: Llama 3 and others.
    Json,
}

/// Where to compute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Device {
    /// CUDA where the build and the machine have it.
    Auto,
    /// Processor cores.
    Cpu,
    /// NVIDIA cards.
    Cuda,
}

/// Texts that never show in a log.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secrets(Vec<String>);

impl Secrets {
    /// Whether anything is to be kept out.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `given` is one of them, in a time that doesn't tell how much of it was right.
    pub fn contains(&self, given: &str) -> bool {
        self.0.iter().fold(false, |found, secret| {
            let differing = secret.bytes().zip(given.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
            found | (differing == 0 && secret.len() == given.len())
        })
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secrets", self.0.len())
    }
}

/// Why the program can't start as configured: one line.
#[derive(Debug)]
pub struct ConfigError(pub String);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

/// An option whose value won't do.
#[derive(PartialEq, Eq, Debug)]
pub struct OptionError {
    /// Its key.
    pub key: &'static str,
    /// The rest of the sentence.
    what: String,
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (--{}) {}", self.key, self.key.replace('_', "-"), self.what)
    }
}

impl TryFrom<RawConfig> for Config {
    type Error = OptionError;

    fn try_from(raw: RawConfig) -> Result<Self, OptionError> {
        refuse_unfinished(&raw)?;
        let model = required("model", raw.model)?;
        let drain = real("drain_timeout", raw.drain_timeout, 30.0, 0.0, 86_400.0)?;
        let step = real("step_timeout", raw.step_timeout, 120.0, 0.1, 86_400.0)?;
        let body_bytes_max = whole("body_bytes_max", raw.body_bytes_max, 32 << 20, 1024, 1 << 30)?;
        Ok(Self {
            model: match Fake::read(&model) {
                Some(model) => ModelSource::Fake(model?),
                None => ModelSource::Path(model.into()),
            },
            host: raw.host.clone().map_or(Ok("127.0.0.1".to_owned()), |host| required("host", Some(host)))?,
            port: raw.port.unwrap_or(8001),
            served_names: texts("served_model_name", raw.served_model_name)?,
            tensor_parallel_size: whole("tensor_parallel_size", raw.tensor_parallel_size, 1, 1, 64)?,
            dtype: word("dtype", raw.dtype, Dtype::Auto, DTYPES)?,
            quantize: word("quantization", raw.quantization, false, &[("none", false), ("q8_0", true)])?,
            load_format: word("load_format", raw.load_format, LoadFormat::Auto, LOAD_FORMATS)?,
            context_tokens_max: optional("max_model_len", raw.max_model_len, 2, 1 << 24)?,
            running_max: whole("max_num_seqs", raw.max_num_seqs, 64, 1, 65_536)?,
            by_priority: word("scheduling_policy", raw.scheduling_policy, false, POLICIES)?,
            step_tokens_max: whole("max_num_batched_tokens", raw.max_num_batched_tokens, 2048, 32, 1 << 20)?,
            gpu_memory_share: real("gpu_memory_utilization", raw.gpu_memory_utilization, 0.9, 0.01, 1.0)?,
            kv_bytes: optional("kv_cache_memory_bytes", raw.kv_cache_memory_bytes, 1 << 10, 1 << 44)?,
            prefix_caching: !raw.no_enable_prefix_caching.unwrap_or(false),
            tool_call_parser: word(
                "tool_call_parser",
                raw.tool_call_parser,
                ToolCallParser::Auto,
                CALL_PARSERS,
            )?,
            split_thoughts: word("reasoning_parser", raw.reasoning_parser, None, THOUGHT_PARSERS)?,
            chat_template: raw.chat_template,
            api_keys: Secrets(texts("api_key", raw.api_key)?),
            registration: Registration::read(
                raw.register,
                raw.register_key,
                raw.advertise,
                raw.host.as_deref(),
            )?,
            seed: raw.seed,
            device: word("device", raw.device, Device::Auto, DEVICES)?,
            threads: optional("threads", raw.threads, 1, 1024)?,
            queue_max: whole("queue_max", raw.queue_max, 256, 1, 1 << 20)?,
            step_timeout: Duration::from_secs_f64(step),
            drain_timeout: Duration::from_secs_f64(drain),
            body_bytes_max: body_bytes_max as usize,
            traces: raw.otlp_traces_endpoint.as_deref().map(collector).transpose()?,
            log_level: word("log_level", raw.log_level, "info", LOG_LEVELS)?.to_owned(),
            log_json: word("log_format", raw.log_format, false, &[("text", false), ("json", true)])?,
        })
    }
}

const DTYPES: &[(&str, Dtype)] = &[
    ("auto", Dtype::Auto),
    ("float32", Dtype::Float32),
    ("float", Dtype::Float32),
    ("float16", Dtype::Float16),
    ("half", Dtype::Float16),
    ("bfloat16", Dtype::Bfloat16),
];
const LOAD_FORMATS: &[(&str, LoadFormat)] =
    &[("auto", LoadFormat::Auto), ("safetensors", LoadFormat::Safetensors), ("gguf", LoadFormat::Gguf)];
const DEVICES: &[(&str, Device)] = &[("auto", Device::Auto), ("cpu", Device::Cpu), ("cuda", Device::Cuda)];
const CALL_PARSERS: &[(&str, ToolCallParser)] = &[
    ("auto", ToolCallParser::Auto),
    ("hermes", ToolCallParser::Hermes),
    ("qwen", ToolCallParser::Hermes),
    ("mistral", ToolCallParser::Mistral),
    ("llama3_json", ToolCallParser::Json),
    ("json", ToolCallParser::Json),
];
/// All of these families write `<think>`.
const THOUGHT_PARSERS: &[(&str, Option<bool>)] = &[
    ("auto", None),
    ("none", Some(false)),
    ("think", Some(true)),
    ("qwen3", Some(true)),
    ("deepseek_r1", Some(true)),
];
const POLICIES: &[(&str, bool)] = &[("fcfs", false), ("priority", true)];
const LOG_LEVELS: &[(&str, &str)] =
    &[("error", "error"), ("warn", "warn"), ("info", "info"), ("debug", "debug"), ("trace", "trace")];

/// Options that vLLM has and this build doesn't do yet: said at once, never ignored.
fn refuse_unfinished(raw: &RawConfig) -> Result<(), OptionError> {
    whole("pipeline_parallel_size", raw.pipeline_parallel_size, 1, 1, 1)?;
    whole("block_size", raw.block_size, BLOCK_TOKENS, BLOCK_TOKENS, BLOCK_TOKENS)?;
    Ok(())
}

fn collector(url: &str) -> Result<traces::Endpoint, OptionError> {
    traces::Endpoint::parse(url)
        .map_err(|why| OptionError { key: "otlp_traces_endpoint", what: format!("won't do: {why}") })
}

fn required(key: &'static str, value: Option<String>) -> Result<String, OptionError> {
    match value {
        Some(value) if !value.trim().is_empty() => Ok(value),
        Some(_) => Err(OptionError { key, what: "is empty".to_owned() }),
        None => Err(OptionError { key, what: "is missing".to_owned() }),
    }
}

fn texts(key: &'static str, values: Option<Vec<String>>) -> Result<Vec<String>, OptionError> {
    let values = values.unwrap_or_default();
    if values.iter().any(|value| value.trim().is_empty()) {
        return Err(OptionError { key, what: "is empty".to_owned() });
    }
    Ok(values)
}

fn whole<N: Copy + PartialOrd + fmt::Display>(
    key: &'static str,
    value: Option<N>,
    default: N,
    min: N,
    max: N,
) -> Result<N, OptionError> {
    Ok(optional(key, value, min, max)?.unwrap_or(default))
}

fn optional<N: Copy + PartialOrd + fmt::Display>(
    key: &'static str,
    value: Option<N>,
    min: N,
    max: N,
) -> Result<Option<N>, OptionError> {
    match value {
        Some(given) if !(min..=max).contains(&given) && min < max => {
            Err(OptionError { key, what: format!("is {given}; it must be from {min} to {max}") })
        }
        Some(given) if !(min..=max).contains(&given) => {
            Err(OptionError { key, what: format!("is {given}; only {min} is implemented") })
        }
        value => Ok(value),
    }
}

/// As [`whole`] for fractions; not-a-number is in no range.
fn real(key: &'static str, value: Option<f64>, default: f64, min: f64, max: f64) -> Result<f64, OptionError> {
    whole(key, value, default, min, max)
}

fn word<T: Copy>(
    key: &'static str,
    value: Option<String>,
    default: T,
    known: &[(&str, T)],
) -> Result<T, OptionError> {
    let Some(value) = value else { return Ok(default) };
    let found = known.iter().find(|(name, _)| *name == value).map(|(_, meaning)| *meaning);
    found.ok_or_else(|| {
        let names: Vec<_> = known.iter().map(|(name, _)| *name).collect();
        OptionError { key, what: format!("is {value:?}; it must be one of {}", names.join(", ")) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fake() -> RawConfig {
        RawConfig { model: Some("fake".to_owned()), ..RawConfig::default() }
    }

    fn check(change: impl FnOnce(&mut RawConfig), expected: &str) {
        let mut raw = fake();
        change(&mut raw);
        assert_eq!(Config::try_from(raw).unwrap_err().to_string(), expected);
    }

    #[test]
    fn a_model_is_all_it_needs() {
        let config = Config::try_from(fake()).unwrap();
        assert_eq!((config.port, config.running_max), (8001, 64));
        let slow =
            Config::try_from(RawConfig { model: Some("fake:step=5,load=20".to_owned()), ..fake() }).unwrap();
        let ModelSource::Fake(slow) = slow.model else { panic!("{:?}", slow.model) };
        assert_eq!((slow.step.as_millis(), slow.load.as_millis()), (5, 20));
    }

    #[test]
    fn a_value_out_of_range_names_key_value_and_range() {
        check(|raw| raw.threads = Some(0), "threads (--threads) is 0; it must be from 1 to 1024");
        check(
            |raw| raw.gpu_memory_utilization = Some(f64::NAN),
            "gpu_memory_utilization (--gpu-memory-utilization) is NaN; it must be from 0.01 to 1",
        );
        check(
            |raw| raw.otlp_traces_endpoint = Some("c:4318".to_owned()),
            "otlp_traces_endpoint (--otlp-traces-endpoint) won't do: `c:4318` is no collector's URL; \
             expected http://HOST:PORT",
        );
        check(|raw| raw.model = None, "model (--model) is missing");
        check(|raw| raw.model = Some(String::new()), "model (--model) is empty");
        check(
            |raw| raw.model = Some("fake:speed=1".to_owned()),
            "model (--model) is \"fake:speed=1\"; it must be fake:step=MS,row=MS,load=MS, or any part of that",
        );
        check(
            |raw| raw.device = Some("gpu".to_owned()),
            "device (--device) is \"gpu\"; it must be one of auto, cpu, cuda",
        );
    }

    #[test]
    fn what_is_not_implemented_is_refused_and_not_ignored() {
        check(
            |raw| raw.pipeline_parallel_size = Some(2),
            "pipeline_parallel_size (--pipeline-parallel-size) is 2; only 1 is implemented",
        );
        check(|raw| raw.block_size = Some(16), "block_size (--block-size) is 16; only 32 is implemented");
    }

    #[test]
    fn secrets_compare_whole_and_never_show() {
        let secrets = Secrets(vec!["abc".to_owned(), "defg".to_owned()]);
        assert!(secrets.contains("abc") && secrets.contains("defg"));
        assert!(!secrets.contains("ab") && !secrets.contains("abcd") && !secrets.contains(""));
        assert!(!format!("{secrets:?}").contains("abc"));
    }
}
