//! A look into each tensor: enough to tell fine-tunes apart and to see a download that never finished.

use replica_format::Error;
use replica_format::facts::TensorFacts;
use xxhash_rust::xxh3::Xxh3;

/// Places looked at in a tensor.
const SAMPLES: usize = 8;
/// Bytes looked at in each: less than a page, so a look costs at most two page reads.
const SAMPLE_BYTES: usize = 1024;

/// Feeds samples of the tensor's bytes to the hash.
///
/// # Errors
///
/// When a matrix is nothing but zeros wherever one looks, as in a file that was reserved but not filled.
/// Vectors may rightly be zero.
pub fn look(tensor: &TensorFacts, file: &[u8], hash: &mut Xxh3) -> Result<(), Error> {
    let bytes = &file[tensor.offset as usize..(tensor.offset + tensor.bytes) as usize];
    let length = SAMPLE_BYTES.min(bytes.len());
    let mut zero = true;
    for sample in 0..SAMPLES {
        let start = (bytes.len() - length) * sample / (SAMPLES - 1);
        let seen = &bytes[start..start + length];
        zero &= seen.iter().all(|&byte| byte == 0);
        hash.update(seen);
    }
    if zero && tensor.shape.len() > 1 {
        return Err(Error::at(&tensor.name, "holds only zeros; the file's download did not finish"));
    }
    Ok(())
}
