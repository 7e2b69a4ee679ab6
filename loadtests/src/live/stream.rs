//! Watches one stream of events come in: what was told, when, and how it ended.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::exchange::{Exchange, Failure};

/// Longest line that is taken for an event.
const LINE_BYTES_MAX: usize = 16 << 20;

/// Events closer than this came together.
const CLUMP_S: f64 = 0.001;

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default)]
    choices: Option<Vec<Choice<'a>>>,
    #[serde(default)]
    usage: Option<Usage>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow, default)]
    delta: Option<Delta<'a>>,
    #[serde(borrow, default)]
    text: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow, default)]
    content: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    reasoning_content: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    reasoning: Option<Cow<'a, str>>,
    #[serde(default)]
    tool_calls: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Usage {
    #[serde(default)]
    prompt_tokens: Option<u32>,
    #[serde(default)]
    completion_tokens: Option<u32>,
    #[serde(default)]
    prompt_tokens_details: Option<PromptDetails>,
}

#[derive(Deserialize)]
struct PromptDetails {
    #[serde(default)]
    cached_tokens: Option<u32>,
}

/// What has come of a stream so far.
#[derive(Debug, Default)]
pub struct Watch {
    /// A line whose end has not come.
    rest: Vec<u8>,
    reads: u64,
    events: u32,
    texts: u32,
    counted: Option<u32>,
    last_text: Option<(f64, u64, u32)>,
    is_done: bool,
    is_malformed: bool,
    error: Option<String>,
    /// The answer.
    pub text: String,
}

impl Watch {
    /// Bytes of one read came.
    pub fn feed(&mut self, bytes: &[u8], now_s: f64, exchange: &mut Exchange) {
        self.reads += 1;
        let mut left = bytes;
        while let Some(end) = left.iter().position(|&byte| byte == b'\n') {
            if self.rest.is_empty() {
                self.line(&left[..end], now_s, exchange);
            } else {
                let mut line = std::mem::take(&mut self.rest);
                line.extend_from_slice(&left[..end]);
                self.line(&line, now_s, exchange);
            }
            left = &left[end + 1..];
        }
        self.rest.extend_from_slice(left);
        if self.rest.len() > LINE_BYTES_MAX {
            self.is_malformed = true;
            self.rest.clear();
        }
    }

    fn line(&mut self, line: &[u8], now_s: f64, exchange: &mut Exchange) {
        let Some(data) = line.strip_prefix(b"data:") else { return };
        let data = data.trim_ascii();
        self.events += 1;
        if data == b"[DONE]" {
            self.is_done = true;
            return;
        }
        match serde_json::from_slice::<Chunk<'_>>(data) {
            Ok(chunk) => self.chunk(&chunk, now_s, exchange),
            Err(_) => self.is_malformed = true,
        }
    }

    fn chunk(&mut self, chunk: &Chunk<'_>, now_s: f64, exchange: &mut Exchange) {
        if let Some(error) = chunk.error.filter(|error| error.get() != "null") {
            self.error = Some(error.get().to_owned());
            return;
        }
        let before = self.counted;
        if let Some(usage) = &chunk.usage {
            self.counted = usage.completion_tokens.or(self.counted);
            exchange.prompt_tokens = usage.prompt_tokens.unwrap_or(exchange.prompt_tokens);
            let cached = usage.prompt_tokens_details.as_ref().and_then(|details| details.cached_tokens);
            exchange.cached_tokens = cached.or(exchange.cached_tokens);
        }
        let Some(choice) = chunk.choices.as_ref().and_then(|choices| choices.first()) else { return };
        exchange.first_chunk_s.get_or_insert(now_s);
        exchange.end_s = now_s;
        if self.take_text(choice) {
            self.token(before, now_s, exchange);
        }
    }

    /// Keeps a choice's text; whether it had any.
    fn take_text(&mut self, choice: &Choice<'_>) -> bool {
        let delta = choice.delta.as_ref();
        let content = delta.and_then(|delta| delta.content.as_ref()).or(choice.text.as_ref());
        self.text.push_str(content.map_or("", |content| content));
        let has = |text: Option<&Cow<'_, str>>| text.is_some_and(|text| !text.is_empty());
        has(content)
            || delta.is_some_and(|delta| {
                has(delta.reasoning_content.as_ref())
                    || has(delta.reasoning.as_ref())
                    || delta.tool_calls.is_some()
            })
    }

    /// Text came: how long after the text before, and how many tokens there are in it.
    fn token(&mut self, counted_before: Option<u32>, now_s: f64, exchange: &mut Exchange) {
        self.texts += 1;
        exchange.first_token_s.get_or_insert(now_s);
        if let Some((then_s, read, counted_then)) = self.last_text {
            let gap_s = now_s - then_s;
            // The server counts as it goes: the gap belongs to all tokens that came since.
            let tokens = match (counted_before, self.counted) {
                (Some(_), Some(now)) => now.saturating_sub(counted_then).max(1),
                _ => 1,
            };
            let gap_ms = (gap_s * 1e3) as f32 / tokens as f32;
            exchange.gaps_ms.extend(std::iter::repeat_n(gap_ms, tokens as usize));
            exchange.event_gaps += 1;
            exchange.clumped_gaps += u32::from(read == self.reads && gap_s < CLUMP_S);
        }
        self.last_text = Some((now_s, self.reads, self.counted.unwrap_or(0)));
    }

    /// The stream is over: what is wrong with it, if anything.
    pub fn finish(&mut self, exchange: &mut Exchange) -> Option<Failure> {
        exchange.answer_tokens = self.counted.unwrap_or(self.texts);
        exchange.why = self.error.take();
        if exchange.why.is_some() {
            return Some(Failure::InStream);
        }
        if self.is_malformed {
            return Some(Failure::Malformed);
        }
        if self.texts == 0 && (self.is_done || self.events == 0) {
            return Some(Failure::Empty);
        }
        (!self.is_done).then_some(Failure::Cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(text: &str, counted: Option<u32>) -> String {
        let usage = counted.map_or("null".to_owned(), |count| {
            format!(
                r#"{{"prompt_tokens":9,"completion_tokens":{count},"prompt_tokens_details":{{"cached_tokens":4}}}}"#
            )
        });
        format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}],\"usage\":{usage}}}\n\n")
    }

    /// Reads, each with its time; what became of them.
    fn watch(reads: &[(f64, &str)]) -> (Exchange, Option<Failure>, String) {
        let (mut watch, mut exchange) = (Watch::default(), Exchange::default());
        for (now_s, read) in reads {
            watch.feed(read.as_bytes(), *now_s, &mut exchange);
        }
        let failure = watch.finish(&mut exchange);
        (exchange, failure, watch.text)
    }

    const DONE: &str = "data: [DONE]\n\n";

    #[test]
    fn a_role_is_a_chunk_and_no_token() {
        let role = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\r\n\r\n";
        let (exchange, failure, text) =
            watch(&[(1.0, role), (2.0, &event("a", None)), (2.5, &event("b", None)), (3.0, DONE)]);
        assert_eq!((exchange.first_chunk_s, exchange.first_token_s), (Some(1.0), Some(2.0)));
        assert_eq!((exchange.answer_tokens, exchange.end_s.to_bits()), (2, 2.5f64.to_bits()));
        assert_eq!((failure, text.as_str()), (None, "ab"));
    }

    #[test]
    fn a_gap_belongs_to_all_tokens_that_the_server_counts_in_it() {
        let events = [event("a", Some(1)), event("bcd", Some(4)), event("e", Some(5))];
        let reads = [(1.0, &*events[0]), (1.3, &*events[1]), (1.4, &*events[2]), (1.4, DONE)];
        let (exchange, _, _) = watch(&reads);
        let gaps: Vec<_> = exchange.gaps_ms.iter().map(|gap| gap.round()).collect();
        assert_eq!(gaps, [100.0; 4]);
        let counts = (exchange.prompt_tokens, exchange.cached_tokens, exchange.answer_tokens);
        assert_eq!(counts, (9, Some(4), 5));
    }

    #[test]
    fn a_stream_may_be_split_anywhere() {
        let whole = format!("{}{}{DONE}", event("ab", None), event("c", None));
        for at in 1..whole.len() {
            let (_, failure, text) = watch(&[(1.0, &whole[..at]), (2.0, &whole[at..])]);
            assert_eq!((failure, text.as_str()), (None, "abc"), "split at {at}");
        }
    }

    /// U131: each way to end badly is told apart.
    #[test]
    fn bad_ends_are_told_apart() {
        let text = event("a", None);
        let error = "data: {\"error\":{\"message\":\"gone\"}}\n\n";
        for (reads, failure) in [
            (vec![text.as_str(), error], Failure::InStream),
            (vec![text.as_str(), error, DONE], Failure::InStream),
            (vec![text.as_str()], Failure::Cut),
            (vec![DONE], Failure::Empty),
            (vec![], Failure::Empty),
            (vec!["data: nonsense\n\n", DONE], Failure::Malformed),
        ] {
            let timed: Vec<_> = reads.iter().map(|read| (1.0, *read)).collect();
            assert_eq!(watch(&timed).1, Some(failure), "{reads:?}");
        }
    }

    #[test]
    fn events_of_one_read_are_clumped_and_others_are_not() {
        let three = event("a", None).repeat(3);
        let (exchange, _, _) = watch(&[(1.0, &three), (2.0, &event("b", None)), (2.0, DONE)]);
        assert_eq!((exchange.event_gaps, exchange.clumped_gaps), (3, 2));
    }
}
