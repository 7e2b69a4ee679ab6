//! The channels that events leave by, one a sequence.
//!
//! Sends never wait: a channel has room for everything its sequence can say, so a full one is a broken
//! promise of the server's and reads like a closed one, a client that left.

use std::collections::BTreeMap;
use std::sync::Mutex;

use replica_core::sampler::Sampled;
use replica_core::scheduler;
use replica_core::sequence::{Finish, Request, Wants};
use shared::id::SequenceId;
use tokio::sync::mpsc::Sender;

use super::command::{Event, Mask};

/// Everyone who waits for events.
#[derive(Debug, Default)]
pub struct Answers {
    open: BTreeMap<SequenceId, Answer>,
}

#[derive(Debug)]
struct Answer {
    events: Sender<Event>,
    prompt: Option<Prompt>,
    /// Locked by the one thread that draws for this sequence.
    mask: Option<Mutex<Mask>>,
}

/// What a request wants to know of its own prompt, gathered chunk by chunk.
#[derive(Debug, Default)]
struct Prompt {
    tokens: Vec<u32>,
    /// Best tokens to tell beside each.
    top: u32,
    scores: Vec<Sampled>,
    /// Rows of hidden state so far, and the numbers in them.
    hidden_rows: usize,
    hidden: Vec<f32>,
}

/// What the next prompt logprob is about.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// The token that came next in the prompt.
    pub token: u32,
    /// Best tokens to tell beside it.
    pub top: u32,
}

impl Answers {
    /// Opens the channel of a request.
    pub fn open(&mut self, request: &Request, events: Sender<Event>, mask: Option<Mask>) {
        let top = match request.wants {
            Wants::Tokens => None,
            Wants::PromptLogprobs(top) => Some(top),
            Wants::Hidden => Some(0),
        };
        let prompt = top.map(|top| Prompt { tokens: request.tokens.clone(), top, ..Prompt::default() });
        self.open.insert(request.id, Answer { events, prompt, mask: mask.map(Mutex::new) });
    }

    /// Forgets a sequence without a word. Whether it was there.
    pub fn close(&mut self, id: SequenceId) -> bool {
        self.open.remove(&id).is_some()
    }

    /// Sequences whose client has left.
    pub fn abandoned(&self) -> impl Iterator<Item = SequenceId> {
        self.open.iter().filter(|(_, answer)| answer.events.is_closed()).map(|(&id, _)| id)
    }

    /// Passes an event on. Whether it was the sequence's last.
    pub fn publish(&mut self, id: SequenceId, event: scheduler::Event) -> bool {
        let event = match event {
            scheduler::Event::Started(timing) => {
                self.send_prompt(id);
                Event::Started(timing)
            }
            scheduler::Event::Token(sampled) => Event::Token(sampled),
            scheduler::Event::Preempted => return false,
            scheduler::Event::Finished(finish) => {
                self.finish(id, finish);
                return true;
            }
        };
        self.send(id, event);
        false
    }

    /// Ends an answer.
    pub fn finish(&mut self, id: SequenceId, finish: Finish) {
        if matches!(finish, Finish::Stop(_) | Finish::Length) {
            self.send_prompt(id);
        }
        self.send(id, Event::Finished(finish));
        self.close(id);
    }

    /// Ends every answer the same way.
    pub fn finish_all(&mut self, finish: &Finish) {
        while let Some((&id, _)) = self.open.first_key_value() {
            self.finish(id, finish.clone());
        }
    }

    /// The question about the prompt that the logits at `position` answer; `None` where it has its answer
    /// already (the row is computed anew after a preemption) or the prompt ends there.
    pub fn asked_at(&self, id: SequenceId, position: u32) -> Option<Asked> {
        let prompt = self.open.get(&id)?.prompt.as_ref()?;
        let next = position as usize >= prompt.scores.len();
        let token = next.then(|| prompt.tokens.get(position as usize + 1)).flatten();
        token.map(|&token| Asked { token, top: prompt.top })
    }

    /// Bans what a sequence's mask does not allow after the answer so far.
    ///
    /// # Errors
    ///
    /// The mask's own words.
    pub fn mask(&self, id: SequenceId, answer: &[u32], logits: &mut [f32]) -> Result<(), String> {
        let Some(mask) = self.open.get(&id).and_then(|answer| answer.mask.as_ref()) else { return Ok(()) };
        let mut mask = mask.lock().map_err(|_| "the mask panicked before".to_owned())?;
        (mask.0)(answer, logits)
    }

    /// The answer to [`Answers::asked_at`].
    pub fn add_score(&mut self, id: SequenceId, score: Sampled) {
        if let Some(prompt) = self.prompt(id) {
            prompt.scores.push(score);
        }
    }

    /// A row of hidden state; rows that are already there are dropped.
    pub fn add_hidden(&mut self, id: SequenceId, position: u32, row: &[f32]) {
        let Some(prompt) = self.prompt(id) else { return };
        if prompt.hidden_rows == position as usize {
            prompt.hidden.extend_from_slice(row);
            prompt.hidden_rows += 1;
        }
    }

    fn prompt(&mut self, id: SequenceId) -> Option<&mut Prompt> {
        self.open.get_mut(&id)?.prompt.as_mut()
    }

    /// Tells what was gathered about the prompt, once.
    fn send_prompt(&mut self, id: SequenceId) {
        let Some(prompt) = self.open.get_mut(&id).and_then(|answer| answer.prompt.take()) else { return };
        if !prompt.scores.is_empty() {
            self.send(id, Event::PromptLogprobs(prompt.scores));
        }
        if !prompt.hidden.is_empty() {
            self.send(id, Event::Hidden(prompt.hidden));
        }
    }

    fn send(&mut self, id: SequenceId, event: Event) {
        let Some(answer) = self.open.get_mut(&id) else { return };
        if answer.events.try_send(event).is_err() {
            // Nothing can reach this client any more: the next sweep finds the channel closed.
            let (closed, _) = tokio::sync::mpsc::channel(1);
            answer.events = closed;
        }
    }
}
