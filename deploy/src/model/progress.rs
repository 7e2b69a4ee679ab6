//! Bytes arriving, shown: a bar on a terminal, a line every tenth elsewhere.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

/// One download.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    what: String,
    bytes: u64,
    tenth: u64,
}

impl Progress {
    /// Announces it.
    pub fn new(what: &str, bytes: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{msg} [{bar:30}] {bytes}/{total_bytes} {eta}");
            let bar = ProgressBar::new(bytes);
            bar.set_style(style.expect("the template is a constant that parses").progress_chars("=> "));
            bar.set_message(what.to_owned());
            bar
        });
        if bar.is_none() {
            eprintln!("fetching {what}, {} MB", bytes / 1_000_000);
        }
        Self { bar, what: what.to_owned(), bytes, tenth: 0 }
    }

    /// So many bytes are here now.
    pub fn set(&mut self, seen: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(seen.min(self.bytes));
            return;
        }
        let tenth = seen.min(self.bytes) * 10 / self.bytes.max(1);
        if tenth > self.tenth {
            self.tenth = tenth;
            eprintln!("{}: {} %", self.what, tenth * 10);
        }
    }

    /// Takes the bar away.
    pub fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}
