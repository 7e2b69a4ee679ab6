//! `/v1/embeddings`: one vector a text, from the final hidden states of its tokens.

use std::sync::Arc;

use replica_core::sequence::{Finish, Timing, Wants};
use serde_json::Value;
use tokio::sync::mpsc;

use super::app::App;
use super::choices::refused;
use super::completion::prompts;
use super::fields::Fields;
use super::json;
use super::options::Options;
use super::plan::{Plan, Shape};
use super::record::{Origin, Record};
use super::respond::{Response, json_response};
use super::served::Served;
use super::usage::Usage;
use crate::engine::Events;
use crate::engine::command::Event;
use crate::error::Error;

/// A request that was understood.
#[derive(Debug)]
pub struct EmbeddingPlan {
    plan: Plan,
    pooling: Pooling,
    is_base64: bool,
}

/// How rows become one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pooling {
    /// The last token has seen all others.
    Last,
    Mean,
}

impl EmbeddingPlan {
    /// What all texts share.
    pub fn options(&mut self) -> &mut Options {
        &mut self.plan.options
    }
}

/// Understands a body.
pub fn plan(body: &Value, served: &Served) -> Result<EmbeddingPlan, Error> {
    let fields = Fields::of(body)?;
    if fields.get("dimensions").is_some() {
        return Err(fields.refuse("dimensions", "is not supported: this model's vectors have one length"));
    }
    let encodings = [("float", false), ("base64", true)];
    let is_base64 = fields.word("encoding_format", &encodings)?.unwrap_or(false);
    let poolings = [("last", Pooling::Last), ("mean", Pooling::Mean)];
    let pooling = fields.word("pooling", &poolings)?.unwrap_or(Pooling::Last);
    let mut options = Options::read(&fields, None, served)?;
    if options.prompt_logprobs.is_some() {
        return Err(fields.refuse("prompt_logprobs", "can't be used: nothing is drawn here"));
    }
    // A text has one vector, whatever a client of the other APIs sends along.
    options.n = 1;
    options.answer_tokens_max = Some((1, "input"));
    let prompts = prompts(&fields, "input", served)?;
    let plan =
        Plan::new(Shape::Completion { echo: false }, prompts, options, Wants::Hidden, served, "input")?;
    Ok(EmbeddingPlan { plan, pooling, is_base64 })
}

/// Runs all texts, then answers.
pub async fn embed(
    asked: EmbeddingPlan,
    origin: Origin,
    app: &Arc<App>,
    served: &Arc<Served>,
) -> Result<Response, Error> {
    let mut record = Record::new(app, origin);
    let origin = &record.origin;
    let mut running = Vec::with_capacity(asked.plan.prompts.len());
    for index in 0..asked.plan.prompts.len() {
        let request = asked.plan.request(index, app.next_sequence(), origin.arrived, origin.deadline);
        // A row of the prompt comes at most once.
        let (sender, events) = mpsc::channel(request.tokens.len() + 4);
        served.engine.submit(request, sender).map_err(|refusal| refused(refusal, app, served))?;
        running.push(served.engine.events(events));
    }
    record.outcome = "aborted";
    let mut vectors = Vec::with_capacity(running.len());
    for (events, prompt) in running.into_iter().zip(&asked.plan.prompts) {
        let (rows, timing) = rows(events).await.inspect_err(|_| record.outcome = "failed")?;
        if let Some((trace, timing)) = record.origin.trace.as_mut().zip(timing) {
            trace.add_sequence(timing, None);
        }
        vectors.push(pooled(&rows, prompt.tokens.len(), asked.pooling)?);
    }
    let prompt_tokens = asked.plan.prompts.iter().map(|prompt| prompt.tokens.len() as u32).sum();
    app.metrics.prompt_tokens.inc_by(u64::from(prompt_tokens));
    let usage = Usage { prompt_tokens, ..Usage::default() };
    if let Some(trace) = &mut record.origin.trace {
        trace.usage = usage;
    }
    record.complete(usage);
    Ok(json_response(http::StatusCode::OK, body(&asked, &vectors, usage)))
}

/// The hidden states of one text, and when it ran.
async fn rows(mut events: Events) -> Result<(Vec<f32>, Option<Timing>), Error> {
    let mut rows = Vec::new();
    let mut timing = None;
    while let Some(event) = events.next().await {
        match event {
            Event::Hidden(more) => rows.extend(more),
            Event::Finished(Finish::Failed(reason)) => return Err(Error::failed(reason)),
            Event::Finished(Finish::Expired) => return Err(Error::expired()),
            Event::Finished(Finish::Aborted) => return Err(Error::unavailable("ending")),
            Event::Finished(Finish::Stop(_) | Finish::Length) => return Ok((rows, timing)),
            Event::Started(started) => timing = Some(started),
            Event::Token(_) | Event::PromptLogprobs(_) => {}
        }
    }
    Err(Error::failed("the engine ended before the answer did"))
}

/// One vector of length 1.
fn pooled(rows: &[f32], count: usize, pooling: Pooling) -> Result<Vec<f32>, Error> {
    let width = rows.len() / count;
    if width == 0 || rows.len() != width * count {
        return Err(Error::failed("the model gave no hidden states"));
    }
    let mut vector = match pooling {
        Pooling::Last => rows[rows.len() - width..].to_vec(),
        Pooling::Mean => {
            let mut sum = vec![0.0; width];
            for row in rows.chunks_exact(width) {
                for (sum, value) in sum.iter_mut().zip(row) {
                    *sum += value;
                }
            }
            sum
        }
    };
    let norm = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    if norm > 0.0 {
        for value in &mut vector {
            *value /= norm;
        }
    }
    Ok(vector)
}

fn body(asked: &EmbeddingPlan, vectors: &[Vec<f32>], usage: Usage) -> Vec<u8> {
    let mut out = b"{\"object\":\"list\",\"data\":".to_vec();
    json::write_list(&mut out, vectors.iter().enumerate(), |out, (index, vector)| {
        out.extend_from_slice(b"{\"object\":\"embedding\",\"index\":");
        json::write(out, &index);
        out.extend_from_slice(b",\"embedding\":");
        if asked.is_base64 {
            let bytes: Vec<u8> = vector.iter().flat_map(|value| value.to_le_bytes()).collect();
            json::write(out, &base64(&bytes));
        } else {
            json::write(out, vector);
        }
        out.push(b'}');
    });
    out.extend_from_slice(b",\"model\":");
    json::write(&mut out, &asked.plan.options.model);
    out.extend_from_slice(b",\"usage\":");
    json::write(&mut out, &usage);
    out.push(b'}');
    out
}

/// Standard alphabet, padded: the official clients ask for it.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word =
            chunk.iter().enumerate().fold(0u32, |word, (at, &byte)| word | u32::from(byte) << (16 - 8 * at));
        for place in 0..4 {
            let letter = ALPHABET[(word >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_pooled_and_normalised() {
        let rows = [3.0, 0.0, 0.0, 4.0];
        assert_eq!(pooled(&rows, 2, Pooling::Last).unwrap(), [0.0, 1.0]);
        assert_eq!(pooled(&rows, 2, Pooling::Mean).unwrap(), [0.6, 0.8]);
        assert!(pooled(&[], 2, Pooling::Last).is_err());
    }

    #[test]
    fn base64_is_padded() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}
