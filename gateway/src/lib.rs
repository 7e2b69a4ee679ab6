//! The gateway: one OpenAI endpoint over a fleet of replicas.
//!
//! [`config`] says what is wanted, [`server`] runs it. A request goes through [`http`] in the order of its steps;
//! [`gateway`] holds what they share, with the decisions of `gateway_core` behind it. [`discovery`] and [`probe`]
//! tell the fleet who is there and how they do, [`engine`] reads what each kind of replica says, [`admin`] and
//! [`telemetry`] show it.

pub mod admin;
pub mod config;
pub mod discovery;
pub mod engine;
pub mod events;
pub mod gateway;
pub mod http;
pub mod probe;
pub mod server;
pub mod status;
pub mod store;
pub mod telemetry;
pub mod tenants;
