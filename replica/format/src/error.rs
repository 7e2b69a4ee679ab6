//! Why a checkpoint cannot be used, in one line that names the file and the key or tensor at fault.

use std::fmt::{self, Write as _};

/// A refusal. Its text is one line, whatever the file holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// The bytes end before the header does, and the file goes on: at least this many are needed.
    Short {
        /// Bytes from the file's start. The header may turn out longer still.
        needed: u64,
    },
    /// The checkpoint is damaged, incomplete or of a kind we do not serve.
    Refused {
        /// The file at fault; empty until the caller has named it.
        file: String,
        /// Key or tensor and what is wrong with it.
        reason: String,
    },
}

impl Error {
    /// A refusal whose file the caller will name.
    pub fn refused(reason: impl Into<String>) -> Self {
        Self::Refused { file: String::new(), reason: reason.into() }
    }

    /// A refusal that names a key or tensor.
    pub fn at(what: &str, reason: impl fmt::Display) -> Self {
        Self::refused(format!("`{what}`: {reason}"))
    }

    /// The same, naming the file unless it is named already.
    #[must_use]
    pub fn in_file(self, name: impl fmt::Display) -> Self {
        match self {
            Self::Refused { file, reason } if file.is_empty() => {
                Self::Refused { file: name.to_string(), reason }
            }
            other => other,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = match self {
            Self::Short { needed } => format!("at least {needed} bytes of the file's start are needed"),
            Self::Refused { file, reason } if file.is_empty() => reason.clone(),
            Self::Refused { file, reason } => format!("{file}: {reason}"),
        };
        // Names come from the file: they may hold line breaks or a terminal's escapes.
        for letter in line.chars() {
            if letter.is_control() {
                write!(out, "{}", letter.escape_default())?;
            } else {
                out.write_char(letter)?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

/// Says why a file is not what its name promises, by its first bytes: empty, a Git LFS pointer, or zeros
/// where a download reserved space and never came back.
pub fn undelivered(start: &[u8]) -> Option<&'static str> {
    if start.is_empty() {
        return Some("the file is empty");
    }
    if start.starts_with(b"version https://git-lfs") {
        return Some("this is a Git LFS pointer, not the file itself; fetch it with `git lfs pull`");
    }
    if start.iter().take(64).all(|&byte| byte == 0) {
        return Some("the file begins with zeros; its download did not finish");
    }
    None
}
