//! A file mapped read-only, so that replicas of one machine share its pages.
#![expect(unsafe_code, reason = "mapping a file is unsafe: see the one block")]

use std::fs::File;
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use replica_format::Error;

/// The bytes of a file.
#[derive(Debug)]
pub struct Mapped {
    path: PathBuf,
    map: Mmap,
}

impl Mapped {
    /// Maps a file.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let fail = |error: std::io::Error| Error::refused(error.to_string()).in_file(path.display());
        let file = File::open(path).map_err(fail)?;
        // SAFETY: the map is read-only and private to this process; nothing of ours writes to checkpoints.
        // A program that truncates the file under a running replica ends it by SIGBUS, as with any mapped
        // file; every offset we read was checked against the length at this moment.
        let map = unsafe { Mmap::map(&file) }.map_err(fail)?;
        Ok(Self { path: path.to_owned(), map })
    }

    /// All of it.
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Its length.
    pub fn len(&self) -> u64 {
        self.map.len() as u64
    }

    /// Names this file in an error.
    pub fn name(&self, error: Error) -> Error {
        error.in_file(self.path.display())
    }
}
