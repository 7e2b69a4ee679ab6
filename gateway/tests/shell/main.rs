//! The real binary between scripted replicas and plain-socket clients.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::float_cmp, reason = "the numbers are whole")]

mod bodies;
mod chaos;
mod continuing;
mod dns;
mod failover;
mod http;
mod lifecycle;
mod many;
mod membership;
mod models;
mod policies;
mod renewal;
mod scaling;
mod secrets;
mod shadows;
mod status;
mod streams;
mod support;
mod tenants;
mod traces;
