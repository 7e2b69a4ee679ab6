//! Where replicas come from. Each source tells the gateway who joined and who left; none of them decides anything.

pub mod configured;
pub mod dns;
pub mod lease;
pub mod roster;
