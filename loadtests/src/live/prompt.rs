//! Segments become words, each of one token where the tokenizer is known.

use std::path::Path;

use bytes::Bytes;
use http::Method;
use rustc_hash::FxHashMap;
use serde_json::{Map, Value, json};
use tokenizers::Tokenizer;

use super::target::Target;
use crate::sim::text::mix;
use crate::workload::Segment;

/// Words to choose from: everyday ones, which most vocabularies hold whole.
const WORDS: &str = "time year people way day man thing woman life child world school state family student group \
    country problem hand part place case week company system program question work government number night point \
    home water room mother area money story fact month lot right study book eye job word business issue side kind \
    head house service friend father power hour game line end member law car city community name president team \
    minute idea body information back parent face others level office door health person art war history party \
    result change morning reason research girl guy moment air teacher force education foot boy age policy music \
    market sense nation plan college interest death experience effect use class control field development role \
    report decision figure view town road drug arm relationship difference value building action season society \
    tax director position player record paper space ground form event official matter center couple site project \
    activity star table need court oil situation cost industry street image phone data picture practice piece land \
    product doctor wall patient worker news test movie north love support technology";

/// Who counts tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counter {
    /// A local tokenizer.
    Local,
    /// The server's `/tokenize`.
    Server,
    /// Nobody: a word is taken for a token.
    Nobody,
}

/// The words that prompts are made of.
#[derive(Clone, Debug)]
pub struct Words {
    vocabulary: Vec<&'static str>,
    seed: u64,
    texts: FxHashMap<u64, String>,
    /// Who counted.
    pub counter: Counter,
}

impl Words {
    /// All words; `texts` are given whole for some segments.
    pub fn new(seed: u64, texts: FxHashMap<u64, String>) -> Self {
        Self { vocabulary: WORDS.split_whitespace().collect(), seed, texts, counter: Counter::Nobody }
    }

    /// Keeps those that are one token for a local tokenizer.
    pub fn count_by_file(&mut self, path: &Path) -> Result<(), String> {
        let tokenizer = Tokenizer::from_file(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let words = std::mem::take(&mut self.vocabulary);
        let count = |text: &str| tokenizer.encode(text, false).map_or(usize::MAX, |encoding| encoding.len());
        let singles = words.into_iter().filter(|word| count(&format!(" {word}")) == 1).collect();
        self.settle(singles, Counter::Local);
        Ok(())
    }

    /// Keeps those that are one token for the server, where it has `/tokenize`.
    pub async fn count_by_server(&mut self, target: &Target, model: &str) {
        let mut singles = Vec::new();
        let mut parts = vec![self.vocabulary.clone()];
        while let Some(mut part) = parts.pop() {
            let Some(count) = server_count(target, model, &part).await else { return };
            if count == part.len() {
                singles.append(&mut part);
            } else if part.len() > 1 {
                let second = part.split_off(part.len() / 2);
                parts.extend([part, second]);
            }
        }
        self.settle(singles, Counter::Server);
    }

    /// Few single words mean a tokenizer of bytes or another script: then counts are what usage says.
    fn settle(&mut self, singles: Vec<&'static str>, counter: Counter) {
        const FEWEST: usize = 16;
        if singles.len() >= FEWEST {
            (self.vocabulary, self.counter) = (singles, counter);
        } else {
            self.vocabulary = WORDS.split_whitespace().collect();
        }
    }

    /// A text of so many words. Equal segments are equal texts.
    pub fn text(&self, segment: Segment, out: &mut String) {
        if let Some(text) = self.texts.get(&segment.id) {
            out.push_str(text);
            return;
        }
        let base = mix(segment.id ^ mix(self.seed));
        for index in 0..u64::from(segment.tokens) {
            out.push(' ');
            out.push_str(self.vocabulary[mix(base + index) as usize % self.vocabulary.len()]);
        }
    }
}

/// Tokens of these words, each after a space.
async fn server_count(target: &Target, model: &str, words: &[&str]) -> Option<usize> {
    let text: String = words.iter().flat_map(|word| [" ", word]).collect();
    let body = json!({"model": model, "prompt": text, "add_special_tokens": false}).to_string();
    let answer = target.call(Method::POST, "/tokenize", Bytes::from(body)).await.ok()?;
    let answer: Value = serde_json::from_slice(&answer).ok()?;
    Some(answer["count"].as_u64()? as usize)
}

/// How bodies are written.
#[derive(Clone, Debug)]
pub struct Style {
    /// The model asked for.
    pub model: String,
    /// `/v1/chat/completions`, else `/v1/completions`.
    pub is_chat: bool,
    /// Answers go on to their full length.
    pub ignore_eos: bool,
    /// Further fields.
    pub extra: Map<String, Value>,
}

/// What was said in a session so far.
#[derive(Clone, Debug, Default)]
pub struct Conversation {
    messages: Vec<(&'static str, String)>,
}

impl Conversation {
    /// The client says this.
    pub fn ask(&mut self, text: String) {
        self.messages.push(("user", text));
    }

    /// The server said this.
    pub fn answer(&mut self, text: String) {
        self.messages.push(("assistant", text));
    }

    /// The body that asks for the next answer.
    pub fn body(&self, style: &Style, answer_tokens: u32) -> Bytes {
        let mut body = json!({
            "model": style.model, "stream": true, "temperature": 0,
            "stream_options": {"include_usage": true, "continuous_usage_stats": true},
        });
        if style.is_chat {
            let message = |(role, text): &(&str, String)| json!({"role": role, "content": text});
            body["messages"] = self.messages.iter().map(message).collect();
            body["max_completion_tokens"] = answer_tokens.into();
        } else {
            body["prompt"] = self.messages.iter().map(|(_, text)| text.as_str()).collect::<String>().into();
            body["max_tokens"] = answer_tokens.into();
        }
        if style.ignore_eos {
            body["ignore_eos"] = true.into();
        }
        for (name, value) in &style.extra {
            body[name] = value.clone();
        }
        Bytes::from(body.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(words: &Words, id: u64, tokens: u32) -> String {
        let mut text = String::new();
        words.text(Segment { id, tokens }, &mut text);
        text
    }

    #[test]
    fn equal_segments_are_equal_texts_of_their_length() {
        let words = Words::new(1, FxHashMap::default());
        assert_eq!(text(&words, 7, 40), text(&words, 7, 40));
        assert_ne!(text(&words, 7, 40), text(&words, 8, 40));
        assert_eq!(text(&words, 7, 40).split_whitespace().count(), 40);
        assert_ne!(text(&Words::new(2, FxHashMap::default()), 7, 40), text(&words, 7, 40));
    }

    #[test]
    fn a_local_tokenizer_leaves_only_words_of_one_token() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let vocabulary: Map<_, _> = ["[U]", "time", "year", "people"]
            .iter()
            .chain(WORDS.split_whitespace().skip(5).take(40).collect::<Vec<_>>().iter())
            .enumerate()
            .map(|(id, word)| ((*word).to_owned(), id.into()))
            .collect();
        let tokenizer = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
            "model": {"type": "WordPiece", "unk_token": "[U]", "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100, "vocab": vocabulary},
        });
        std::fs::write(file.path(), tokenizer.to_string()).unwrap();
        let mut words = Words::new(1, FxHashMap::default());
        words.count_by_file(file.path()).unwrap();
        assert_eq!(words.counter, Counter::Local);
        // An unknown word is one token too, which is all that is asked of it.
        assert!(words.vocabulary.contains(&"time"));
    }

    #[test]
    fn a_body_carries_the_conversation() {
        let mut conversation = Conversation::default();
        conversation.ask("a".to_owned());
        conversation.answer("b".to_owned());
        conversation.ask("c".to_owned());
        let extra = Map::from_iter([("top_k".to_owned(), json!(5))]);
        let style = Style { model: "m".to_owned(), is_chat: true, ignore_eos: true, extra };
        let body: Value = serde_json::from_slice(&conversation.body(&style, 9)).unwrap();
        let roles: Vec<_> = (0..3).map(|index| body["messages"][index]["role"].as_str().unwrap()).collect();
        assert_eq!(roles, ["user", "assistant", "user"]);
        assert_eq!((&body["max_completion_tokens"], &body["top_k"]), (&json!(9), &json!(5)));
        let style = Style { is_chat: false, ..style };
        let body: Value = serde_json::from_slice(&conversation.body(&style, 9)).unwrap();
        assert_eq!((&body["prompt"], &body["max_tokens"]), (&json!("abc"), &json!(9)));
    }
}
