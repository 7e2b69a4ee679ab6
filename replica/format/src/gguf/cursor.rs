//! Reads little-endian numbers and texts off a slice, and never beyond it.

use crate::Error;

/// A place in the first bytes of a file.
#[derive(Debug)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Length of the whole file, of which `bytes` may be the start.
    file_bytes: u64,
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8], file_bytes: u64) -> Self {
        Self { bytes, at: 0, file_bytes }
    }

    /// Bytes read so far.
    pub fn at(&self) -> u64 {
        self.at as u64
    }

    /// What is left of the slice.
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// The next `count` bytes; `what` is being read and named when they are not there.
    pub fn take(&mut self, count: u64, what: &str) -> Result<&'a [u8], Error> {
        if let Some(found) = usize::try_from(count).ok().and_then(|count| self.rest().get(..count)) {
            self.at += found.len();
            return Ok(found);
        }
        let needed = self.at().saturating_add(count);
        if needed <= self.file_bytes && self.file_bytes > self.bytes.len() as u64 {
            return Err(Error::Short { needed });
        }
        Err(Error::at(
            what,
            format!("the file is truncated or damaged: its header ends at byte {}", self.bytes.len()),
        ))
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Error> {
        let mut value = [0; N];
        value.copy_from_slice(self.take(N as u64, what)?);
        Ok(value)
    }

    pub fn u8(&mut self, what: &str) -> Result<u8, Error> {
        self.array::<1>(what).map(|[byte]| byte)
    }

    pub fn u16(&mut self, what: &str) -> Result<u16, Error> {
        self.array(what).map(u16::from_le_bytes)
    }

    pub fn u32(&mut self, what: &str) -> Result<u32, Error> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub fn u64(&mut self, what: &str) -> Result<u64, Error> {
        self.array(what).map(u64::from_le_bytes)
    }

    pub fn f32(&mut self, what: &str) -> Result<f32, Error> {
        self.array(what).map(f32::from_le_bytes)
    }

    pub fn f64(&mut self, what: &str) -> Result<f64, Error> {
        self.array(what).map(f64::from_le_bytes)
    }

    /// A length and that many bytes of UTF-8.
    pub fn text(&mut self, what: &str) -> Result<&'a str, Error> {
        let length = self.u64(what)?;
        let bytes = self.take(length, what)?;
        std::str::from_utf8(bytes).map_err(|_| Error::at(what, "a text is not UTF-8"))
    }
}
