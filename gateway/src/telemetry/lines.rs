//! Lines on their way out: put together in memory and written by a thread of their own, so that a slow disk delays
//! nobody.

use crate::config::Destination;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Bytes that may wait for the writer; lines beyond are dropped, and whoever wrote them counts.
const WAITING_BYTES_MAX: usize = 4 << 20;
/// How long a line waits at most.
const FLUSH: Duration = Duration::from_millis(100);

/// The way out of one kind of line.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    waiting: Option<Arc<Mutex<Vec<u8>>>>,
}

impl Lines {
    /// Opens the destination and starts its writer, a thread of that name.
    ///
    /// # Errors
    ///
    /// When the file can't be opened.
    pub fn open(to: &Destination, thread: &str) -> io::Result<Self> {
        let mut out = match to {
            Destination::Off => return Ok(Self::default()),
            Destination::Stdout => Out::Stdout(io::stdout()),
            Destination::File(path) => Out::File(path.clone(), append(path)?),
        };
        let waiting = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::downgrade(&waiting);
        std::thread::Builder::new().name(thread.to_owned()).spawn(move || {
            let mut lines = Vec::new();
            while let Some(waiting) = shared.upgrade() {
                std::mem::swap(&mut lines, &mut *waiting.lock().unwrap_or_else(PoisonError::into_inner));
                drop(waiting);
                if !lines.is_empty() {
                    // A destination that has gone away loses lines, as a log may; it must not end the gateway.
                    let _ = out.write(&lines);
                    lines.clear();
                }
                std::thread::sleep(FLUSH);
            }
        })?;
        Ok(Self { waiting: Some(waiting) })
    }

    /// Whether lines go anywhere.
    pub fn are_wanted(&self) -> bool {
        self.waiting.is_some()
    }

    /// Puts in what `format` writes; false when there was no room.
    pub fn push(&self, format: impl FnOnce(&mut Vec<u8>)) -> bool {
        let Some(waiting) = &self.waiting else { return true };
        let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() > WAITING_BYTES_MAX {
            return false;
        }
        format(&mut waiting);
        true
    }

    /// Waits until the writer has taken everything, at the end of the program.
    pub fn drain(&self) {
        let Some(waiting) = &self.waiting else { return };
        for _ in 0..20 {
            if waiting.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
                break;
            }
            std::thread::sleep(FLUSH / 4);
        }
        std::thread::sleep(FLUSH / 4);
    }
}

enum Out {
    Stdout(io::Stdout),
    File(PathBuf, File),
}

impl Out {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout(out) => {
                out.write_all(lines)?;
                out.flush()
            }
            Self::File(path, file) => {
                // Whoever rotates logs moves the file away: what comes now belongs into a new one.
                let is_there = std::fs::metadata(&*path).ok().zip(file.metadata().ok());
                if is_there.is_none_or(|(there, ours)| (there.dev(), there.ino()) != (ours.dev(), ours.ino()))
                {
                    *file = append(path)?;
                }
                file.write_all(lines)
            }
        }
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// Writes a JSON string. Most texts here need no escapes, so they are copied as they are.
pub fn string(out: &mut Vec<u8>, text: &str) {
    let is_plain = text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\');
    if is_plain {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else if let Ok(escaped) = serde_json::to_vec(text) {
        out.extend_from_slice(&escaped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn wait_for(path: &Path, text: &str) {
        let began = Instant::now();
        while std::fs::read_to_string(path).unwrap_or_default() != text {
            assert!(began.elapsed() < Duration::from_mins(1), "{text:?} is not in {}", path.display());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_file_that_is_moved_away_is_begun_anew() {
        let folder = tempfile::tempdir().unwrap();
        let (path, moved) = (folder.path().join("log"), folder.path().join("log.1"));
        let lines = Lines::open(&Destination::File(path.clone()), "lines").unwrap();
        assert!(lines.push(|out| out.extend_from_slice(b"a\n")));
        wait_for(&path, "a\n");
        std::fs::rename(&path, &moved).unwrap();
        assert!(lines.push(|out| out.extend_from_slice(b"b\n")));
        wait_for(&path, "b\n");
        wait_for(&moved, "a\n");
    }

    #[test]
    fn what_nobody_writes_in_time_is_refused() {
        let lines = Lines { waiting: Some(Arc::default()) };
        assert!(lines.push(|out| out.resize(WAITING_BYTES_MAX + 1, b'x')));
        assert!(!lines.push(|_| panic!("there is no room")));
        assert!(Lines::default().push(|_| panic!("nobody wants it")));
    }
}
