//! Takes the framing off a chunked body, in place, whatever way it was cut into reads.
//!
//! It keeps the state between reads and nothing else; trailers are dropped.

/// The bytes are not a chunked body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadChunk;

/// Longest chunk extension or trailer line that is tolerated.
const LINE_BYTES_MAX: usize = 8 * 1024;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Reading a size; `digits` have been read.
    Size { digits: u8 },
    /// Behind a size, up to the end of its line.
    SizeEnd,
    /// Inside a chunk.
    Data,
    /// Behind a chunk, where a line ends.
    DataEnd,
    /// In a trailer line; `bytes` of it have been read.
    Trailer { bytes: usize },
    /// Behind the last line.
    Done,
}

/// Decodes one body.
#[derive(Clone, Debug)]
pub struct Chunks {
    state: State,
    /// Bytes left of the current chunk, or its size as read so far.
    left: u64,
    line_bytes: usize,
}

impl Default for Chunks {
    /// At the start of a body.
    fn default() -> Self {
        Self { state: State::Size { digits: 0 }, left: 0, line_bytes: 0 }
    }
}

impl Chunks {
    /// Whether the last chunk and its trailers have been read.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Moves the payload within `raw` to its front and says how much there is. All of `raw` is used up;
    /// bytes behind the end of the body are an error, since nobody asked for them.
    pub fn decode(&mut self, raw: &mut [u8]) -> Result<usize, BadChunk> {
        let (mut from, mut to) = (0, 0);
        while from < raw.len() {
            if self.state == State::Data {
                let take = usize::try_from(self.left).unwrap_or(usize::MAX).min(raw.len() - from);
                raw.copy_within(from..from + take, to);
                from += take;
                to += take;
                self.left -= take as u64;
                if self.left == 0 {
                    self.state = State::DataEnd;
                }
                continue;
            }
            self.step(raw[from])?;
            from += 1;
        }
        Ok(to)
    }

    fn step(&mut self, byte: u8) -> Result<(), BadChunk> {
        self.state = match self.state {
            State::Size { digits } => match (byte as char).to_digit(16) {
                Some(digit) if digits < 15 => {
                    self.left = self.left * 16 + u64::from(digit);
                    State::Size { digits: digits + 1 }
                }
                None if digits > 0 && matches!(byte, b'\r' | b'\n' | b';' | b' ' | b'\t') => {
                    self.line_bytes = 0;
                    self.after_size(byte)?
                }
                _ => return Err(BadChunk),
            },
            State::SizeEnd => self.after_size(byte)?,
            State::DataEnd => match byte {
                b'\r' => State::DataEnd,
                b'\n' => State::Size { digits: 0 },
                _ => return Err(BadChunk),
            },
            State::Trailer { bytes } => match byte {
                b'\n' if bytes == 0 => State::Done,
                b'\n' => State::Trailer { bytes: 0 },
                b'\r' => State::Trailer { bytes },
                _ if bytes < LINE_BYTES_MAX => State::Trailer { bytes: bytes + 1 },
                _ => return Err(BadChunk),
            },
            State::Data | State::Done => return Err(BadChunk),
        };
        Ok(())
    }

    fn after_size(&mut self, byte: u8) -> Result<State, BadChunk> {
        self.line_bytes += 1;
        match byte {
            b'\n' if self.left == 0 => Ok(State::Trailer { bytes: 0 }),
            b'\n' => Ok(State::Data),
            _ if self.line_bytes < LINE_BYTES_MAX => Ok(State::SizeEnd),
            _ => Err(BadChunk),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encode(parts: &[Vec<u8>]) -> Vec<u8> {
        let mut out = Vec::new();
        for part in parts.iter().filter(|part| !part.is_empty()) {
            out.extend_from_slice(format!("{:x};x=y\r\n", part.len()).as_bytes());
            out.extend_from_slice(part);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"0\r\nTrailer: 1\r\n\r\n");
        out
    }

    #[test]
    fn bad_framing_is_refused() {
        for text in ["x\r\n", "\r\n", "5\r\nhelloXX", "0\r\n\r\nmore", "1111111111111111\r\n", "-1\r\n"] {
            assert_eq!(Chunks::default().decode(&mut text.as_bytes().to_vec()), Err(BadChunk), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_payload(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..8),
            step in 1usize..40,
        ) {
            let wire = encode(&parts);
            let mut chunks = Chunks::default();
            let mut got = Vec::new();
            for piece in wire.chunks(step) {
                prop_assert!(!chunks.is_done());
                let mut piece = piece.to_vec();
                let length = chunks.decode(&mut piece).unwrap();
                got.extend_from_slice(&piece[..length]);
            }
            prop_assert!(chunks.is_done());
            prop_assert_eq!(got, parts.concat());
        }
    }
}
