//! What a run looks like while it goes on, on a terminal.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::load::Tally;

/// Between two looks.
const PERIOD: Duration = Duration::from_millis(250);

/// A line that is kept up to date; nothing where there is no terminal.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// For so many sessions.
    pub fn new(requests: u64, label: &str, is_quiet: bool) -> Self {
        let target = if is_quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let style = ProgressStyle::with_template("{prefix} {elapsed_precise} {wide_bar} {pos}/{len} {msg}");
        let bar = ProgressBar::with_draw_target(Some(requests), target);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_prefix(label.to_owned());
        Self { bar }
    }

    /// Looks again and again, for ever.
    pub async fn follow(&self, tally: &Tally) {
        let (mut then, mut ended_then) = (Instant::now(), 0);
        loop {
            tokio::time::sleep(PERIOD).await;
            let ended = tally.ended.load(Ordering::Relaxed);
            let sent = tally.sent.load(Ordering::Relaxed);
            let per_s = (ended - ended_then) as f64 / then.elapsed().as_secs_f64();
            (then, ended_then) = (Instant::now(), ended);
            self.bar.set_position(ended as u64);
            self.bar.set_message(format!(
                "{} at once, {per_s:.1}/s, {} failed",
                sent - ended,
                tally.failed.load(Ordering::Relaxed)
            ));
        }
    }

    /// The line goes.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
