//! The highest load that a fleet takes within its SLO.

pub mod command;
pub mod file;
pub mod search;
