//! The assistant's message in a chat: whole, or what is new of it.

use super::content::{CallPiece, Piece};
use super::json;

/// Appends what is new.
pub fn write_delta(out: &mut Vec<u8>, piece: &Piece) {
    out.push(b'{');
    let mut is_first = true;
    let mut comma = |out: &mut Vec<u8>| {
        if !std::mem::replace(&mut is_first, false) {
            out.push(b',');
        }
    };
    if !piece.thought.is_empty() {
        comma(out);
        write_thought(out, &piece.thought);
    }
    if !piece.text.is_empty() {
        comma(out);
        out.extend_from_slice(b"\"content\":");
        json::write(out, &piece.text);
    }
    if !piece.calls.is_empty() {
        comma(out);
        out.extend_from_slice(b"\"tool_calls\":");
        json::write_list(out, &piece.calls, |out, call| {
            out.extend_from_slice(b"{\"index\":");
            json::write(out, &call.index);
            out.push(b',');
            write_call(out, call);
        });
    }
    out.push(b'}');
}

/// Appends all of it. Calls that were cut are left out: their arguments are no JSON.
pub fn write_whole(out: &mut Vec<u8>, piece: &Piece) {
    let is_whole = |call: &&CallPiece| serde_json::from_str::<serde::de::IgnoredAny>(&call.arguments).is_ok();
    let calls: Vec<_> = piece.calls.iter().filter(is_whole).collect();
    out.extend_from_slice(b"{\"role\":\"assistant\",\"content\":");
    json::write(out, &Some(&piece.text).filter(|text| calls.is_empty() || !text.is_empty()));
    out.extend_from_slice(b",\"refusal\":null");
    if !piece.thought.is_empty() {
        out.push(b',');
        write_thought(out, &piece.thought);
    }
    if !calls.is_empty() {
        out.extend_from_slice(b",\"tool_calls\":");
        json::write_list(out, calls, |out, call| {
            out.push(b'{');
            write_call(out, call);
        });
    }
    out.push(b'}');
}

/// Under vLLM's present name and its older one.
fn write_thought(out: &mut Vec<u8>, thought: &str) {
    out.extend_from_slice(b"\"reasoning\":");
    json::write(out, thought);
    out.extend_from_slice(b",\"reasoning_content\":");
    json::write(out, thought);
}

/// The rest of an object that has been opened.
fn write_call(out: &mut Vec<u8>, call: &CallPiece) {
    if let Some((id, name)) = &call.begin {
        out.extend_from_slice(b"\"id\":");
        json::write(out, id);
        out.extend_from_slice(b",\"type\":\"function\",\"function\":{\"name\":");
        json::write(out, name);
        out.push(b',');
    } else {
        out.extend_from_slice(b"\"function\":{");
    }
    out.extend_from_slice(b"\"arguments\":");
    json::write(out, &call.arguments);
    out.extend_from_slice(b"}}");
}
