//! The real binary between scripted replicas and plain-socket clients.

mod bodies;
mod chaos;
mod failover;
mod http;
mod lifecycle;
mod membership;
mod streams;
mod support;
