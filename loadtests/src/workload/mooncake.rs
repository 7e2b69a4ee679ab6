//! Traces in Mooncake's format: one JSON object a line with `timestamp` (ms), `input_length`, `output_length`
//! and `hash_ids`, each of which names 512 tokens and everything before them.

use std::fmt;
use std::time::Duration;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::{Segment, Session, Turn};

/// Tokens that a hash id stands for.
const BLOCK_TOKENS: u32 = 512;

#[derive(Serialize, Deserialize)]
struct Line {
    timestamp: f64,
    input_length: u32,
    output_length: u32,
    hash_ids: Vec<u64>,
}

/// Why a trace can't be read.
#[derive(Debug)]
pub struct TraceError {
    line: usize,
    why: String,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

impl std::error::Error for TraceError {}

/// One session a line, in the order of their times.
pub fn read(text: &str) -> Result<Vec<Session>, TraceError> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let mut sessions = lines
        .map(|(index, line)| session(line).map_err(|why| TraceError { line: index + 1, why }))
        .collect::<Result<Vec<_>, _>>()?;
    sessions.sort_by_key(|session| session.start);
    Ok(sessions)
}

fn session(line: &str) -> Result<Session, String> {
    let line: Line = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let blocks = line.hash_ids.len() as u32;
    if blocks != line.input_length.div_ceil(BLOCK_TOKENS) || blocks == 0 {
        return Err(format!("input_length {} does not fit {blocks} hash_ids", line.input_length));
    }
    if !(line.timestamp.is_finite() && line.timestamp >= 0.0) {
        return Err(format!("timestamp {} is no time", line.timestamp));
    }
    let tokens = |index: usize| (line.input_length - index as u32 * BLOCK_TOKENS).min(BLOCK_TOKENS);
    let text = line.hash_ids.iter().enumerate().map(|(index, &id)| Segment { id, tokens: tokens(index) });
    let turn = Turn { text: text.collect(), answer_tokens: line.output_length.max(1), think: Duration::ZERO };
    Ok(Session { start: Duration::from_secs_f64(line.timestamp / 1000.0), turns: vec![turn] })
}

/// Writes sessions as a trace, in the order of their times. An answer counts as new text of the next prompt, and as
/// told at once: a trace has no think time.
pub fn write(sessions: &[Session]) -> String {
    let mut ids = FxHashMap::default();
    let mut lines: Vec<_> = sessions.iter().flat_map(|session| lines(session, &mut ids)).collect();
    lines.sort_by(|a, b| a.timestamp.total_cmp(&b.timestamp));
    let line = |line: &Line| serde_json::to_string(line).expect("numbers can be written");
    lines.iter().map(line).fold(String::new(), |text, line| text + &line + "\n")
}

/// A session's requests. `ids` names what each block of 512 tokens and all before it consist of.
fn lines(session: &Session, ids: &mut FxHashMap<Vec<(u64, u32)>, u64>) -> Vec<Line> {
    let mut prompt: Vec<(u64, u32)> = Vec::new();
    let mut at = session.start;
    let mut lines = Vec::new();
    for turn in &session.turns {
        at += turn.think;
        prompt.extend(turn.text.iter().map(|segment| (segment.id, segment.tokens)));
        let input_length = prompt.iter().map(|(_, tokens)| tokens).sum::<u32>();
        let hash_ids = (1..=input_length.div_ceil(BLOCK_TOKENS))
            .map(|block| {
                let next = ids.len() as u64;
                *ids.entry(head(&prompt, block * BLOCK_TOKENS)).or_insert(next)
            })
            .collect();
        let timestamp = at.as_secs_f64() * 1000.0;
        lines.push(Line { timestamp, input_length, output_length: turn.answer_tokens, hash_ids });
        // No segment has this id: what was answered is nobody else's prompt.
        let own = u64::MAX - ids.len() as u64;
        prompt.push((own, turn.answer_tokens));
    }
    lines
}

/// The segments that make up the first so many tokens.
fn head(prompt: &[(u64, u32)], tokens: u32) -> Vec<(u64, u32)> {
    let mut left = tokens;
    let mut head = Vec::new();
    for &(id, length) in prompt {
        head.push((id, length.min(left)));
        left -= length.min(left);
        if left == 0 {
            break;
        }
    }
    head
}
