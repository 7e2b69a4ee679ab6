//! What clients do, from a seed: sessions of one or many turns whose prompts share text, and when they begin.
//!
//! A prompt is a list of segments: an id stands for a text, equal ids for equal text. So shared prefixes are
//! known exactly, and each clock makes of a segment what it needs: token ids in the simulation, words over
//! sockets. It sends nothing and measures nothing.

mod arrivals;
mod kinds;
mod mooncake;
mod sharegpt;
#[cfg(test)]
mod tests;

use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde::{Deserialize, Serialize};

pub use self::arrivals::{Arrivals, Shape};
pub use self::kinds::{Kind, Part, Range};
pub use self::mooncake::{TraceError, read as read_mooncake, write as write_mooncake};
pub use self::sharegpt::read as read_sharegpt;

/// A text of so many tokens; equal ids are equal texts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Which text.
    pub id: u64,
    /// Its length.
    pub tokens: u32,
}

/// One request of a session: what is new in it. The turns before it and their answers come first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Turn {
    /// The new text.
    pub text: Vec<Segment>,
    /// Tokens of the answer.
    pub answer_tokens: u32,
    /// From the end of the answer before (or the start of the session) to this request.
    pub think: Duration,
}

/// A client's conversation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Session {
    /// When it begins.
    pub start: Duration,
    /// Its turns, at least one.
    pub turns: Vec<Turn>,
}

/// A workload as a scenario file names it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// How many sessions.
    pub sessions: u32,
    /// When they begin.
    pub arrivals: Arrivals,
    /// What they are like.
    pub kind: Kind,
}

impl Workload {
    /// All sessions, in the order in which they begin. The same seed gives the same.
    pub fn sessions(&self, seed: u64) -> Vec<Session> {
        let mut rng = SmallRng::seed_from_u64(seed);
        let starts = self.arrivals.starts(self.sessions, &mut rng);
        let turns = self.kind.turns(self.sessions, &mut rng);
        starts.into_iter().zip(turns).map(|(start, turns)| Session { start, turns }).collect()
    }

    /// The same, but that starts have chance of their own: what is asked is the same whatever the arrivals.
    pub fn sessions_apart(&self, seed: u64) -> Vec<Session> {
        let mut sessions = Self { arrivals: Arrivals::AT_ONCE, ..self.clone() }.sessions(seed);
        let starts = self.arrivals.starts_of_seed(self.sessions, seed);
        for (session, start) in sessions.iter_mut().zip(starts) {
            session.start = start;
        }
        sessions
    }
}
