//! A replica process, a plain-socket client, and waiting for a condition.

mod http;
mod replica;

use std::time::{Duration, Instant};

pub use http::{Connection, Events, Reply};
pub use replica::{Replica, chat_body, run, with};

/// Longer than anything here takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `condition` holds.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < until, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
