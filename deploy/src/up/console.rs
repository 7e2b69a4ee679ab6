//! What a user sees of `flotilla up`: every process's lines, each with its speaker, and one line of status below.
//!
//! A thread of its own writes, so that a terminal that stands still (Ctrl-S) stops neither supervision nor
//! replicas. What doesn't fit the queue meanwhile is dropped and counted.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Lines that wait for the terminal.
const LINES_MAX: usize = 4096;
/// Without a terminal, the status is printed when it changes, and at most this often.
const SPARSE: Duration = Duration::from_secs(5);
/// How long the end waits for the last lines.
const FLUSH: Duration = Duration::from_secs(1);
/// ANSI colours of speakers, in turn.
const COLOURS: [u8; 6] = [36, 33, 35, 32, 34, 31];

#[derive(Debug)]
enum Message {
    Line { who: String, text: String },
    Status(Option<String>),
}

/// A handle to the writing thread.
#[derive(Clone, Debug)]
pub struct Console {
    queue: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
}

impl Console {
    /// Starts the thread. It ends when every handle is gone; see [`wait`].
    pub fn start() -> (Self, JoinHandle<()>) {
        let (queue, messages) = sync_channel(LINES_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let theirs = Arc::clone(&dropped);
        let thread = std::thread::spawn(move || Writer::new(theirs).run(&messages));
        (Self { queue, dropped }, thread)
    }

    /// A line that `who` said.
    pub fn line(&self, who: &str, text: impl Into<String>) {
        self.send(Message::Line { who: who.to_owned(), text: text.into() });
    }

    /// What is being waited for; `None` when nothing is.
    pub fn status(&self, text: Option<String>) {
        self.send(Message::Status(text));
    }

    fn send(&self, message: Message) {
        if self.queue.try_send(message).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Waits for the last lines, but not for a terminal that stands still.
pub fn wait(console: Console, thread: &JoinHandle<()>) {
    drop(console);
    let begun = Instant::now();
    while !thread.is_finished() && begun.elapsed() < FLUSH {
        std::thread::sleep(Duration::from_millis(5));
    }
}

struct Writer {
    dropped: Arc<AtomicU64>,
    is_coloured: bool,
    speakers: Vec<String>,
    bar: Option<ProgressBar>,
    printed: (Option<Instant>, String),
}

impl Writer {
    fn new(dropped: Arc<AtomicU64>) -> Self {
        let is_coloured = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { dropped, is_coloured, speakers: Vec::new(), bar: None, printed: (None, String::new()) }
    }

    fn run(mut self, messages: &Receiver<Message>) {
        loop {
            match messages.recv_timeout(Duration::from_millis(100)) {
                Ok(Message::Line { who, text }) => self.line(&who, &text),
                Ok(Message::Status(status)) => self.status(status),
                Err(RecvTimeoutError::Timeout) => self.bar.iter().for_each(ProgressBar::tick),
                Err(RecvTimeoutError::Disconnected) => return self.status(None),
            }
            match self.dropped.swap(0, Ordering::Relaxed) {
                0 => {}
                lost => self.line("flotilla", &format!("{lost} lines came faster than they could be shown")),
            }
        }
    }

    /// Writing may fail (the terminal was closed); the fleet goes on until it is told to stop.
    fn line(&mut self, who: &str, text: &str) {
        let prefix = self.prefix(who);
        let write = || {
            let mut out = std::io::stdout().lock();
            let _ = writeln!(out, "{prefix} {text}").and_then(|()| out.flush());
        };
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    fn prefix(&mut self, who: &str) -> String {
        let position = self.speakers.iter().position(|speaker| speaker == who).unwrap_or_else(|| {
            self.speakers.push(who.to_owned());
            self.speakers.len() - 1
        });
        let padded = format!("{who:<10}|");
        if self.is_coloured {
            format!("\x1b[{}m{padded}\x1b[0m", COLOURS[position % COLOURS.len()])
        } else {
            padded
        }
    }

    fn status(&mut self, status: Option<String>) {
        let Some(text) = status else {
            if let Some(bar) = self.bar.take() {
                bar.finish_and_clear();
            }
            return;
        };
        if std::io::stderr().is_terminal() {
            self.bar.get_or_insert_with(spinner).set_message(text);
            return;
        }
        let is_due = self.printed.0.is_none_or(|at| at.elapsed() >= SPARSE);
        if is_due && self.printed.1 != text {
            self.line("flotilla", &text);
            self.printed = (Some(Instant::now()), text);
        }
    }
}

fn spinner() -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {msg} [{elapsed}]");
    let bar = ProgressBar::new_spinner();
    bar.set_style(style.expect("the template is a constant that parses"));
    bar
}
