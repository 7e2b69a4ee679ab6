//! What the gateway exports.

use super::Metric;

/// All of them.
pub const ALL: &[Metric] = &[];
