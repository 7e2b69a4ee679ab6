//! The step loop and what it is told.

pub mod command;
