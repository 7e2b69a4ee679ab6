//! An answer's bytes, whichever API asked for it.

use std::sync::Arc;

use super::answer::Delta;
use super::plan::{Plan, Shape};
use super::responses::ResponseVoice;
use super::served::Served;
use super::usage::Usage;
use super::voice::Voice;
use crate::error::Error;

/// One of the voices.
#[derive(Debug)]
pub enum Speech {
    /// Chat and completions: chunks, then `[DONE]`.
    Chunks(Voice),
    /// Responses: named events.
    Response(Box<ResponseVoice>),
}

impl Speech {
    /// The voice of one request.
    pub fn new(plan: &Plan, served: &Arc<Served>, tells_ids: bool) -> Self {
        match plan.shape {
            Shape::Response => Self::Response(Box::new(ResponseVoice::new(plan))),
            _ => Self::Chunks(Voice::new(plan, served, tells_ids)),
        }
    }

    /// Appends what begins choice `index`.
    pub fn write_begin(&mut self, out: &mut Vec<u8>, index: usize, usage: Usage) {
        match self {
            Self::Chunks(voice) => voice.write_begin(out, index, usage),
            Self::Response(voice) => voice.write_begin(out),
        }
    }

    /// Appends one delta.
    pub fn write_delta(&mut self, out: &mut Vec<u8>, index: usize, delta: &Delta, usage: Usage) {
        match self {
            Self::Chunks(voice) => voice.write_delta(out, index, delta, usage),
            Self::Response(voice) => voice.write_delta(out, delta),
        }
    }

    /// Appends the end.
    pub fn write_end(&mut self, out: &mut Vec<u8>, usage: Usage) {
        match self {
            Self::Chunks(voice) => {
                voice.write_usage(out, usage);
                out.extend_from_slice(b"data: [DONE]\n\n");
            }
            Self::Response(voice) => voice.write_end(out, usage),
        }
    }

    /// Appends an error; nothing follows it.
    pub fn write_error(&mut self, out: &mut Vec<u8>, error: &Error) {
        match self {
            Self::Chunks(_) => {
                out.extend_from_slice(b"data: ");
                out.extend_from_slice(&error.body.to_json());
                out.extend_from_slice(b"\n\n");
            }
            Self::Response(voice) => voice.write_error(out, error),
        }
    }

    /// The body of an answer that is told at once: one delta a choice.
    pub fn whole(&mut self, mut deltas: Vec<Delta>, usage: Usage) -> Vec<u8> {
        match self {
            Self::Chunks(voice) => voice.whole(&deltas, usage),
            Self::Response(voice) => voice.whole(deltas.swap_remove(0), usage),
        }
    }
}
