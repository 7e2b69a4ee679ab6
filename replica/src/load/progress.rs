//! How far loading is: a bar on a terminal, else a line now and then.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use indicatif::{ProgressBar, ProgressStyle};

/// Told from any rank's thread.
#[derive(Debug)]
pub struct Progress {
    total_bytes: u64,
    bar: Option<ProgressBar>,
    /// Quarters that have been told.
    told: AtomicU64,
}

impl Progress {
    /// Of a model whose weights take `total_bytes`.
    pub fn new(total_bytes: u64) -> Self {
        let bar = (std::io::stderr().is_terminal() && total_bytes > 0).then(|| {
            let style = ProgressStyle::with_template("loading {bar:32} {bytes}/{total_bytes} {eta}");
            ProgressBar::new(total_bytes).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Self { total_bytes, bar, told: AtomicU64::new(0) }
    }

    /// So many bytes of weights have been read.
    pub fn note(&self, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(bytes);
            return;
        }
        let quarter = (bytes * 4).checked_div(self.total_bytes).unwrap_or(0).min(4);
        if self.told.fetch_max(quarter, Relaxed) < quarter {
            tracing::info!(percent = quarter * 25, megabytes = bytes >> 20, "loading weights");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
