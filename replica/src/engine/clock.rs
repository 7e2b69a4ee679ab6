//! The shell's one clock: nanoseconds since the process first asked.

use std::sync::OnceLock;

use shared::time::Instant;

/// Now, as cores understand it. Every `Request::arrival` and deadline must come from here.
pub fn now() -> Instant {
    static ORIGIN: OnceLock<std::time::Instant> = OnceLock::new();
    let origin = ORIGIN.get_or_init(std::time::Instant::now);
    Instant(u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
}
