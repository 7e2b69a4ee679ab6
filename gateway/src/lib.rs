//! The gateway shell.
