//! Conversations in `ShareGPT`'s format: `[{"conversations": [{"from": "human", "value": "…"}, …]}]`.

use std::time::Duration;

use rustc_hash::FxHashMap;
use serde::Deserialize;

use super::{Segment, Session, Turn};

/// Characters of English that make a token, about.
const TOKEN_CHARS: usize = 4;

#[derive(Deserialize)]
struct Conversation {
    conversations: Vec<Message>,
}

#[derive(Deserialize)]
struct Message {
    from: String,
    value: String,
}

/// Sessions that all begin at zero, and the texts of their segments. Answers are as long as those in the file.
pub fn read(text: &str, sessions_max: usize) -> Result<(Vec<Session>, FxHashMap<u64, String>), String> {
    let conversations: Vec<Conversation> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let mut texts = FxHashMap::default();
    let mut sessions = Vec::new();
    for conversation in conversations {
        if sessions.len() == sessions_max {
            break;
        }
        let turns = turns(&conversation.conversations, &mut texts);
        if !turns.is_empty() {
            sessions.push(Session { start: Duration::ZERO, turns });
        }
    }
    Ok((sessions, texts))
}

/// Each pair of a human's message and an answer.
fn turns(messages: &[Message], texts: &mut FxHashMap<u64, String>) -> Vec<Turn> {
    let is_human = |message: &Message| matches!(message.from.as_str(), "human" | "user");
    let tokens = |text: &str| (text.chars().count() / TOKEN_CHARS).max(1) as u32;
    let mut turns = Vec::new();
    for pair in messages.windows(2) {
        if is_human(&pair[0]) && !is_human(&pair[1]) {
            let id = texts.len() as u64;
            texts.insert(id, pair[0].value.clone());
            let text = vec![Segment { id, tokens: tokens(&pair[0].value) }];
            turns.push(Turn { text, answer_tokens: tokens(&pair[1].value), think: Duration::ZERO });
        }
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_become_turns_with_their_own_words() {
        let text = r#"[{"id": "x", "conversations": [
            {"from": "gpt", "value": "hello"}, {"from": "human", "value": "what is it"},
            {"from": "gpt", "value": "eight ch"}, {"from": "human", "value": "and?"}]},
            {"conversations": []},
            {"conversations": [{"from": "user", "value": "b"}, {"from": "assistant", "value": "c"}]}]"#;
        let (sessions, texts) = read(text, 9).unwrap();
        assert_eq!(sessions.len(), 2);
        assert_eq!((sessions[0].turns.len(), sessions[0].turns[0].answer_tokens), (1, 2));
        assert_eq!(texts[&sessions[0].turns[0].text[0].id], "what is it");
        assert_eq!(read(text, 1).unwrap().0.len(), 1);
        assert!(read("{}", 1).is_err());
    }
}
