//! The real binary with the model without weights, spoken to over plain sockets.

mod bounds;
mod chat;
mod completions;
mod disconnect;
mod lifecycle;
mod metrics;
mod options;
mod refusals;
mod streams;
mod support;
