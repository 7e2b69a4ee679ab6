//! How a response is spoken: as one object, or as the events that build it.

use serde_json::{Map, Value, json};

use super::item::{Item, Kind};
use crate::api::answer::{Delta, Reason};
use crate::api::app::unix_time;
use crate::api::content::{CallPiece, Piece};
use crate::api::json as bytes;
use crate::api::plan::Plan;
use crate::api::usage::Usage;
use crate::error::Error;

/// One response in the making.
#[derive(Debug)]
pub struct ResponseVoice {
    id: String,
    created_at: u64,
    model: String,
    repeated: Map<String, Value>,
    items: Vec<Item>,
    /// Whether the last item is still being said.
    is_open: bool,
    finish: Option<Reason>,
    sequence: u64,
}

impl ResponseVoice {
    /// A response of which nothing has been said.
    pub fn new(plan: &Plan) -> Self {
        Self {
            id: format!("resp_{}", uuid::Uuid::new_v4().simple()),
            created_at: unix_time(),
            model: plan.options.model.clone(),
            repeated: plan.repeated.clone(),
            items: Vec::new(),
            is_open: false,
            finish: None,
            sequence: 0,
        }
    }

    /// The whole of it at once.
    pub fn whole(&mut self, delta: Delta, usage: Usage) -> Vec<u8> {
        let Piece { thought, text, calls } = delta.piece;
        for (kind, text) in [(Kind::Thought, thought), (Kind::Message, text)] {
            if !text.is_empty() {
                self.items.push(Item { text, ..Item::new(kind) });
            }
        }
        for call in calls {
            let Some((call_id, name)) = call.begin else { continue };
            self.items.push(Item { text: call.arguments, ..Item::new(Kind::Call { call_id, name }) });
        }
        self.finish = delta.finish;
        let mut out = Vec::new();
        bytes::write(&mut out, &self.object(Some(usage), None));
        out
    }

    /// Appends the first events.
    pub fn write_begin(&mut self, out: &mut Vec<u8>) {
        for name in ["response.created", "response.in_progress"] {
            let response = self.object(None, None);
            self.event(out, name, json!({"response": response}));
        }
    }

    /// Appends the events of one delta.
    pub fn write_delta(&mut self, out: &mut Vec<u8>, delta: &Delta) {
        let Piece { thought, text, calls } = &delta.piece;
        for (kind, text) in [(Kind::Thought, thought), (Kind::Message, text)] {
            if !text.is_empty() {
                self.say(out, &kind, text);
            }
        }
        for CallPiece { begin, arguments, .. } in calls {
            if let Some((call_id, name)) = begin {
                self.open(out, Kind::Call { call_id: call_id.clone(), name: name.clone() });
            }
            if let Some(kind) =
                self.items.last().map(|item| item.kind.clone()).filter(|_| !arguments.is_empty())
            {
                self.say(out, &kind, arguments);
            }
        }
        self.finish = self.finish.or(delta.finish);
    }

    /// Appends the last events.
    pub fn write_end(&mut self, out: &mut Vec<u8>, usage: Usage) {
        self.close(out);
        let name =
            if self.finish == Some(Reason::Length) { "response.incomplete" } else { "response.completed" };
        let response = self.object(Some(usage), None);
        self.event(out, name, json!({"response": response}));
    }

    /// Appends this API's own event for an error.
    pub fn write_error(&mut self, out: &mut Vec<u8>, error: &Error) {
        let detail = &error.body.error;
        let told = json!({"code": detail.code, "message": detail.message});
        let response = self.object(None, Some(&told));
        self.event(out, "response.failed", json!({"response": response}));
        let told = json!({"code": detail.code, "message": detail.message, "param": detail.param});
        self.event(out, "error", told);
    }

    /// More of an item of this kind, which is begun where the last one is another.
    fn say(&mut self, out: &mut Vec<u8>, kind: &Kind, text: &str) {
        if !self.is_open || self.items.last().is_none_or(|item| item.kind != *kind) {
            self.open(out, kind.clone());
        }
        let index = self.items.len() - 1;
        self.items[index].text.push_str(text);
        let name = self.items[index].event();
        // The one event that comes a token: written without a tree.
        out.extend_from_slice(
            format!(
                "event: {name}.delta\ndata: {{\"type\":\"{name}.delta\",\"sequence_number\":{},\"item_id\":",
                self.sequence
            )
            .as_bytes(),
        );
        self.sequence += 1;
        bytes::write(out, &self.items[index].id);
        out.extend_from_slice(format!(",\"output_index\":{index},").as_bytes());
        match kind {
            Kind::Message => out.extend_from_slice(b"\"content_index\":0,\"logprobs\":[],"),
            Kind::Thought => out.extend_from_slice(b"\"content_index\":0,"),
            Kind::Call { .. } => {}
        }
        out.extend_from_slice(b"\"delta\":");
        bytes::write(out, text);
        out.extend_from_slice(b"}\n\n");
    }

    fn open(&mut self, out: &mut Vec<u8>, kind: Kind) {
        self.close(out);
        let item = Item::new(kind);
        let index = self.items.len();
        let (shown, part, id) = (item.to_json("in_progress"), item.part(), item.id.clone());
        self.items.push(item);
        self.is_open = true;
        self.event(out, "response.output_item.added", json!({"output_index": index, "item": shown}));
        if let Some(part) = part {
            let added = json!({"item_id": id, "output_index": index, "content_index": 0, "part": part});
            self.event(out, "response.content_part.added", added);
        }
    }

    fn close(&mut self, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.is_open, false) {
            return;
        }
        let Some(item) = self.items.last().cloned() else { return };
        let index = self.items.len() - 1;
        let done = format!("{}.done", item.event());
        match &item.kind {
            Kind::Call { name, .. } => {
                let told =
                    json!({"item_id": item.id, "output_index": index, "arguments": item.text, "name": name});
                self.event(out, &done, told);
            }
            kind => {
                let mut told =
                    json!({"item_id": item.id, "output_index": index, "content_index": 0, "text": item.text});
                if *kind == Kind::Message {
                    told["logprobs"] = json!([]);
                }
                self.event(out, &done, told);
                let told = json!({"item_id": item.id, "output_index": index, "content_index": 0, "part": item.part()});
                self.event(out, "response.content_part.done", told);
            }
        }
        let told = json!({"output_index": index, "item": item.to_json("completed")});
        self.event(out, "response.output_item.done", told);
    }

    fn event(&mut self, out: &mut Vec<u8>, name: &str, mut fields: Value) {
        fields["type"] = name.into();
        fields["sequence_number"] = self.sequence.into();
        self.sequence += 1;
        out.extend_from_slice(format!("event: {name}\ndata: ").as_bytes());
        bytes::write(out, &fields);
        out.extend_from_slice(b"\n\n");
    }

    /// The response as it stands; with its usage it is at its end.
    fn object(&self, usage: Option<Usage>, error: Option<&Value>) -> Value {
        let is_cut = self.finish == Some(Reason::Length);
        let status = match (usage, error) {
            (_, Some(_)) => "failed",
            (None, _) => "in_progress",
            (Some(_), _) if is_cut => "incomplete",
            (Some(_), _) => "completed",
        };
        let last = self.items.len().saturating_sub(1);
        let item_status = |at: usize| if is_cut && at == last { "incomplete" } else { "completed" };
        let output: Vec<_> =
            self.items.iter().enumerate().map(|(at, item)| item.to_json(item_status(at))).collect();
        let mut object = json!({
            "id": self.id,
            "object": "response",
            "created_at": self.created_at,
            "status": status,
            "error": error,
            "incomplete_details": is_cut.then(|| json!({"reason": "max_output_tokens"})),
            "model": self.model,
            "output": output,
            "usage": usage.map(|usage| json!({
                "input_tokens": usage.prompt_tokens,
                "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
                "output_tokens": usage.answer_tokens,
                "output_tokens_details": {"reasoning_tokens": usage.thought_tokens},
                "total_tokens": usage.prompt_tokens + usage.answer_tokens,
            })),
        });
        if let Some(fields) = object.as_object_mut() {
            fields.extend(self.repeated.clone());
        }
        object
    }
}
