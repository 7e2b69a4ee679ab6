//! Which model is served.

use std::path::PathBuf;
use std::time::Duration;

use super::OptionError;

/// Where a model comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ModelSource {
    /// Deterministic, no weights.
    Fake(Fake),
    /// A GGUF file or a Hugging Face directory.
    Path(PathBuf),
}

/// How slow the model without weights is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fake {
    /// Every step.
    pub step: Duration,
    /// And for each of its rows.
    pub row: Duration,
    /// Loading.
    pub load: Duration,
    /// Longest sequence, in tokens.
    pub context_tokens: u32,
}

impl Fake {
    /// Reads `fake`, or `fake:` and any of `step=`, `row=`, `load=`, each in milliseconds, with commas between.
    pub(super) fn read(text: &str) -> Option<Result<Self, OptionError>> {
        let delays = text.strip_prefix("fake").filter(|rest| rest.is_empty() || rest.starts_with(':'))?;
        let zero = Duration::ZERO;
        let mut model = Self { step: zero, row: zero, load: zero, context_tokens: 8192 };
        for delay in delays.trim_start_matches(':').split(',').filter(|delay| !delay.is_empty()) {
            let (name, value) = delay.split_once('=').unwrap_or((delay, ""));
            let place = match name {
                "step" => &mut model.step,
                "row" => &mut model.row,
                "load" => &mut model.load,
                _ => return Some(Err(Self::malformed(text))),
            };
            match value.parse::<f64>() {
                Ok(ms) if (0.0..=600_000.0).contains(&ms) => *place = Duration::from_secs_f64(ms / 1e3),
                _ => return Some(Err(Self::malformed(text))),
            }
        }
        Some(Ok(model))
    }

    fn malformed(text: &str) -> OptionError {
        let what = format!("is {text:?}; it must be fake:step=MS,row=MS,load=MS, or any part of that");
        OptionError { key: "model", what }
    }
}
