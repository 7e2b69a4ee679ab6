//! A fleet in virtual time: the gateway's and the replicas' own cores, fake model, real decisions.

pub mod agenda;
pub mod check;
pub mod command;
pub mod fault;
pub mod fleet;
pub mod gateway;
pub mod policy;
pub mod proof;
pub mod replica;
pub mod scenario;
pub mod slo;
pub mod text;
