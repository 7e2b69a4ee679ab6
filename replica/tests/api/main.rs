//! The real binary with the model without weights, spoken to over plain sockets.

#![expect(clippy::unwrap_used, reason = "all of it is a test")]
#![expect(clippy::float_cmp, reason = "series count whole things")]

mod bounds;
mod chat;
mod completions;
mod continuation;
mod disconnect;
mod fleet;
mod lifecycle;
mod metrics;
mod options;
mod prompt_logprobs;
mod refusals;
mod responses;
mod soak;
mod streams;
mod structure;
mod support;
mod tools;
