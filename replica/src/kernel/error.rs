//! What can go wrong on a device.

use std::fmt;

/// A fault of the device: the step that met it is lost, and so may be the device.
#[derive(Debug)]
pub enum Error {
    /// A thread of the pool panicked; holds its message.
    Thread(String),
    /// The device's own library failed (out of memory, device lost); holds its message.
    Device(String),
    /// A weight cannot be held as asked: its shape does not fit its kind.
    Shape(String),
}

/// Every operation may meet a fault of its device.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thread(what) => write!(f, "a compute thread panicked: {what}"),
            Self::Device(what) => write!(f, "the device failed: {what}"),
            Self::Shape(what) => write!(f, "{what}"),
        }
    }
}

impl std::error::Error for Error {}
