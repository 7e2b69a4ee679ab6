//! What a response is made of, in order: thoughts, a message, calls.

use serde_json::{Value, json};

/// One item of the output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    /// Its own name.
    pub id: String,
    /// What it is.
    pub kind: Kind,
    /// What it says: thoughts, text or arguments.
    pub text: String,
}

/// What an item is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// What the model thought.
    Thought,
    /// What it says.
    Message,
    /// What it calls, and by which id.
    Call { call_id: String, name: String },
}

impl Item {
    /// An item that says nothing yet.
    pub fn new(kind: Kind) -> Self {
        let prefix = match kind {
            Kind::Thought => "rs",
            Kind::Message => "msg",
            Kind::Call { .. } => "fc",
        };
        Self { id: format!("{prefix}_{}", uuid::Uuid::new_v4().simple()), kind, text: String::new() }
    }

    /// The item as it stands; `status` is `in_progress`, `completed` or `incomplete`.
    pub fn to_json(&self, status: &str) -> Value {
        match &self.kind {
            Kind::Thought => {
                let content: Vec<_> = self.part().into_iter().filter(|_| !self.text.is_empty()).collect();
                json!({"id": self.id, "type": "reasoning", "summary": [], "content": content, "status": status})
            }
            Kind::Message => {
                let content: Vec<_> = self.part().into_iter().filter(|_| status != "in_progress").collect();
                json!({"id": self.id, "type": "message", "role": "assistant", "status": status, "content": content})
            }
            Kind::Call { call_id, name } => json!({
                "id": self.id, "type": "function_call", "status": status,
                "call_id": call_id, "name": name, "arguments": self.text,
            }),
        }
    }

    /// Its one part of content; calls have none.
    pub fn part(&self) -> Option<Value> {
        match self.kind {
            Kind::Thought => Some(json!({"type": "reasoning_text", "text": self.text})),
            Kind::Message => {
                Some(json!({"type": "output_text", "text": self.text, "annotations": [], "logprobs": []}))
            }
            Kind::Call { .. } => None,
        }
    }

    /// First half of the names of its delta and done events.
    pub fn event(&self) -> &'static str {
        match self.kind {
            Kind::Thought => "response.reasoning_text",
            Kind::Message => "response.output_text",
            Kind::Call { .. } => "response.function_call_arguments",
        }
    }
}
