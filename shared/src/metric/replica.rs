//! What the replica exports.

use super::Metric;

/// All of them.
pub const ALL: &[Metric] = &[];
