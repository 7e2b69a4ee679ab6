//! One choice on its way out: events of the engine become text that may be shown.
//!
//! Text is decoded as tokens come, held back while it may be half a character or the start of a stop string, and
//! given out with the tokens it was made from. Dropping an answer drops its channel, which aborts the sequence.

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use replica_core::sampler::Sampled;
use replica_core::sequence::{Finish, Timing};
use shared::id::SequenceId;

use super::content::{Content, Piece};
use super::served::Served;
use super::stop::StopStrings;
use super::tokenizer::Decoder;
use crate::engine::Events;
use crate::engine::command::Event;
use crate::error::Error;
use crate::telemetry::metrics::{ChoiceRecord, Metrics};

/// Why a choice ended, in OpenAI's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// A stop token or a stop string.
    Stop,
    /// As many tokens as it may have.
    Length,
    /// Tools are called.
    ToolCalls,
}

impl Reason {
    /// The word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ToolCalls => "tool_calls",
        }
    }
}

/// What has become ready to show since the last one.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Delta {
    /// More of the answer.
    pub piece: Piece,
    /// The tokens since the last delta. A token may be told before all of its text is.
    pub tokens: Vec<Sampled>,
    /// Of the prompt's tokens from the second on, once, where they were asked for.
    pub prompt: Vec<Sampled>,
    /// Set on the last one.
    pub finish: Option<Reason>,
}

impl Delta {
    fn is_empty(&self) -> bool {
        self.piece.is_empty() && self.finish.is_none()
    }
}

/// One choice.
#[derive(Debug)]
pub struct Answer {
    id: SequenceId,
    served: Arc<Served>,
    metrics: Arc<Metrics>,
    events: Events,
    decoder: Decoder,
    stops: StopStrings,
    content: Content,
    pending: Delta,
    arrival: Instant,
    first_token: Option<Instant>,
    last_token: Option<Instant>,
    timing: Option<Timing>,
    prompt_tokens: u32,
    tokens: u32,
    thought_tokens: u32,
    /// Whether its prompt counts in totals: only the first choice of a prompt's does.
    counts_prompt: bool,
    /// Whether the prompt's tokens are told before its own.
    echoes: bool,
    is_over: bool,
}

/// How one choice is told from the others of its request.
#[derive(Debug)]
pub struct Start {
    /// The sequence it shows.
    pub id: SequenceId,
    /// The sequence's events.
    pub events: Events,
    /// When the request came.
    pub arrival: Instant,
    /// Tokens of its prompt.
    pub prompt_tokens: u32,
    /// See [`Answer`].
    pub counts_prompt: bool,
    /// The prompt, where it is shown before the answer.
    pub echo: Option<Echo>,
    /// Texts that end it.
    pub stops: StopStrings,
    /// How it is read.
    pub content: Content,
    /// Whether control tokens are left out of the text.
    pub skip_special: bool,
}

/// A prompt to show before its answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Echo {
    /// Its text.
    pub text: String,
    /// Its first token, which has no log-probability.
    pub first_token: u32,
}

impl Answer {
    /// An answer of which nothing has come yet.
    pub fn new(start: Start, served: Arc<Served>, metrics: Arc<Metrics>) -> Self {
        let mut pending = Delta::default();
        let echoes = start.echo.is_some();
        if let Some(echo) = start.echo {
            pending.piece.text = echo.text;
            pending.tokens.push(Sampled::unscored(echo.first_token));
        }
        Self {
            id: start.id,
            decoder: served.tokenizer.decoder(start.skip_special),
            served,
            metrics,
            events: start.events,
            stops: start.stops,
            content: start.content,
            pending,
            arrival: start.arrival,
            first_token: None,
            last_token: None,
            timing: None,
            prompt_tokens: start.prompt_tokens,
            tokens: 0,
            thought_tokens: 0,
            counts_prompt: start.counts_prompt,
            echoes,
            is_over: false,
        }
    }

    /// Takes tokens that another replica gave: what they show has been shown.
    pub fn resume(&mut self, tokens: &[u32]) {
        if tokens.is_empty() {
            return;
        }
        for &token in tokens {
            self.show(token);
        }
        self.tokens = tokens.len() as u32;
        self.pending = Delta::default();
    }

    /// The next delta; `None` after the last.
    ///
    /// # Errors
    ///
    /// What ended the sequence; it is the last then.
    pub fn poll_delta(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Delta, Error>>> {
        while !self.is_over {
            let event = ready!(self.events.poll_next(context));
            if let Err(error) = self.take(event) {
                self.end("abort");
                return Poll::Ready(Some(Err(error)));
            }
            if !self.pending.is_empty() {
                return Poll::Ready(Some(Ok(std::mem::take(&mut self.pending))));
            }
        }
        Poll::Ready(None)
    }

    /// Tokens of the prompt that count in the request's total.
    pub fn prompt_tokens(&self) -> u32 {
        if self.counts_prompt { self.prompt_tokens } else { 0 }
    }

    /// Of those, the ones found in the cache.
    pub fn cached_tokens(&self) -> u32 {
        if self.counts_prompt { self.timing.map_or(0, |timing| timing.cached_tokens) } else { 0 }
    }

    /// Tokens generated so far, the one that ended the answer too.
    pub fn answer_tokens(&self) -> u32 {
        self.tokens
    }

    /// Of those, the ones inside its thoughts: a marker that is one token is not among them.
    pub fn thought_tokens(&self) -> u32 {
        self.thought_tokens
    }

    /// When it ran, once its first token has come.
    pub fn timing(&self) -> Option<Timing> {
        self.timing
    }

    /// When its last token so far came.
    pub fn last_token(&self) -> Option<Instant> {
        self.last_token
    }

    fn take(&mut self, event: Option<Event>) -> Result<(), Error> {
        match event {
            Some(Event::Started(timing)) => self.start(timing),
            Some(Event::Token(sampled)) => self.token(sampled),
            Some(Event::PromptLogprobs(prompt)) => {
                if self.echoes {
                    self.pending.tokens.extend_from_slice(&prompt);
                }
                self.pending.prompt = prompt;
            }
            // Only asked for by embeddings, which have no answer.
            Some(Event::Hidden(_)) => {}
            Some(Event::Finished(Finish::Stop(_))) => {
                self.count_token();
                self.finish(Reason::Stop);
            }
            Some(Event::Finished(Finish::Length)) => self.finish(Reason::Length),
            Some(Event::Finished(Finish::Expired)) => return Err(Error::expired()),
            Some(Event::Finished(Finish::Failed(reason))) => return Err(Error::failed(reason)),
            Some(Event::Finished(Finish::Aborted)) => return Err(Error::unavailable("ending")),
            None => return Err(Error::failed("the engine ended before the answer did")),
        }
        Ok(())
    }

    fn start(&mut self, timing: Timing) {
        self.timing = Some(timing);
        self.metrics.count_first_token(timing, self.arrival.elapsed());
        self.metrics.prompt_tokens.inc_by(self.prompt_tokens().into());
    }

    fn token(&mut self, sampled: Sampled) {
        self.count_token();
        let is_stopped = self.show(sampled.token);
        self.pending.tokens.push(sampled);
        if is_stopped || self.content.is_over() {
            self.served.engine.abort(self.id);
            self.close(Reason::Stop);
        }
    }

    /// Shows what a token completes. True when a stop string has come.
    fn show(&mut self, token: u32) -> bool {
        let text = self.decoder.push(&self.served.tokenizer, token);
        let mut shown = String::new();
        let is_stopped = self.stops.push(&text, &mut shown);
        let was_thinking = self.content.is_thinking();
        self.content.push(&shown, &mut self.pending.piece);
        self.thought_tokens += u32::from(was_thinking && self.content.is_thinking());
        is_stopped
    }

    fn count_token(&mut self) {
        let now = Instant::now();
        match self.last_token.replace(now) {
            Some(last) => self.metrics.count_gap(now - last),
            None => self.first_token = Some(now),
        }
        self.tokens += 1;
        self.metrics.generation_tokens.inc();
    }

    fn finish(&mut self, reason: Reason) {
        let rest = self.decoder.finish();
        let mut shown = String::new();
        if !self.stops.push(&rest, &mut shown) {
            self.stops.flush(&mut shown);
        }
        self.content.push(&shown, &mut self.pending.piece);
        self.close(reason);
    }

    fn close(&mut self, reason: Reason) {
        let is_calls = self.content.finish(&mut self.pending.piece);
        let reason = if is_calls && reason == Reason::Stop { Reason::ToolCalls } else { reason };
        self.pending.finish = Some(reason);
        self.end(reason.word());
    }

    fn end(&mut self, reason: &'static str) {
        if self.is_over {
            return;
        }
        self.is_over = true;
        let decode = self.first_token.zip(self.last_token).map(|(first, last)| last - first);
        self.metrics.count_choice(ChoiceRecord {
            reason,
            timing: self.timing,
            e2e: self.arrival.elapsed(),
            decode: decode.unwrap_or_default(),
            prompt_tokens: self.prompt_tokens,
            answer_tokens: self.tokens,
        });
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.end("abort");
    }
}
