//! What a stream of events has told its client so far: enough to let another replica go on with it.
//!
//! It sees every line before the client does, takes out what is only for the gateway, and after a change of replicas
//! makes the second half look like the first.

use super::edit::Edits;
use super::scan;
use super::stream::{self, Usage};
use memchr::memmem;

/// Most bytes of text that are kept for an engine that goes on from text.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// How [`shared::wire::CONTINUATION_FIELD`] begins in an event.
const PRIVATE: &[u8] = br#","flotilla":{"#;

/// The beginning of one answer.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own, in any combination")]
pub struct Transcript {
    /// All tokens, while every event named its own.
    pub ids: Option<Vec<u32>>,
    /// The seed they were drawn with.
    pub seed: u64,
    /// The text, as it stood escaped in the events; `None` when it was too long to keep.
    pub text: Option<Vec<u8>>,
    /// Events with text, or tokens where they are known.
    pub tokens: u32,
    /// A finish reason has gone by.
    pub is_finished: bool,
    /// A tool call has been begun.
    pub is_in_tool_call: bool,
    /// The usage that was kept from the client, who did not ask for it.
    pub hidden_usage: Option<Usage>,
    hides_usage: bool,
    /// The error event that the replica sent; it has not gone to the client.
    pub error: Option<Vec<u8>>,
    /// `id` and `created` of the first event, as JSON.
    head: Option<(Vec<u8>, Vec<u8>)>,
    second_half: Option<SecondHalf>,
    has_dropped_event: bool,
}

/// What differs after a change of replicas.
#[derive(Clone, Copy, Debug)]
struct SecondHalf {
    /// Tokens of the first half that the second replica took for prompt.
    as_prompt: u32,
}

impl Transcript {
    /// For an answer that has not begun; `has_ids` when its replica was asked for token ids.
    pub fn new(has_ids: bool) -> Self {
        Self { ids: has_ids.then(Vec::new), text: Some(Vec::new()), ..Self::default() }
    }

    /// The client did not ask for usage, so events go on without it.
    pub fn hide_usage(&mut self) {
        self.hides_usage = true;
    }

    /// From here on another replica speaks, which took `as_prompt` tokens of this answer for prompt.
    pub fn change_replica(&mut self, as_prompt: u32) {
        self.second_half = Some(SecondHalf { as_prompt });
        self.error = None;
    }

    /// Sees whole lines and writes what the client is to get.
    pub fn pass(&mut self, mut lines: &[u8], out: &mut Vec<u8>) {
        while !lines.is_empty() && self.error.is_none() {
            let end = memchr::memchr(b'\n', lines).map_or(lines.len(), |at| at + 1);
            let (line, rest) = lines.split_at(end);
            lines = rest;
            self.pass_line(line, out);
        }
    }

    fn pass_line(&mut self, line: &[u8], out: &mut Vec<u8>) {
        let content = line.trim_ascii_end();
        if content.is_empty() && std::mem::take(&mut self.has_dropped_event) {
            return;
        }
        let Some(data) = content.strip_prefix(b"data:").map(<[u8]>::trim_ascii_start) else {
            out.extend_from_slice(line);
            return;
        };
        if data.starts_with(br#"{"error""#) {
            self.error = Some(data.to_vec());
            return;
        }
        if !data.starts_with(b"{") {
            out.extend_from_slice(line);
            return;
        }
        let private = private_field(data);
        self.learn(data, private.as_ref());
        let plain_from = out.len();
        let Some(private) = private else {
            out.extend_from_slice(line);
            return self.fit(plain_from, out);
        };
        let offset = content.len() - data.len();
        out.extend_from_slice(&line[..offset + private.start]);
        out.extend_from_slice(&line[offset + private.end..]);
        self.fit(plain_from, out);
    }

    /// Makes the event that stands at the end of `out` fit for the client.
    fn fit(&mut self, from: usize, out: &mut Vec<u8>) {
        if self.hides_usage {
            self.take_usage(from, out);
        }
        if out.len() > from {
            self.fit_second_half(from, out);
        }
    }

    /// Takes the usage out of an event, and the event out of the stream if it has nothing else.
    fn take_usage(&mut self, from: usize, out: &mut Vec<u8>) {
        const NONE: &[u8] = br#","usage":null"#;
        let event = &out[from..];
        if memmem::find(event, br#""choices":[]"#).is_some() {
            self.hidden_usage = stream::usage_in(event).or(self.hidden_usage);
            self.has_dropped_event = true;
            out.truncate(from);
        } else if let Some(at) = memmem::rfind(event, NONE) {
            out.drain(from + at..from + at + NONE.len());
        }
    }

    /// Makes the event that stands at the end of `out` look as if the first replica had sent it.
    fn fit_second_half(&mut self, from: usize, out: &mut Vec<u8>) {
        let Some(second) = self.second_half else { return };
        let adapted = self.adapt(&out[from..], second);
        out.truncate(from);
        self.has_dropped_event = adapted.is_none();
        out.extend_from_slice(&adapted.unwrap_or_default());
    }

    fn learn(&mut self, data: &[u8], private: Option<&Private>) {
        if self.head.is_none() && self.second_half.is_none() {
            self.head = head_of(data);
        }
        self.is_finished |= is_finish(data);
        self.is_in_tool_call |= memmem::find(data, br#""tool_calls":[{"#).is_some();
        if let (Some(private), Some(ids)) = (private, &mut self.ids) {
            self.seed = private.seed;
            ids.extend_from_slice(&private.ids);
            self.tokens = ids.len() as u32;
            return;
        }
        let text = text_of(data).unwrap_or_default();
        if text.is_empty() {
            return;
        }
        self.ids = None;
        self.tokens += 1;
        if let Some(kept) = &mut self.text {
            kept.extend_from_slice(text);
            if kept.len() > TEXT_BYTES_MAX {
                self.text = None;
            }
        }
    }

    /// An event of a second half with the first half's `id` and `created` and the whole answer's usage; `None` when
    /// the client must not see it, since it begins an answer that has begun.
    fn adapt(&self, line: &[u8], second: SecondHalf) -> Option<Vec<u8>> {
        let offset = memchr::memchr(b'{', line)?;
        let data = line[offset..].trim_ascii_end();
        let is_beginning = memmem::find(data, br#""role":"#).is_some()
            && text_of(data).is_none_or(<[u8]>::is_empty)
            && !is_finish(data);
        if is_beginning {
            return None;
        }
        let Ok(members) = scan::members(data) else { return Some(line.to_vec()) };
        let mut edits = Edits::default();
        for member in members {
            match (member.key.as_ref(), &self.head) {
                ("id", Some((id, _))) => edits.replace(member.span, id.clone()),
                ("created", Some((_, created))) => edits.replace(member.span, created.clone()),
                ("usage", _) if second.as_prompt > 0 => {
                    if let Some(usage) = usage_of_all(member.value, second.as_prompt) {
                        edits.replace(member.span, usage);
                    }
                }
                _ => {}
            }
        }
        let end = &line[offset + data.len()..];
        Some([&line[..offset], &edits.apply(data), end].concat())
    }
}

/// The private field of an event: what it says, and the bytes to take out.
struct Private {
    seed: u64,
    ids: Vec<u32>,
    start: usize,
    end: usize,
}

fn private_field(data: &[u8]) -> Option<Private> {
    // Inside a JSON string the quotes would be escaped, so this can't be text.
    let start = memmem::rfind(data, PRIVATE)?;
    let object = start + PRIVATE.len() - 1;
    let end = object + memchr::memchr(b'}', &data[object..])? + 1;
    let members = scan::members(&data[object..end]).ok()?;
    let value = |key: &str| members.iter().find(|member| member.key == key).map(|member| member.value);
    let mut ids = Vec::new();
    scan::elements(value("ids")?, |id| ids.extend(scan::number(id).map(|id| id as u32))).ok()?;
    Some(Private { seed: scan::number(value("seed")?)?, ids, start, end })
}

fn head_of(data: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let members = scan::members(data).ok()?;
    let value =
        |key: &str| members.iter().find(|member| member.key == key).map(|member| member.value.to_vec());
    Some((value("id")?, value("created")?))
}

/// Whether an event names a finish reason.
fn is_finish(data: &[u8]) -> bool {
    string_after(data, br#""finish_reason":"#).is_some()
}

/// The text of an event, escaped as it stands there.
fn text_of(data: &[u8]) -> Option<&[u8]> {
    string_after(data, br#""content":"#).or_else(|| string_after(data, br#""text":"#))
}

/// The string that follows a key and its colon, without its quotes.
fn string_after<'a>(data: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let text = data[memmem::find(data, key)? + key.len()..].trim_ascii_start().strip_prefix(b"\"")?;
    let mut from = 0;
    loop {
        let found = from + memchr::memchr2(b'"', b'\\', text.get(from..)?)?;
        if text[found] == b'"' {
            return Some(&text[..found]);
        }
        from = found + 2;
    }
}

/// The usage of both halves, when the second replica took the first half's tokens for prompt.
fn usage_of_all(usage: &[u8], as_prompt: u32) -> Option<Vec<u8>> {
    let mut usage: serde_json::Value = serde_json::from_slice(usage).ok()?;
    let moved = u64::from(as_prompt);
    let prompt = usage.get("prompt_tokens")?.as_u64()?.saturating_sub(moved);
    let completion = usage.get("completion_tokens")?.as_u64()? + moved;
    usage["prompt_tokens"] = prompt.into();
    usage["completion_tokens"] = completion.into();
    serde_json::to_vec(&usage).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(id: &str, delta: &str, rest: &str) -> String {
        format!(
            "data: {{\"id\":\"{id}\",\"created\":7,\"choices\":[{{\"delta\":{delta},\"finish_reason\":null}}]{rest}}}\n\n"
        )
    }

    fn pass(transcript: &mut Transcript, lines: &str) -> String {
        let mut out = Vec::new();
        transcript.pass(lines.as_bytes(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_pattern_is_that_of_the_wire() {
        assert_eq!(PRIVATE, format!(",\"{}\":{{", shared::wire::CONTINUATION_FIELD).as_bytes());
    }

    #[test]
    fn what_is_private_is_kept_and_taken_out() {
        let mut transcript = Transcript::new(true);
        let tricky = r#"{"content":"a,\"flotilla\":{\"seed\":1}"}"#;
        let out =
            pass(&mut transcript, &chunk("x", tricky, r#","usage":null,"flotilla":{"seed":9,"ids":[4,5]}"#));
        assert_eq!(out, chunk("x", tricky, r#","usage":null"#));
        pass(&mut transcript, &chunk("x", r#"{"content":"b"}"#, r#","flotilla":{"seed":9,"ids":[6]}"#));
        assert_eq!((transcript.ids.as_deref(), transcript.seed), (Some(&[4, 5, 6][..]), 9));
        assert_eq!(transcript.tokens, 3);
    }

    #[test]
    fn without_ids_the_text_is_kept_as_it_stands() {
        let mut transcript = Transcript::new(false);
        for text in [r"", r"line\n", r#"\"q\""#] {
            let event = chunk("x", &format!("{{\"content\":\"{text}\"}}"), "");
            assert_eq!(pass(&mut transcript, &event), event);
        }
        assert_eq!(transcript.text.as_deref(), Some(br#"line\n\"q\""#.as_slice()));
        assert_eq!(transcript.tokens, 2);
        assert!(transcript.ids.is_none());
    }

    #[test]
    fn the_second_half_looks_like_the_first() {
        let mut transcript = Transcript::new(false);
        pass(&mut transcript, &chunk("first", r#"{"content":"a"}"#, ""));
        transcript.change_replica(1);
        let begin = chunk("second", r#"{"role":"assistant","content":""}"#, "").replace(":7", ":8");
        assert_eq!(pass(&mut transcript, &begin), "");
        let usage = r#","usage":{"prompt_tokens":10,"total_tokens":15,"completion_tokens":5}"#;
        let out = pass(&mut transcript, &chunk("second", r#"{"content":"b"}"#, usage).replace(":7", ":8"));
        let whole = r#","usage":{"prompt_tokens":9,"total_tokens":15,"completion_tokens":6}"#;
        assert_eq!(out, chunk("first", r#"{"content":"b"}"#, whole));
        assert_eq!(pass(&mut transcript, "data: [DONE]\n\n"), "data: [DONE]\n\n");
    }

    #[test]
    fn usage_that_nobody_asked_for_is_kept_from_the_client() {
        let mut transcript = Transcript::new(false);
        transcript.hide_usage();
        let event = chunk("x", r#"{"content":"a"}"#, r#","usage":null"#);
        assert_eq!(pass(&mut transcript, &event), chunk("x", r#"{"content":"a"}"#, ""));
        let usage =
            "data: {\"id\":\"x\",\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}\n\n";
        assert_eq!(pass(&mut transcript, usage), "");
        assert_eq!(transcript.hidden_usage.unwrap().prompt_tokens, Some(3));
        assert_eq!(pass(&mut transcript, "data: [DONE]\n\n"), "data: [DONE]\n\n");
    }

    #[test]
    fn an_error_event_is_held_back() {
        let mut transcript = Transcript::new(false);
        assert_eq!(pass(&mut transcript, ": c\n\ndata: {\"error\":{}}\n\n"), ": c\n\n");
        assert_eq!(transcript.error.as_deref(), Some(b"{\"error\":{}}".as_slice()));
    }
}
