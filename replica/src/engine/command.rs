//! What the server and the engine say to each other.

use std::fmt;

use replica_core::sampler::Sampled;
use replica_core::sequence::{Finish, Request, Timing};
use shared::id::SequenceId;
use tokio::sync::mpsc;

/// To the engine, through its bounded inbox.
#[derive(Debug)]
pub enum Command {
    /// A new sequence; what happens to it goes to `answer`. The channel is made with room for all it can
    /// ever carry (`answer_tokens_max` + 4), so the engine never waits for a slow client.
    Add {
        /// What to run.
        request: Box<Request>,
        /// Where its events go. A closed channel is a client that left: the sequence is aborted.
        answer: mpsc::Sender<Event>,
        /// Bounds what may be drawn.
        mask: Option<Mask>,
    },
    /// Stop this sequence (a stop string was found, say) and free its blocks; no more events come.
    Abort(SequenceId),
    /// Take nothing new, finish the rest, then end.
    Drain,
}

/// Bounds what one answer may be: called before each draw with the answer so far (tokens of an earlier attempt
/// included) and the logits, in which it sets what is not allowed to minus infinity. It runs on a thread that
/// computes: quick, and never waiting. An error ends the sequence.
pub struct Mask(pub Box<Masking>);

/// See [`Mask`].
pub type Masking = dyn FnMut(&[u32], &mut [f32]) -> Result<(), String> + Send;

impl fmt::Debug for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mask")
    }
}

/// From the engine to one answer.
#[derive(Debug)]
pub enum Event {
    /// Sent with the first token, before it.
    Started(Timing),
    /// The next token. The stop token that ends an answer is not sent.
    Token(Sampled),
    /// Log-probabilities of the prompt (`Wants::PromptLogprobs`), from its second token on.
    PromptLogprobs(Vec<Sampled>),
    /// Final hidden states of the prompt, row after row (`Wants::Hidden`).
    Hidden(Vec<f32>),
    /// The end; nothing follows.
    Finished(Finish),
}
