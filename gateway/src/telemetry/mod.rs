//! Turns what happened into metrics and lines of logs. Prompts, answers and keys never come here.

mod access;
mod history;
mod lines;
mod logs;
mod metrics;
mod page;
mod trace;
mod usage;

pub use access::Line;
pub use history::{History, Pace, STEP, Sample};
pub use logs::Logs;
pub use metrics::{FAILURES, Metrics, NO_MODEL};
pub use page::Moment;
pub use trace::Trace;
pub use usage::Used;

/// How a request ended, as clients and operators tell it apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Outcome {
    /// Answered by the first replica that was asked.
    Ok,
    /// Answered, after another replica had failed.
    FailedOver,
    /// Answered, and the stream changed replicas on its way.
    Continued,
    /// The client's own fault.
    ClientError,
    /// The client left.
    ClientClosed,
    /// Refused, since there was no room.
    Shed,
    /// Nobody takes work.
    NoReplica,
    /// Every attempt failed.
    Failed,
    /// The answer broke off.
    Broken,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Ok,
        Self::FailedOver,
        Self::Continued,
        Self::ClientError,
        Self::ClientClosed,
        Self::Shed,
        Self::NoReplica,
        Self::Failed,
        Self::Broken,
    ];

    /// The word for labels and logs.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::FailedOver => "failed_over",
            Self::Continued => "continued",
            Self::ClientError => "client_error",
            Self::ClientClosed => "client_closed",
            Self::Shed => "shed",
            Self::NoReplica => "no_replica",
            Self::Failed => "failed",
            Self::Broken => "broken",
        }
    }
}
