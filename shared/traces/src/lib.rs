//! What one request leaves in a trace, and its way to a collector (OTLP over HTTP).
//!
//! Spans are made when a request is over, from times that were measured anyway: nothing of a trace goes through
//! cores or the engine's thread. [`Place`] is what travels between processes, as `traceparent`; [`Trace`] gathers one
//! process's spans of one request; [`Tracer`] sends them, and drops them rather than let anybody wait.

mod endpoint;
pub mod name;
mod place;
mod span;
mod trace;
mod tracer;

pub use endpoint::Endpoint;
pub use place::Place;
pub use span::{Kind, Span};
pub use trace::Trace;
pub use tracer::{Origin, Tracer};
