//! A real run beside the simulation's prediction of it: the same sessions, machines as fast as requests that were
//! alone say they are.

pub mod command;
pub mod fit;
pub mod prediction;
