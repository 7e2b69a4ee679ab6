//! How one request's answer is spoken: the bytes that are the same on every chunk, and the form of each choice.

use std::sync::Arc;

use shared::wire::CONTINUATION_FIELD;

use super::answer::{Delta, Reason};
use super::options::Streaming;
use super::plan::{Plan, Shape};
use super::served::Served;
use super::usage::Usage;
use super::{json, logprobs, message};

/// Made once a request.
#[derive(Debug)]
pub struct Voice {
    shape: Shape,
    served: Arc<Served>,
    /// `{"id":…,"object":…,"created":…,"model":…,"choices":[`
    head: Vec<u8>,
    /// Best tokens told beside each of the answer's own, and of the prompt's; absent where none are told.
    logprobs: Option<u32>,
    prompt_logprobs: Option<u32>,
    /// Choices a prompt.
    n: usize,
    /// Where each choice's next token begins, in characters.
    offsets: Vec<usize>,
    streaming: Streaming,
    /// The seed, where each event tells its token ids: a gateway that asks for them can go on elsewhere.
    tells_ids: Option<u64>,
}

impl Voice {
    /// The voice of one request.
    pub fn new(plan: &Plan, served: &Arc<Served>, tells_ids: bool) -> Self {
        let streaming = plan.options.stream;
        let can_go_on = tells_ids && streaming.is_some() && plan.choices() == 1 && !plan.echo();
        Self {
            shape: plan.shape,
            served: served.clone(),
            head: head(plan),
            logprobs: plan.options.sampling.logprobs,
            prompt_logprobs: plan.options.prompt_logprobs,
            n: plan.options.n as usize,
            offsets: vec![0; plan.choices()],
            streaming: streaming.unwrap_or_default(),
            tells_ids: can_go_on.then_some(plan.options.sampling.seed),
        }
    }

    /// Appends the event that begins choice `index`; completions have none.
    pub fn write_begin(&self, out: &mut Vec<u8>, index: usize, usage: Usage) {
        if self.shape == Shape::Chat {
            self.open_event(out, index);
            out.extend_from_slice(b"\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null");
            write_finish(out, None);
            self.close_event(out, usage, &Delta::default());
        }
    }

    /// Appends the event of one delta.
    pub fn write_delta(&mut self, out: &mut Vec<u8>, index: usize, delta: &Delta, usage: Usage) {
        self.open_event(out, index);
        match self.shape {
            Shape::Chat => {
                out.extend_from_slice(b"\"delta\":");
                message::write_delta(out, &delta.piece);
            }
            Shape::Completion { .. } | Shape::Response => write_text(out, delta),
        }
        self.write_logprobs(out, index, delta);
        write_finish(out, delta.finish);
        self.close_event(out, usage, delta);
    }

    /// Appends the event with the usage and no choice, where one was asked for.
    pub fn write_usage(&self, out: &mut Vec<u8>, usage: Usage) {
        if self.streaming.include_usage {
            out.extend_from_slice(b"data: ");
            out.extend_from_slice(&self.head);
            out.extend_from_slice(b"],\"usage\":");
            json::write(out, &usage);
            out.extend_from_slice(b"}\n\n");
        }
    }

    /// The body of an answer that is told at once: one delta a choice, each with all its text.
    pub fn whole(&mut self, deltas: &[Delta], usage: Usage) -> Vec<u8> {
        let mut out = self.head.clone();
        for (index, delta) in deltas.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            write_index(&mut out, index);
            match self.shape {
                Shape::Chat => {
                    out.extend_from_slice(b"\"message\":");
                    message::write_whole(&mut out, &delta.piece);
                }
                Shape::Completion { .. } | Shape::Response => write_text(&mut out, delta),
            }
            self.write_logprobs(&mut out, index, delta);
            if self.shape != Shape::Chat {
                self.write_prompt(&mut out, &deltas[index - index % self.n]);
            }
            write_finish(&mut out, delta.finish);
        }
        out.push(b']');
        if self.shape == Shape::Chat {
            self.write_prompt(&mut out, &deltas[0]);
        }
        out.extend_from_slice(b",\"usage\":");
        json::write(&mut out, &usage);
        out.push(b'}');
        out
    }

    fn write_logprobs(&mut self, out: &mut Vec<u8>, index: usize, delta: &Delta) {
        out.extend_from_slice(b",\"logprobs\":");
        let tokenizer = &self.served.tokenizer;
        match (self.shape, self.logprobs) {
            (_, None) => out.extend_from_slice(b"null"),
            (Shape::Chat, _) => logprobs::write_chat(out, &delta.tokens, tokenizer),
            (Shape::Completion { .. } | Shape::Response, Some(top)) => {
                let offset = &mut self.offsets[index];
                logprobs::write_completion(out, &delta.tokens, top as usize, tokenizer, offset);
            }
        }
    }

    /// What was asked about the prompt; `first` is its first choice.
    fn write_prompt(&self, out: &mut Vec<u8>, first: &Delta) {
        if let Some(top) = self.prompt_logprobs {
            out.extend_from_slice(b",\"prompt_logprobs\":");
            logprobs::write_prompt(out, &first.prompt, top as usize, &self.served.tokenizer);
        }
    }

    fn open_event(&self, out: &mut Vec<u8>, index: usize) {
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(&self.head);
        write_index(out, index);
    }

    fn close_event(&self, out: &mut Vec<u8>, usage: Usage, delta: &Delta) {
        out.push(b']');
        if self.streaming.continuous_usage {
            out.extend_from_slice(b",\"usage\":");
            json::write(out, &usage);
        } else if self.streaming.include_usage {
            out.extend_from_slice(b",\"usage\":null");
        }
        if let Some(seed) = self.tells_ids {
            out.push(b',');
            json::write(out, CONTINUATION_FIELD);
            out.extend_from_slice(b":{\"seed\":");
            json::write(out, &seed);
            out.extend_from_slice(b",\"ids\":");
            json::write_list(out, &delta.tokens, |out, sampled| json::write(out, &sampled.token));
            out.push(b'}');
        }
        out.extend_from_slice(b"}\n\n");
    }
}

fn head(plan: &Plan) -> Vec<u8> {
    let (prefix, object) = match (plan.shape, plan.options.stream.is_some()) {
        (Shape::Chat, true) => ("chatcmpl", "chat.completion.chunk"),
        (Shape::Chat, false) => ("chatcmpl", "chat.completion"),
        (Shape::Completion { .. } | Shape::Response, _) => ("cmpl", "text_completion"),
    };
    let mut head = Vec::with_capacity(192);
    head.extend_from_slice(b"{\"id\":");
    json::write(&mut head, &format_args!("{prefix}-{}", uuid::Uuid::new_v4().simple()).to_string());
    head.extend_from_slice(b",\"object\":");
    json::write(&mut head, object);
    head.extend_from_slice(b",\"created\":");
    json::write(&mut head, &super::app::unix_time());
    head.extend_from_slice(b",\"model\":");
    json::write(&mut head, &plan.options.model);
    head.extend_from_slice(b",\"choices\":[");
    head
}

fn write_text(out: &mut Vec<u8>, delta: &Delta) {
    out.extend_from_slice(b"\"text\":");
    json::write(out, &delta.piece.text);
}

fn write_index(out: &mut Vec<u8>, index: usize) {
    out.extend_from_slice(b"{\"index\":");
    json::write(out, &index);
    out.push(b',');
}

fn write_finish(out: &mut Vec<u8>, finish: Option<Reason>) {
    out.extend_from_slice(b",\"finish_reason\":");
    json::write(out, &finish.map(Reason::word));
    out.push(b'}');
}
