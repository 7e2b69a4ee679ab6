//! The gateway's decisions.
