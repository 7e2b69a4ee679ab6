//! What a request's body tells the gateway: model, stream, prompt text. Everything else is the replica's business.

use super::error::{Error, What};
use super::route::Api;
use super::scan::{self, Malformed, Member};
use shared::prefix::{PieceHash, Pieces};
use std::borrow::Cow;
use std::ops::Range;

/// The fields that routing needs, borrowed from the body.
#[derive(Clone, Debug, Default)]
pub struct Prompt<'a> {
    /// The model asked for, and where its name stands in the body.
    pub model: Option<(Cow<'a, str>, Range<usize>)>,
    /// Whether a stream of events is wanted.
    pub is_stream: bool,
    /// The most tokens wanted back.
    pub answer_tokens_max: Option<u32>,
    members: Vec<Member<'a>>,
    /// Where the object's first member may stand.
    start: usize,
}

/// Reads the body of a JSON request.
///
/// # Errors
///
/// When the body is no object, or a routing field has the wrong type.
pub fn read(body: &[u8]) -> Result<Prompt<'_>, Error> {
    let members = scan::members(body).map_err(|Malformed { at }| {
        Error::new(What::BadBody, format!("the request body is not a JSON object (at byte {at})"))
    })?;
    let start = body.iter().position(|&byte| byte == b'{').map_or(0, |brace| brace + 1);
    let mut prompt = Prompt { members, start, ..Prompt::default() };
    if let Some(model) = prompt.member("model") {
        let name = scan::string(model.value)
            .ok_or_else(|| Error::new(What::BadBody, "`model` must be a string").param("model"))?;
        prompt.model = Some((name, model.span.clone()));
    }
    if let Some(stream) = prompt.value("stream").filter(|value| *value != b"null") {
        prompt.is_stream = scan::boolean(stream)
            .ok_or_else(|| Error::new(What::BadBody, "`stream` must be a boolean").param("stream"))?;
    }
    let limits = ["max_completion_tokens", "max_tokens", "max_output_tokens"];
    let most = limits.iter().find_map(|key| scan::number(prompt.value(key)?));
    prompt.answer_tokens_max = most.map(|most| u32::try_from(most).unwrap_or(u32::MAX));
    Ok(prompt)
}

impl<'a> Prompt<'a> {
    fn member(&self, key: &str) -> Option<&Member<'a>> {
        // The last of equal keys counts, as for the parsers behind us.
        self.members.iter().rev().find(|member| member.key == key)
    }

    /// The bytes of a top-level field.
    pub fn value(&self, key: &str) -> Option<&'a [u8]> {
        self.member(key).map(|member| member.value)
    }

    /// Whether a stream is to tell its usage.
    pub fn asks_for_usage(&self) -> bool {
        let options = self.value("stream_options").and_then(|options| scan::members(options).ok());
        let asks = |member: &Member<'_>| member.key == "include_usage" && member.value == b"true";
        options.is_some_and(|options| options.iter().any(asks))
    }

    /// Where the value of a top-level field lies.
    pub fn span(&self, key: &str) -> Option<Range<usize>> {
        self.member(key).map(|member| member.span.clone())
    }

    /// Whether there are no fields at all.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Where a new first field may stand.
    pub fn start(&self) -> usize {
        self.start
    }

    /// The prompt's text as a chain of pieces, and how many bytes it has.
    pub fn pieces(&self, api: Api, model: &str, salt: &str) -> (Vec<PieceHash>, u32) {
        let mut pieces = Pieces::new(model, salt, self.value("tools").unwrap_or_default());
        match api {
            Api::Chat => self.feed_messages("messages", &mut pieces),
            Api::Responses => {
                if let Some(instructions) = self.value("instructions") {
                    feed_text(instructions, &mut pieces);
                }
                self.feed_messages("input", &mut pieces);
            }
            Api::Completions => {
                if let Some(prompt) = self.value("prompt") {
                    feed_text(prompt, &mut pieces);
                }
            }
            Api::Other => {
                for value in ["input", "messages", "prompt"].iter().filter_map(|key| self.value(key)) {
                    pieces.text(value);
                }
            }
        }
        let bytes = u32::try_from(pieces.bytes()).unwrap_or(u32::MAX);
        (pieces.finish(), bytes)
    }

    fn feed_messages(&self, key: &str, pieces: &mut Pieces) {
        let Some(list) = self.value(key) else { return };
        if list.starts_with(b"\"") {
            feed_text(list, pieces);
            return;
        }
        // What is malformed inside is the replica's to refuse; here it only ends the chain.
        let _ = scan::elements(list, |message| {
            let Ok(members) = scan::members(message) else { return };
            let value =
                |key: &str| members.iter().find(|member| member.key == key).map(|member| member.value);
            let text = |key: &str| value(key).and_then(scan::string).unwrap_or_default();
            pieces.begin_message(&text("role"), &text("name"));
            if let Some(content) = value("content") {
                feed_content(content, pieces);
            }
            pieces.end_message();
        });
    }
}

/// A string's text, or the bytes of anything else.
fn feed_text(value: &[u8], pieces: &mut Pieces) {
    if value.starts_with(b"\"") {
        scan::unescape(value, |part| pieces.text(part));
    } else {
        pieces.text(value);
    }
}

/// A message's content: a string, or a list of parts whose texts are joined.
fn feed_content(content: &[u8], pieces: &mut Pieces) {
    if content.starts_with(b"\"") {
        scan::unescape(content, |part| pieces.text(part));
        return;
    }
    let _ = scan::elements(content, |part| {
        let Ok(members) = scan::members(part) else { return };
        if let Some(text) = members.iter().find(|member| member.key == "text") {
            scan::unescape(text.value, |part| pieces.text(part));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routing_fields_are_found_among_unknown_ones() {
        let body = br#"{"x":{"model":"no"},"model":"m","stream":true,"max_tokens":5,"messages":[]}"#;
        let prompt = read(body).unwrap();
        let (name, span) = prompt.model.clone().unwrap();
        assert_eq!(name, "m");
        assert_eq!(&body[span], b"\"m\"");
        assert!(prompt.is_stream);
        assert_eq!(prompt.answer_tokens_max, Some(5));
    }

    #[test]
    fn only_routing_fields_are_refused() {
        let param = |body: &str| read(body.as_bytes()).err().map(|error| error.param);
        assert_eq!(param(r#"{"model":3}"#), Some(Some("model")));
        assert_eq!(param(r#"{"stream":"yes"}"#), Some(Some("stream")));
        assert_eq!(param("[1]"), Some(None));
        assert_eq!(param(r#"{"temperature":"hot","max_tokens":-1,"stream":null}"#), None);
    }

    #[test]
    fn the_pieces_are_those_of_the_decoded_text() {
        let text = "line\n\"quoted\" é 😀 ".repeat(100);
        let mut expected = Pieces::new("m", "", b"");
        expected.message("user", "", &text);
        let expected = expected.finish();
        let plain = serde_json::json!({ "model": "m", "messages": [{ "role": "user", "content": text }] });
        let parts = serde_json::json!({ "messages": [
            { "content": [{ "type": "text", "text": &text[..5] }, { "text": &text[5..] }], "role": "user" }
        ] });
        let escaped = plain.to_string().replace('é', "\\u00e9").replace('😀', "\\ud83d\\ude00");
        for body in [plain.to_string(), parts.to_string(), escaped] {
            let prompt = read(body.as_bytes()).unwrap();
            assert_eq!(prompt.pieces(Api::Chat, "m", "").0, expected, "{body}");
        }
    }
}
