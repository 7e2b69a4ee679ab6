//! `/v1/responses`: OpenAI's newer API, read as a chat. Nothing is stored: a request brings its whole history.

mod item;
mod request;
mod voice;

use serde_json::Value;

use super::chat;
use super::plan::{Plan, Shape};
use super::served::Served;
use crate::error::Error;

pub use voice::ResponseVoice;

/// Understands a body.
pub fn plan(body: &Value, served: &Served) -> Result<Plan, Error> {
    let chat = request::as_chat(body)?;
    let mut plan = chat::plan(&chat, served).map_err(request::blamed)?;
    plan.shape = Shape::Response;
    plan.repeated = request::repeated(body, &plan);
    Ok(plan)
}
