//! What chat and completions have in common: how tokens are drawn and when an answer ends.

use replica_core::sampler::Sampling;
use serde_json::Value;

use super::continuation::Continuation;
use super::fields::{Fields, integer, item, wrong};
use super::served::Served;
use crate::error::Error;

/// Choices one request may ask for, over all its prompts.
pub const CHOICES_MAX: u32 = 128;
const STOP_STRINGS_MAX: usize = 16;
const STRING_BYTES_MAX: usize = 1024;
const STOP_TOKENS_MAX: usize = 64;
/// Best tokens a request may ask to see.
pub const TOP_LOGPROBS_MAX: u32 = 20;
const BAD_WORDS_MAX: usize = 128;

/// The common fields, checked.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name the client used.
    pub model: String,
    /// Present for an answer in events.
    pub stream: Option<Streaming>,
    /// Choices a prompt.
    pub n: u32,
    /// How tokens are drawn; the seed is that of the first choice.
    pub sampling: Sampling,
    /// Best tokens to tell beside each of the prompt's own, where those are to be told.
    pub prompt_logprobs: Option<u32>,
    /// Most answer tokens; absent for as many as fit. The second is the field that said so.
    pub answer_tokens_max: Option<(u32, &'static str)>,
    /// Fewest answer tokens.
    pub answer_tokens_min: u32,
    /// Tokens that end the answer.
    pub stop_tokens: Vec<u32>,
    /// Texts that end it.
    pub stop_strings: Vec<String>,
    /// Whether the text that ended it is shown.
    pub include_stop: bool,
    /// Whether special tokens are left out of the text.
    pub skip_special: bool,
    /// Keeps this request's prefix apart from others'.
    pub cache_salt: String,
    /// Lower runs first.
    pub priority: i32,
    /// The beginning of the answer, where another replica gave it.
    pub continuation: Option<Continuation>,
}

/// How a stream tells of usage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Streaming {
    /// One more chunk with the usage, before `[DONE]`.
    pub include_usage: bool,
    /// The usage so far on every chunk.
    pub continuous_usage: bool,
}

impl Options {
    /// Reads the common fields. `logprobs` differs between the two APIs: it comes from the caller.
    pub fn read(fields: &Fields<'_>, logprobs: Option<u32>, served: &Served) -> Result<Self, Error> {
        refuse_unfinished(fields)?;
        let continuation = Continuation::read(fields, served.vocab_tokens)?;
        let mut sampling = Sampling { logprobs, ..sampling(fields, served)? };
        if let Some(begun) = &continuation {
            sampling.seed = begun.seed;
        }
        let stream = streaming(fields)?;
        let prompt_logprobs = prompt_logprobs(fields, stream.is_some(), continuation.is_some())?;
        let ignore_eos = fields.boolean("ignore_eos")?.unwrap_or(false);
        let mut stop_tokens = if ignore_eos { Vec::new() } else { served.end_tokens.clone() };
        stop_tokens.extend(stop_token_ids(fields, served.vocab_tokens)?);
        Ok(Self {
            model: served.requested_model(fields)?,
            stream,
            n: choices(fields)?,
            sampling,
            prompt_logprobs,
            answer_tokens_max: answer_tokens_max(fields)?,
            answer_tokens_min: fields.count("min_tokens", 0..=i32::MAX as u32)?.unwrap_or(0),
            stop_tokens,
            stop_strings: stop_strings(fields)?,
            include_stop: fields.boolean("include_stop_str_in_output")?.unwrap_or(false),
            skip_special: fields.boolean("skip_special_tokens")?.unwrap_or(true),
            cache_salt: fields.string("cache_salt")?.unwrap_or_default().to_owned(),
            priority: fields.integer("priority", i64::from(i32::MIN)..=i64::from(i32::MAX))?.unwrap_or(0)
                as i32,
            continuation,
        })
    }
}

/// Fields that would change the answer and aren't done: refused, never ignored.
fn refuse_unfinished(fields: &Fields<'_>) -> Result<(), Error> {
    for name in ["lora_request", "audio", "logits_processors"] {
        if fields.get(name).is_some_and(|value| value.as_array().is_none_or(|items| !items.is_empty())) {
            return Err(fields.refuse(name, "is not supported"));
        }
    }
    if fields.boolean("use_beam_search")?.unwrap_or(false) {
        return Err(fields.refuse("use_beam_search", "is not supported"));
    }
    Ok(())
}

/// Told with a whole answer alone: events have no place for them, and a continuation's prompt ran elsewhere.
fn prompt_logprobs(fields: &Fields<'_>, is_stream: bool, goes_on: bool) -> Result<Option<u32>, Error> {
    match fields.count("prompt_logprobs", 0..=TOP_LOGPROBS_MAX)? {
        Some(_) if is_stream => Err(fields.refuse("prompt_logprobs", "can't be used when stream is true")),
        Some(_) if goes_on => Err(fields.refuse("prompt_logprobs", "can't be used where an answer goes on")),
        top => Ok(top),
    }
}

fn streaming(fields: &Fields<'_>) -> Result<Option<Streaming>, Error> {
    let stream = fields.boolean("stream")?.unwrap_or(false);
    let Some(options) = fields.object("stream_options")? else {
        return Ok(stream.then(Streaming::default));
    };
    if !stream {
        return Err(fields.refuse("stream_options", "is only allowed when stream is true"));
    }
    Ok(Some(Streaming {
        include_usage: options.boolean("include_usage")?.unwrap_or(false),
        continuous_usage: options.boolean("continuous_usage_stats")?.unwrap_or(false),
    }))
}

fn choices(fields: &Fields<'_>) -> Result<u32, Error> {
    let n = fields.count("n", 1..=CHOICES_MAX)?.unwrap_or(1);
    match fields.count("best_of", 1..=CHOICES_MAX)? {
        Some(best_of) if best_of != n => {
            Err(fields.refuse("best_of", "must equal n: nothing is ranked here"))
        }
        _ => Ok(n),
    }
}

fn sampling(fields: &Fields<'_>, served: &Served) -> Result<Sampling, Error> {
    let model = &served.generation;
    // -1 and 0 both keep all tokens.
    let top_k = fields.integer("top_k", -1..=i64::from(u32::MAX))?.map(|top_k| top_k.max(0) as u32);
    let repetition =
        fields.number("repetition_penalty", 0.0..=10.0)?.or(model.repetition_penalty).unwrap_or(1.0);
    if repetition <= 0.0 {
        return Err(fields.refuse("repetition_penalty", "must be more than 0"));
    }
    let seed = fields.integer("seed", i64::MIN..=i64::MAX)?.map(|seed| seed as u64);
    Ok(Sampling {
        temperature: fields.number("temperature", 0.0..=2.0)?.or(model.temperature).unwrap_or(1.0),
        top_p: fields.number("top_p", 0.0..=1.0)?.or(model.top_p).unwrap_or(1.0),
        top_k: top_k.or(model.top_k).unwrap_or(0),
        min_p: fields.number("min_p", 0.0..=1.0)?.or(model.min_p).unwrap_or(0.0),
        presence_penalty: fields.number("presence_penalty", -2.0..=2.0)?.unwrap_or(0.0),
        frequency_penalty: fields.number("frequency_penalty", -2.0..=2.0)?.unwrap_or(0.0),
        repetition_penalty: repetition,
        logit_bias: logit_bias(fields, served.vocab_tokens)?,
        bad_words: bad_words(fields, served)?,
        seed: seed.or(served.seed).unwrap_or_else(rand::random),
        logprobs: None,
    })
}

fn logit_bias(fields: &Fields<'_>, vocab_tokens: u32) -> Result<Vec<(u32, f32)>, Error> {
    let Some(biases) = fields.object("logit_bias")? else { return Ok(Vec::new()) };
    let mut read = Vec::with_capacity(biases.map().len());
    for name in biases.map().keys() {
        let token = name.parse().ok().filter(|token| *token < vocab_tokens);
        let token = token.ok_or_else(|| {
            fields.refuse(
                "logit_bias",
                &format!("has a key that is no token id from 0 to {}", vocab_tokens - 1),
            )
        })?;
        let bias = biases.number(name, -100.0..=100.0)?.unwrap_or(0.0);
        read.push((token, bias));
    }
    Ok(read)
}

/// Each word as its tokens, at the start of a text and after a space.
fn bad_words(fields: &Fields<'_>, served: &Served) -> Result<Vec<Vec<u32>>, Error> {
    let words = strings(fields, "bad_words", BAD_WORDS_MAX)?;
    let spellings = words.iter().flat_map(|word| [word.clone(), format!(" {}", word.trim_start())]);
    let tokens = spellings.map(|spelling| served.tokenizer.encode(&spelling, false));
    tokens.collect::<Result<_, _>>().map_err(|error| fields.refuse("bad_words", &error.to_string()))
}

fn answer_tokens_max(fields: &Fields<'_>) -> Result<Option<(u32, &'static str)>, Error> {
    // The upper end is checked against the context, whose message says more.
    let read = |name: &'static str| -> Result<Option<(u32, &'static str)>, Error> {
        let count = fields.integer(name, 1..=i64::MAX)?;
        Ok(count.map(|count| (u32::try_from(count).unwrap_or(u32::MAX), name)))
    };
    match (read("max_tokens")?, read("max_completion_tokens")?) {
        (Some(old), Some(new)) if old.0 != new.0 => {
            Err(fields.refuse("max_tokens", "contradicts max_completion_tokens; send one of them"))
        }
        (old, new) => Ok(new.or(old)),
    }
}

fn stop_token_ids(fields: &Fields<'_>, vocab_tokens: u32) -> Result<Vec<u32>, Error> {
    let ids = fields.array("stop_token_ids")?.unwrap_or_default();
    if ids.len() > STOP_TOKENS_MAX {
        return Err(fields.refuse("stop_token_ids", &format!("may hold at most {STOP_TOKENS_MAX} tokens")));
    }
    token_ids(ids, &fields.path("stop_token_ids"), vocab_tokens)
}

/// An array of token ids.
pub fn token_ids(ids: &[Value], path: &str, vocab_tokens: u32) -> Result<Vec<u32>, Error> {
    let last = i64::from(vocab_tokens) - 1;
    ids.iter()
        .enumerate()
        .map(|(at, id)| integer(id, &item(path, at), 0..=last).map(|id| id as u32))
        .collect()
}

fn stop_strings(fields: &Fields<'_>) -> Result<Vec<String>, Error> {
    strings(fields, "stop", STOP_STRINGS_MAX)
}

/// One string or several, none of them empty or huge.
fn strings(fields: &Fields<'_>, name: &str, count_max: usize) -> Result<Vec<String>, Error> {
    let path = fields.path(name);
    let strings = match fields.get(name) {
        None => return Ok(Vec::new()),
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(several)) => {
            let text = |(at, one): (usize, &Value)| match one {
                Value::String(one) => Ok(one.clone()),
                other => Err(wrong(&item(&path, at), "a string", other)),
            };
            several.iter().enumerate().map(text).collect::<Result<_, _>>()?
        }
        Some(other) => return Err(wrong(&path, "a string or an array of strings", other)),
    };
    if strings.len() > count_max {
        return Err(fields.refuse(name, &format!("may hold at most {count_max} strings")));
    }
    if strings.iter().any(|one| one.is_empty() || one.len() > STRING_BYTES_MAX) {
        return Err(fields.refuse(name, &format!("needs strings of 1 to {STRING_BYTES_MAX} bytes")));
    }
    Ok(strings)
}
