//! The error body of the public API, one shape on every refusal (interface.md has the table).

use serde::{Deserialize, Serialize};

/// `{"error":{"message","type","param","code"}}`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The one field.
    pub error: ErrorDetail,
}

/// What went wrong, for people (`message`) and programs (`kind`, `param`, `code`).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ErrorDetail {
    /// One sentence that names the field or the limit.
    pub message: String,
    /// OpenAI's class, for example `invalid_request_error`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The request field at fault, when one is.
    pub param: Option<String>,
    /// A stable word to match on.
    pub code: Option<String>,
}

impl ErrorBody {
    /// A body of the given class.
    pub fn new(kind: &str, message: impl Into<String>) -> Self {
        let error = ErrorDetail { message: message.into(), kind: kind.to_owned(), param: None, code: None };
        Self { error }
    }

    /// The same with the field at fault.
    #[must_use]
    pub fn param(mut self, param: impl Into<String>) -> Self {
        self.error.param = Some(param.into());
        self
    }

    /// The same with a code.
    #[must_use]
    pub fn code(mut self, code: &str) -> Self {
        self.error.code = Some(code.to_owned());
        self
    }

    /// As JSON bytes.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}
