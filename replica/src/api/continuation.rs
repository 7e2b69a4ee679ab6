//! An answer that another replica began: its tokens so far and its seed, sent by a gateway.

use serde_json::Value;
use shared::wire::CONTINUATION_FIELD;

use super::fields::Fields;
use super::options::token_ids;
use crate::error::Error;

/// The beginning of an answer. What it shows has reached the client already.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Continuation {
    /// Its tokens.
    pub answer_ids: Vec<u32>,
    /// The seed it was drawn with.
    pub seed: u64,
}

impl Continuation {
    /// Reads the private field of a request.
    pub fn read(fields: &Fields<'_>, vocab_tokens: u32) -> Result<Option<Self>, Error> {
        let Some(private) = fields.object(CONTINUATION_FIELD)? else { return Ok(None) };
        let ids = private.array("answer_ids")?.ok_or_else(|| private.missing("answer_ids"))?;
        let seed = private.get("seed").and_then(Value::as_u64);
        Ok(Some(Self {
            answer_ids: token_ids(ids, &private.path("answer_ids"), vocab_tokens)?,
            seed: seed.ok_or_else(|| private.refuse("seed", "must be a whole number"))?,
        }))
    }
}
