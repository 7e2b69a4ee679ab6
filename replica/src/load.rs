//! From options to a model that answers: checkpoint, tokenizer, template, engine. Blocks for as long as it takes.

mod progress;

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use replica_core::scheduler::Policy;
use replica_format::facts::ModelFacts;
use tokio::sync::mpsc::Receiver;

use crate::api::app::model_names;
use crate::api::dialect::Dialect;
use crate::api::served::Served;
use crate::api::structure::Grammars;
use crate::api::template::Template;
use crate::api::tokenizer::Tokenizer;
use crate::config::{BLOCK_TOKENS, Config, Device, Dtype, Fake, LoadFormat, ModelSource};
use crate::engine::{self, Cached, Place, Source, Started};
use crate::model::{Precision, fake};
use crate::parallel::RankFailure;
use crate::weights::{Checkpoint, GenerationDefaults};

use progress::Progress;

/// How long a step should take, so that a long prompt doesn't freeze running streams.
const STEP_TARGET: Duration = Duration::from_millis(100);
/// Bounds of the KV pool that is chosen where none is given.
const KV_BYTES_MAX: u64 = 4 << 30;
const KV_BYTES_LEAST: u64 = 256 << 20;

/// A loaded model and its engine's thread.
#[derive(Debug)]
pub struct Loaded {
    /// To answer with.
    pub served: Served,
    /// What its cache stores and evicts.
    pub cached: Receiver<Cached>,
    /// Ends when drained, or with the rank that failed.
    pub engine: JoinHandle<Result<(), RankFailure>>,
}

/// Text side of a model.
struct Texts {
    tokenizer: Tokenizer,
    template: Option<Template>,
    dialect: Dialect,
    facts: ModelFacts,
    revision: String,
    generation: GenerationDefaults,
}

/// Loads.
///
/// # Errors
///
/// One line for the operator.
pub fn load(config: &Config) -> Result<Loaded, String> {
    let place = match config.device {
        Device::Auto => Place::best(),
        Device::Cpu => Place::Cpu,
        Device::Cuda => Place::cuda().map_err(|reason| format!("device (--device) is \"cuda\": {reason}"))?,
    };
    let (source, texts) = match &config.model {
        ModelSource::Fake(model) => {
            std::thread::sleep(model.load);
            (Source::Fake(fake::Delay { step: model.step, row: model.row }), fake_texts(config, *model)?)
        }
        ModelSource::Path(path) => {
            check_format(path, config.load_format)?;
            let checkpoint = Arc::new(Checkpoint::open(path).map_err(|error| error.to_string())?);
            for warning in &checkpoint.warnings {
                tracing::warn!("{warning}");
            }
            let texts = texts(config, &checkpoint)?;
            (Source::Checkpoint(checkpoint), texts)
        }
    };
    check_context(config, &texts.facts)?;
    let progress = Progress::new(texts.facts.weight_bytes);
    let options = engine_options(config, source, place);
    let precision = options.precision;
    let started =
        engine::start(options, move |bytes| progress.note(bytes)).map_err(|error| error.to_string())?;
    Ok(served(config, texts, started, precision))
}

fn served(config: &Config, texts: Texts, started: Started, precision: Precision) -> Loaded {
    let limits = started.limits;
    let served = Served {
        names: model_names(config),
        vocab_tokens: texts.facts.vocab_size,
        end_tokens: texts.facts.eos_tokens.clone(),
        dtype: dtype_name(precision, &texts.facts),
        tokenizer: texts.tokenizer,
        template: texts.template,
        dialect: texts.dialect,
        grammars: Grammars::default(),
        engine: started.handle,
        context_tokens_max: config.context_tokens_max.unwrap_or(texts.facts.context_tokens),
        pool_tokens: limits.blocks.saturating_mul(limits.block_tokens),
        generation: texts.generation,
        seed: config.seed,
        revision: texts.revision,
        ranks: started.ranks,
    };
    tracing::info!(
        model = served.names[0],
        device = served.ranks.first().map(|rank| rank.device.as_str()),
        ranks = served.ranks.len(),
        weights = served.dtype,
        kv_blocks = limits.blocks,
        kv_tokens = served.pool_tokens,
        context_tokens = served.context_tokens_max,
        "model loaded"
    );
    Loaded { served, cached: started.cached, engine: started.thread }
}

fn fake_texts(config: &Config, model: Fake) -> Result<Texts, String> {
    let json = fake::tokenizer_json();
    let tokenizer = Tokenizer::from_json(json.as_bytes(), &serde_json::Value::Null);
    let (template, dialect) = template(config, Some(fake::CHAT_TEMPLATE), "", fake::SPECIALS[0])?;
    Ok(Texts {
        tokenizer: tokenizer.map_err(|error| error.to_string())?,
        template,
        dialect,
        facts: fake::facts(config.context_tokens_max.unwrap_or(model.context_tokens)),
        revision: "fake".to_owned(),
        generation: GenerationDefaults::default(),
    })
}

fn texts(config: &Config, checkpoint: &Checkpoint) -> Result<Texts, String> {
    let Checkpoint { chat_template, bos_text, eos_text, .. } = checkpoint;
    let (template, dialect) = template(config, chat_template.as_deref(), bos_text, eos_text)?;
    Ok(Texts {
        tokenizer: Tokenizer::from_checkpoint(checkpoint).map_err(|error| error.to_string())?,
        template,
        dialect,
        facts: checkpoint.facts.clone(),
        revision: checkpoint.revision.clone(),
        generation: checkpoint.generation,
    })
}

fn template(
    config: &Config,
    own: Option<&str>,
    bos: &str,
    eos: &str,
) -> Result<(Option<Template>, Dialect), String> {
    let given = config.chat_template.as_ref().map(|path| {
        std::fs::read_to_string(path).map_err(|error| format!("{}: cannot be read: {error}", path.display()))
    });
    let Some(source) = given.transpose()?.or_else(|| own.map(ToOwned::to_owned)) else {
        return Ok((None, Dialect::default()));
    };
    let template = Template::new(&source, bos, eos).map_err(|error| error.to_string())?;
    Ok((Some(template), Dialect::of(&source, config.tool_call_parser, config.split_thoughts)))
}

fn engine_options(config: &Config, source: Source, place: Place) -> engine::Options {
    engine::Options {
        place,
        source,
        precision: precision(config),
        kv_kind: None,
        kv_bytes: config.kv_bytes.unwrap_or_else(|| (free_memory_bytes() / 4).min(KV_BYTES_MAX)),
        block_tokens: BLOCK_TOKENS,
        ranks: config.tensor_parallel_size,
        threads: config.threads.map_or_else(cores, |threads| threads as usize),
        context_tokens_max: config.context_tokens_max,
        running_max: config.running_max,
        waiting_max: config.queue_max,
        step_tokens_max: config.step_tokens_max,
        step_target: Some(STEP_TARGET),
        step_timeout: config.step_timeout,
        policy: if config.by_priority { Policy::Priority } else { Policy::Fcfs },
        prefix_caching: config.prefix_caching,
    }
}

fn precision(config: &Config) -> Precision {
    match config.dtype {
        _ if config.quantize => Precision::Q8_0,
        Dtype::Auto => Precision::Kept,
        Dtype::Float32 => Precision::F32,
        Dtype::Float16 => Precision::F16,
        Dtype::Bfloat16 => Precision::BF16,
    }
}

fn dtype_name(precision: Precision, facts: &ModelFacts) -> String {
    match precision {
        Precision::F32 => "float32".to_owned(),
        Precision::F16 => "float16".to_owned(),
        Precision::BF16 => "bfloat16".to_owned(),
        Precision::Q8_0 => "q8_0".to_owned(),
        Precision::Kept => format!("{:?}", facts.weight_kind).to_lowercase(),
    }
}

fn check_format(path: &Path, wanted: LoadFormat) -> Result<(), String> {
    let is_gguf = path.extension().is_some_and(|extension| extension == "gguf");
    match wanted {
        LoadFormat::Safetensors if is_gguf => {
            Err(format!("{}: is not a safetensors folder (--load-format)", path.display()))
        }
        LoadFormat::Gguf if path.join("config.json").exists() => {
            Err(format!("{}: is not a GGUF file (--load-format)", path.display()))
        }
        _ if !path.exists() => Err(format!("{}: no such file or folder (--model)", path.display())),
        _ => Ok(()),
    }
}

/// A context beyond what the model was made for gives nonsense: refused rather than served.
fn check_context(config: &Config, facts: &ModelFacts) -> Result<(), String> {
    match config.context_tokens_max {
        Some(wanted) if wanted > facts.context_tokens => Err(format!(
            "max_model_len (--max-model-len) is {wanted}; this model was made for {} tokens",
            facts.context_tokens
        )),
        _ => Ok(()),
    }
}

fn free_memory_bytes() -> u64 {
    // Where the system tells nothing, the smallest pool that is of use.
    let Ok(mut system) = sysinfo::System::new() else { return KV_BYTES_LEAST };
    system.refresh_memory();
    // A container's limit is the memory there is.
    let of_group = system.cgroup_limits().map_or(u64::MAX, |limits| limits.free_memory);
    system.available_memory().min(of_group).max(KV_BYTES_LEAST)
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
