//! Watches an answer go by: first token, last token, usage, how it ended.
//!
//! Bytes are copied only where a read cut a line, and JSON is parsed only where a usage object stands.

use memchr::memmem;
use prometheus::local::LocalHistogram;
use std::time::Instant;

/// Longest cut line that is held back; of a longer one the parts pass as they come.
const LINE_BYTES_MAX: usize = 256 * 1024;
/// The end of a plain answer that is kept, in which its usage stands.
const TAIL_BYTES: usize = 4 * 1024;

/// Token counts as the replica gave them; absent is unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: Option<u32>,
    /// Tokens of the answer.
    pub completion_tokens: Option<u32>,
    /// Prompt tokens that were cached.
    pub cached_tokens: Option<u32>,
}

/// Holds back the line that a read cut, so that a replica which dies in mid-line leaves no half event at the client.
#[derive(Debug, Default)]
pub struct Lines {
    held: Vec<u8>,
    /// Bytes of `held` that the last call gave out.
    given: usize,
}

impl Lines {
    /// Takes the next bytes and gives what forms whole lines; nothing is copied unless a line was cut.
    pub fn push<'a>(&'a mut self, bytes: &'a [u8]) -> &'a [u8] {
        self.held.drain(..std::mem::take(&mut self.given));
        let end = |text: &[u8]| memchr::memrchr(b'\n', text).map_or(0, |at| at + 1);
        if self.held.is_empty() && end(bytes) > 0 {
            let (lines, cut) = bytes.split_at(end(bytes));
            self.held.extend_from_slice(cut);
            return lines;
        }
        self.held.extend_from_slice(bytes);
        self.given = end(&self.held);
        if self.given == 0 && self.held.len() > LINE_BYTES_MAX {
            self.given = self.held.len();
        }
        &self.held[..self.given]
    }

    /// What is left when nothing more comes.
    pub fn rest(&self) -> &[u8] {
        &self.held[self.given..]
    }
}

/// What one answer has shown so far.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own, in any combination")]
pub struct Watcher {
    is_event_stream: bool,
    /// The tail of a plain answer.
    tail: Vec<u8>,
    is_event_open: bool,
    /// When the first event with text went by.
    pub first_token: Option<Instant>,
    /// When the last event went by.
    pub last_token: Option<Instant>,
    /// Events with text.
    pub tokens: u32,
    /// Times between tokens, where somebody counts them.
    pub gaps: Option<LocalHistogram>,
    /// The last usage object.
    pub usage: Usage,
    /// `[DONE]`, or the responses API's final event, went by.
    pub is_done: bool,
    /// An event with an error went by.
    pub has_error: bool,
}

impl Watcher {
    /// For an answer that is a stream of events, or one JSON body.
    pub fn new(is_event_stream: bool) -> Self {
        Self {
            is_event_stream,
            tail: Vec::new(),
            is_event_open: false,
            first_token: None,
            last_token: None,
            tokens: 0,
            gaps: None,
            usage: Usage::default(),
            is_done: false,
            has_error: false,
        }
    }

    /// Whether the lines so far end between two events, so that something may be put there.
    pub fn is_between_events(&self) -> bool {
        !self.is_event_open
    }

    /// Sees the next bytes of the body: whole lines, if it is a stream of events.
    pub fn see(&mut self, mut bytes: &[u8], now: Instant) {
        if !self.is_event_stream {
            self.see_plain(bytes, now);
            return;
        }
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            self.see_line(&bytes[..end], now);
            bytes = &bytes[end + 1..];
        }
        self.is_event_open |= !bytes.is_empty();
    }

    fn see_line(&mut self, line: &[u8], now: Instant) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.is_event_open = !line.is_empty();
        let Some(data) = line.strip_prefix(b"data:") else { return };
        let data = data.trim_ascii();
        if data == b"[DONE]" {
            self.is_done = true;
            return;
        }
        if data.starts_with(br#"{"error""#) {
            self.has_error = true;
            return;
        }
        if let Some(usage) = usage_in(data) {
            self.usage = usage;
        }
        if has_final_type(data) {
            self.is_done = true;
        }
        if has_text(data) {
            self.tokens += 1;
            self.first_token.get_or_insert(now);
            if let Some((gaps, last)) = self.gaps.as_ref().zip(self.last_token) {
                gaps.observe(now.saturating_duration_since(last).as_secs_f64());
            }
            self.last_token = Some(now);
        }
    }

    fn see_plain(&mut self, bytes: &[u8], now: Instant) {
        self.first_token.get_or_insert(now);
        self.last_token = Some(now);
        let keep = bytes.len().min(TAIL_BYTES);
        let old = self.tail.len().min(TAIL_BYTES - keep);
        self.tail.drain(..self.tail.len() - old);
        self.tail.extend_from_slice(&bytes[bytes.len() - keep..]);
    }

    /// The body is over; a plain answer's usage is read now.
    pub fn end(&mut self) {
        if !self.is_event_stream {
            self.is_done = true;
            if let Some(usage) = usage_in(&self.tail) {
                self.usage = usage;
            }
        }
    }
}

/// Writes whole lines with another model's name: in each event, the first field of that name is the model's.
pub fn rename(mut lines: &[u8], model: &str, out: &mut Vec<u8>) {
    const KEY: &[u8] = br#""model":"#;
    while !lines.is_empty() {
        let end = memchr::memchr(b'\n', lines).map_or(lines.len(), |at| at + 1);
        let (line, rest) = lines.split_at(end);
        lines = rest;
        let value = memmem::find(line, KEY).map(|at| at + KEY.len()).filter(|_| line.starts_with(b"data:"));
        let start = value.and_then(|at| Some(at + memchr::memchr(b'"', &line[at..])? + 1));
        let found = start.and_then(|start| Some((start, start + memchr::memchr(b'"', &line[start..])?)));
        match found {
            Some((start, end)) => {
                out.extend_from_slice(&line[..start]);
                out.extend_from_slice(model.as_bytes());
                out.extend_from_slice(&line[end..]);
            }
            None => out.extend_from_slice(line),
        }
    }
}

/// The last event of a stream of the responses API, which has no `[DONE]`.
fn has_final_type(data: &[u8]) -> bool {
    const FINAL: [&[u8]; 3] = [
        br#"{"type":"response.completed""#,
        br#"{"type":"response.incomplete""#,
        br#"{"type":"response.failed""#,
    ];
    FINAL.iter().any(|start| data.starts_with(start))
}

/// Whether an event carries a token: the one that only names the role, and the one that only tells usage, do not.
fn has_text(data: &[u8]) -> bool {
    let is_role_only = memmem::find(data, br#""role":"#).is_some()
        && (memmem::find(data, br#""content":"""#).is_some()
            || memmem::find(data, br#""content":null"#).is_some());
    let is_empty = memmem::find(data, br#""choices":[]"#).is_some();
    !is_role_only && !is_empty
}

/// The last `"usage":{…}` in a text.
pub fn usage_in(text: &[u8]) -> Option<Usage> {
    let at = memmem::rfind(text, br#""usage""#)?;
    let rest = text[at + 7..].trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
    if !rest.starts_with(b"{") {
        return None;
    }
    let mut objects = serde_json::Deserializer::from_slice(rest).into_iter::<wire::Usage>();
    let usage = objects.next()?.ok()?;
    let details = usage.prompt_tokens_details.or(usage.input_tokens_details);
    Some(Usage {
        prompt_tokens: usage.prompt_tokens.or(usage.input_tokens),
        completion_tokens: usage.completion_tokens.or(usage.output_tokens),
        cached_tokens: details.and_then(|details| details.cached_tokens),
    })
}

mod wire {
    use serde::Deserialize;

    /// Both APIs' words for the same counts.
    #[derive(Deserialize)]
    pub struct Usage {
        pub prompt_tokens: Option<u32>,
        pub input_tokens: Option<u32>,
        pub completion_tokens: Option<u32>,
        pub output_tokens: Option<u32>,
        pub prompt_tokens_details: Option<Details>,
        pub input_tokens_details: Option<Details>,
    }

    #[derive(Deserialize)]
    pub struct Details {
        pub cached_tokens: Option<u32>,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STREAM: &str = concat!(
        "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}],\"usage\":null}\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\"Hel\"}}]}\n\n",
        ": comment\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\"lo\"}}]}\r\n\r\n",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2,",
        "\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\n",
        "data: [DONE]\n\n",
    );

    proptest! {
        #[test]
        fn any_cut_of_a_stream_shows_the_same(step in 1usize..300) {
            let (mut lines, mut watcher, mut out) = (Lines::default(), Watcher::new(true), Vec::new());
            for piece in STREAM.as_bytes().chunks(step) {
                let whole = lines.push(piece);
                prop_assert!(whole.is_empty() || whole.ends_with(b"\n"));
                watcher.see(whole, Instant::now());
                out.extend_from_slice(whole);
            }
            prop_assert!(lines.rest().is_empty());
            prop_assert_eq!(out, STREAM.as_bytes());
            let usage = Usage { prompt_tokens: Some(9), completion_tokens: Some(2), cached_tokens: Some(4) };
            prop_assert_eq!(watcher.usage, usage);
            prop_assert_eq!(watcher.tokens, 2);
            prop_assert!(watcher.is_done && watcher.is_between_events() && !watcher.has_error);
        }
    }

    #[test]
    fn the_usage_of_a_plain_answer_stands_at_its_end() {
        let text = format!("{{\"text\":\"{}\",\"usage\":{{\"prompt_tokens\":3}}}}", "x".repeat(10_000));
        let mut watcher = Watcher::new(false);
        for piece in text.as_bytes().chunks(777) {
            watcher.see(piece, Instant::now());
        }
        watcher.end();
        assert_eq!(watcher.usage.prompt_tokens, Some(3));
    }

    #[test]
    fn a_line_that_never_ends_is_passed_on_and_not_kept() {
        let mut lines = Lines::default();
        let mut passed = 0;
        for _ in 0..100 {
            passed += lines.push(&[b'x'; 10_000]).len();
            assert!(lines.held.len() <= LINE_BYTES_MAX + 10_000);
        }
        assert_eq!(passed + lines.rest().len(), 1_000_000);
    }

    #[test]
    fn only_the_models_name_is_renamed() {
        let lines =
            "data: {\"id\":\"x\",\"model\": \"real\",\"t\":\"\\\"model\\\":\\\"real\\\"\"}\n\ndata: [DONE]\n";
        let mut out = Vec::new();
        rename(lines.as_bytes(), "alias", &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), lines.replacen("real", "alias", 1));
    }

    #[test]
    fn an_error_event_is_seen() {
        let mut watcher = Watcher::new(true);
        watcher.see(b"data: {\"error\":{\"message\":\"x\"}}\n\n", Instant::now());
        assert!(watcher.has_error && !watcher.is_done);
    }
}
