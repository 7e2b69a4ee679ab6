//! Traces in Mooncake's format: one JSON object a line with `timestamp` (ms), `input_length`, `output_length`
//! and `hash_ids`, each of which names 512 tokens and everything before them.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;

use super::{Segment, Session, Turn};

/// Tokens that a hash id stands for.
const BLOCK_TOKENS: u32 = 512;

#[derive(Deserialize)]
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
