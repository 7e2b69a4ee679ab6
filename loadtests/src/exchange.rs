//! One request as a client saw it. Times are seconds since the run began.

use serde::{Deserialize, Serialize};
use shared::slo::Slo;
use std::time::Duration;

/// Why there is no whole answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// No connection, or it broke before the status.
    Unreachable,
    /// 429 or 503: told to come back later.
    Refused,
    /// Any other status than 200.
    Status,
    /// An error event after the status.
    InStream,
    /// The stream ended without `[DONE]`.
    Cut,
    /// A stream without a word.
    Empty,
    /// Not a stream of events, or an event that isn't JSON.
    Malformed,
    /// The client's patience ended.
    TimedOut,
}

impl Failure {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Refused => "refused",
            Self::Status => "status",
            Self::InStream => "in stream",
            Self::Cut => "cut",
            Self::Empty => "empty",
            Self::Malformed => "malformed",
            Self::TimedOut => "timed out",
        }
    }
}

/// One request.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Exchange {
    /// When it was meant to be sent.
    pub intended_s: f64,
    /// When it was.
    pub sent_s: f64,
    /// When the first event with a choice came, whatever was in it.
    pub first_chunk_s: Option<f64>,
    /// When the first text came.
    pub first_token_s: Option<f64>,
    /// When the last choice came, else when it failed.
    pub end_s: f64,
    /// Tokens of its prompt, as the server counts.
    pub prompt_tokens: u32,
    /// Of these, found in a cache, where the server tells.
    pub cached_tokens: Option<u32>,
    /// Tokens of its answer: the server's count, else the number of events.
    pub answer_tokens: u32,
    /// Milliseconds between tokens; between events where the server doesn't count as it goes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps_ms: Vec<f32>,
    /// Gaps between events, and those of them without any time or read between.
    pub event_gaps: u32,
    /// See [`Exchange::event_gaps`].
    pub clumped_gaps: u32,
    /// Milliseconds that a gateway says it waited there.
    pub queue_ms: Option<f64>,
    /// Who answered, where a gateway tells.
    pub replica: Option<String>,
    /// Why it failed.
    pub failure: Option<Failure>,
    /// In the server's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl Exchange {
    /// Time to the first token, from when it was meant to be sent.
    pub fn ttft_ms(&self) -> Option<f64> {
        self.first_token_s.map(|first| (first - self.intended_s) * 1e3)
    }

    /// Mean time per later token, where there are any.
    pub fn tpot_ms(&self) -> Option<f64> {
        let later = self.answer_tokens.checked_sub(1).filter(|&later| later > 0)?;
        Some((self.end_s - self.first_token_s?) * 1e3 / f64::from(later))
    }

    /// From when it was meant to be sent to its end.
    pub fn e2e_ms(&self) -> f64 {
        (self.end_s - self.intended_s) * 1e3
    }

    /// How late this client was.
    pub fn lag_ms(&self) -> f64 {
        (self.sent_s - self.intended_s) * 1e3
    }

    /// Whether its answer is whole.
    pub fn is_answered(&self) -> bool {
        self.failure.is_none()
    }

    /// Whether it was answered within the SLO.
    pub fn is_good(&self, slo: Slo) -> bool {
        let time = |ms: f64| Duration::from_secs_f64(ms.max(0.0) / 1e3);
        self.is_answered()
            && self.ttft_ms().is_some_and(|ttft| slo.is_met(time(ttft), time(self.tpot_ms().unwrap_or(0.0))))
    }
}
