//! What sessions are like: chat, retrieval, agents, unrelated prompts, mixtures.

use std::time::Duration;

use rand::Rng;
use serde::{Deserialize, Serialize};

use super::{Segment, Turn};

/// A number drawn evenly from both ends, which may be equal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Range(pub u32, pub u32);

impl Range {
    fn draw(self, rng: &mut impl Rng) -> u32 {
        rng.random_range(self.0..=self.1.max(self.0))
    }
}

/// Kinds of sessions.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Kind {
    /// Conversations under one of several system prompts.
    Chat {
        /// Distinct system prompts.
        systems: u32,
        /// How unequal they are used: 0 evenly, 1 as words in a language.
        zipf: f64,
        /// Tokens of a system prompt.
        system_tokens: Range,
        /// Requests a session.
        turns: Range,
        /// Tokens a client writes.
        user_tokens: Range,
        /// Tokens of an answer.
        answer_tokens: Range,
        /// Milliseconds before the next request.
        think_ms: Range,
    },
    /// Questions about long shared documents.
    Rag {
        /// Distinct documents.
        documents: u32,
        /// How unequal they are asked about.
        zipf: f64,
        /// Tokens of a document.
        document_tokens: Range,
        /// Tokens of a question.
        question_tokens: Range,
        /// Tokens of an answer.
        answer_tokens: Range,
    },
    /// Loops that call tools: short thinking, transcripts that grow fast.
    Agents {
        /// Tokens of the instructions that all share.
        system_tokens: Range,
        /// Calls a session.
        turns: Range,
        /// Tokens a tool returns.
        tool_tokens: Range,
        /// Tokens of a call.
        answer_tokens: Range,
        /// Milliseconds a tool takes.
        tool_ms: Range,
    },
    /// Prompts that share nothing.
    Unrelated {
        /// Tokens of a prompt.
        prompt_tokens: Range,
        /// Tokens of an answer.
        answer_tokens: Range,
    },
    /// Several kinds, each with its share.
    Mixed(Vec<Part>),
}

/// One kind of a mixture.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Its share of the sessions, against the other parts' shares.
    pub share: f64,
    /// What it is like.
    pub kind: Kind,
}

/// Gives every new text an id of its own.
struct Ids(u64);

impl Ids {
    fn fresh(&mut self, tokens: u32) -> Segment {
        self.0 += 1;
        Segment { id: self.0, tokens }
    }
}

impl Kind {
    /// The turns of so many sessions.
    pub(super) fn turns(&self, sessions: u32, rng: &mut impl Rng) -> Vec<Vec<Turn>> {
        let mut ids = Ids(0);
        let mut maker = Maker::new(self, &mut ids, rng);
        (0..sessions).map(|_| maker.turns(&mut ids, rng)).collect()
    }
}

/// A kind with its shared texts.
enum Maker<'a> {
    Sessions { kind: &'a Kind, shared: Vec<Segment>, shares: Vec<f64> },
    Mixed { parts: Vec<Self>, shares: Vec<f64> },
}

impl<'a> Maker<'a> {
    fn new(kind: &'a Kind, ids: &mut Ids, rng: &mut impl Rng) -> Self {
        let (count, zipf, tokens) = match kind {
            Kind::Chat { systems, zipf, system_tokens, .. } => (*systems, *zipf, *system_tokens),
            Kind::Rag { documents, zipf, document_tokens, .. } => (*documents, *zipf, *document_tokens),
            Kind::Agents { system_tokens, .. } => (1, 0.0, *system_tokens),
            Kind::Unrelated { .. } => (0, 0.0, Range(0, 0)),
            Kind::Mixed(parts) => {
                let shares = running_sums(parts.iter().map(|part| part.share));
                let parts = parts.iter().map(|part| Self::new(&part.kind, ids, rng)).collect();
                return Self::Mixed { parts, shares };
            }
        };
        let shared = (0..count).map(|_| ids.fresh(tokens.draw(rng))).collect();
        let shares = running_sums((1..=count).map(|rank| f64::from(rank).powf(-zipf)));
        Self::Sessions { kind, shared, shares }
    }

    fn turns(&mut self, ids: &mut Ids, rng: &mut impl Rng) -> Vec<Turn> {
        match self {
            Self::Mixed { parts, shares } => parts[pick(shares, rng)].turns(ids, rng),
            Self::Sessions { kind, shared, shares } => {
                let start = if shared.is_empty() { None } else { Some(shared[pick(shares, rng)]) };
                session(kind, start, ids, rng)
            }
        }
    }
}

fn session(kind: &Kind, start: Option<Segment>, ids: &mut Ids, rng: &mut impl Rng) -> Vec<Turn> {
    let (turns, text_tokens, answer_tokens, think_ms) = match kind {
        Kind::Chat { turns, user_tokens, answer_tokens, think_ms, .. } => {
            (turns.draw(rng), *user_tokens, *answer_tokens, *think_ms)
        }
        Kind::Agents { turns, tool_tokens, answer_tokens, tool_ms, .. } => {
            (turns.draw(rng), *tool_tokens, *answer_tokens, *tool_ms)
        }
        Kind::Rag { question_tokens, answer_tokens, .. } => {
            (1, *question_tokens, *answer_tokens, Range(0, 0))
        }
        Kind::Unrelated { prompt_tokens, answer_tokens } => (1, *prompt_tokens, *answer_tokens, Range(0, 0)),
        Kind::Mixed(_) => unreachable!("a mixture makes sessions of its parts"),
    };
    let turn = |index: u32| Turn {
        text: start.filter(|_| index == 0).into_iter().chain([ids.fresh(text_tokens.draw(rng))]).collect(),
        answer_tokens: answer_tokens.draw(rng).max(1),
        think: Duration::from_millis(if index == 0 { 0 } else { think_ms.draw(rng).into() }),
    };
    (0..turns.max(1)).map(turn).collect()
}

fn running_sums(weights: impl Iterator<Item = f64>) -> Vec<f64> {
    let add = |sum: &mut f64, weight: f64| {
        *sum += weight;
        Some(*sum)
    };
    weights.scan(0.0, add).collect()
}

/// An index, drawn by weights of which these are the running sums.
fn pick(sums: &[f64], rng: &mut impl Rng) -> usize {
    let total = sums.last().copied().unwrap_or(0.0);
    let wanted = rng.random::<f64>() * total;
    sums.partition_point(|&sum| sum <= wanted).min(sums.len().saturating_sub(1))
}
