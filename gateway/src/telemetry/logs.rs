//! The two logs that are written line by line: who asked what, and who used how much.

use super::access::{self, Line};
use super::lines::Lines;
use super::usage::{self, Used};
use crate::config;
use std::io;
use std::time::SystemTime;

/// Where the lines go.
#[derive(Clone, Debug, Default)]
pub struct Logs {
    access: Lines,
    usage: Lines,
}

impl Logs {
    /// Opens both and starts their writers.
    ///
    /// # Errors
    ///
    /// When a file can't be opened.
    pub fn open(config: &config::Log) -> io::Result<Self> {
        let access = Lines::open(&config.access, "access-log")?;
        Ok(Self { access, usage: Lines::open(&config.usage, "usage-log")? })
    }

    /// Puts a line into the access log; false when there was no room.
    pub fn write(&self, line: &Line<'_>) -> bool {
        self.access.push(|out| access::format(out, line, SystemTime::now()))
    }

    /// Whether a usage log is kept.
    pub fn bills(&self) -> bool {
        self.usage.are_wanted()
    }

    /// Puts a line into the usage log; false when there was no room.
    pub fn bill(&self, used: &Used<'_>) -> bool {
        self.usage.push(|out| usage::format(out, used, SystemTime::now()))
    }

    /// Waits until everything is written, at the end of the program.
    pub fn drain(&self) {
        self.access.drain();
        self.usage.drain();
    }
}
