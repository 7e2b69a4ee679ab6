//! Memory straight from the system, in huge pages where they are to be had: less to translate, faster to read.
#![expect(unsafe_code, reason = "mapped memory is not to be had from Vec")]

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use super::buffer::Buffer;

const HUGE_PAGE: usize = 2 << 20;
const CACHE_LINE: usize = 64;
/// What matrices smaller than this are carved from. Untouched pages of it take no memory.
const SHEET_BYTES: usize = 64 << 20;

/// Zeroed memory, aligned to a huge page, given back when dropped. Untouched pages cost nothing.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<libc::c_void>,
    bytes: usize,
    first: NonNull<u8>,
}

// SAFETY: it is only an address range of our own; who may touch what is for those who hold parts of it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// At least `bytes` zeros.
    ///
    /// # Errors
    ///
    /// How many bytes the system would not map.
    pub fn new(bytes: usize) -> Result<Self, usize> {
        let padded = bytes.next_multiple_of(HUGE_PAGE) + HUGE_PAGE;
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh anonymous mapping touches no memory of ours.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), padded, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(bytes);
        }
        let base = NonNull::new(base).expect("mmap does not map page zero");
        let offset = base.cast::<u8>().align_offset(HUGE_PAGE);
        // SAFETY: the offset is less than a huge page, and the mapping has one to spare.
        let first = unsafe { base.cast::<u8>().add(offset) };
        #[cfg(target_os = "linux")]
        // SAFETY: the range lies in the mapping. It is advice: a refusal changes nothing but speed.
        unsafe {
            libc::madvise(first.as_ptr().cast(), padded - HUGE_PAGE, libc::MADV_HUGEPAGE);
        }
        Ok(Self { base, bytes: padded, first })
    }

    /// Its first byte.
    pub fn first(&self) -> NonNull<u8> {
        self.first
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, whole, and whoever used a part of it held it alive.
        unsafe {
            libc::munmap(self.base.as_ptr(), self.bytes);
        }
    }
}

/// Large sheets of memory from which weights are cut one after the other, so that also small matrices lie in
/// huge pages. A sheet goes when all that was cut from it is gone.
#[derive(Debug, Default)]
pub struct Sheets {
    current: Mutex<Option<Sheet>>,
}

#[derive(Debug)]
struct Sheet {
    mapping: Arc<Mapping>,
    used: usize,
}

impl Sheets {
    /// `len` zeros.
    ///
    /// # Errors
    ///
    /// How many bytes the system would not map.
    pub fn cut(&self, len: usize) -> Result<Buffer<u8>, usize> {
        if len >= SHEET_BYTES / 4 {
            return Buffer::zeroed(len);
        }
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sheet = match current.take() {
            Some(sheet) if sheet.used + len <= SHEET_BYTES => sheet,
            _ => Sheet { mapping: Arc::new(Mapping::new(SHEET_BYTES)?), used: 0 },
        };
        // SAFETY: nothing was cut from here on yet, and the sheet has room for it.
        let buffer = unsafe { Buffer::cut(Arc::clone(&sheet.mapping), sheet.used, len) };
        sheet.used = (sheet.used + len).next_multiple_of(CACHE_LINE);
        *current = Some(sheet);
        Ok(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_a_sheet_are_apart_aligned_and_outlive_it() {
        let sheets = Sheets::default();
        let mut pieces: Vec<_> = [100, 0, SHEET_BYTES / 5, 64, SHEET_BYTES, SHEET_BYTES - (SHEET_BYTES / 5)]
            .map(|len| sheets.cut(len).unwrap())
            .into();
        drop(sheets);
        for (at, piece) in pieces.iter_mut().enumerate() {
            assert!(piece.iter().all(|&byte| byte == 0) && piece.as_ptr().addr().is_multiple_of(CACHE_LINE));
            piece.fill(at as u8 + 1);
        }
        for (at, piece) in pieces.iter().enumerate() {
            assert!(piece.iter().all(|&byte| byte == at as u8 + 1));
        }
    }
}
