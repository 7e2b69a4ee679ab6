//! An answer coming in from a replica: its head, then its body as it arrives, framing taken off.
//!
//! It knows HTTP/1.1 and nothing of what the bytes mean.

use super::chunked::Chunks;
use pingora::http::ResponseHeader;
use pingora::protocols::Stream;
use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Poll, ready};
use tokio::io::{AsyncRead, ReadBuf};

/// Room for one read. Each thread has it once: thousands of streams wait at the same time, and none holds room for
/// what has not come.
const READ_BYTES: usize = 64 * 1024;
/// What a stream may keep between two events.
const KEPT_BYTES_MAX: usize = 1024;
/// Most bytes of a head, status line and headers together.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Most headers of an answer.
const HEADERS_MAX: usize = 100;

/// How the end of the body shows itself.
#[derive(Clone, Debug)]
enum Framing {
    Length(u64),
    Chunked(Chunks),
    UntilClose,
    Done,
}

/// What is known before any byte of the body.
#[derive(Debug)]
pub struct Head {
    /// Status and end-to-end headers; hop-by-hop ones are gone, content-length too.
    pub header: Box<ResponseHeader>,
    /// The body's length, when it was said.
    pub length: Option<u64>,
    /// Whether the body is a stream of server-sent events.
    pub is_event_stream: bool,
}

/// The body behind a head.
#[derive(Debug)]
pub struct Body {
    stream: Stream,
    buffer: Vec<u8>,
    framing: Framing,
    keep_alive: bool,
    /// Payload bytes at the front of `buffer`.
    ready: usize,
}

/// Reads one head, stepping over 1xx ones, and gives what follows it.
///
/// # Errors
///
/// `UnexpectedEof` with nothing read when the connection was closed; `InvalidData` when it is no HTTP.
pub async fn read_head(mut stream: Stream, is_head_request: bool) -> Result<(Head, Body), (io::Error, bool)> {
    let mut buffer = Vec::new();
    loop {
        match read(&mut stream, &mut buffer).await {
            Ok(0) => return Err((io::ErrorKind::UnexpectedEof.into(), !buffer.is_empty())),
            Ok(_) => {}
            Err(error) => return Err((error, !buffer.is_empty())),
        }
        while let Some((parsed, used)) = parse(&buffer, is_head_request).map_err(|error| (error, true))? {
            buffer.drain(..used);
            if let Some((head, framing, keep_alive)) = parsed {
                let mut body = Body { stream, buffer, framing, keep_alive, ready: 0 };
                body.decode().map_err(|error| (error, true))?;
                return Ok((head, body));
            }
        }
        if buffer.len() > HEAD_BYTES_MAX {
            return Err((invalid("head too long"), true));
        }
    }
}

/// Waits for bytes and adds them to `buffer`; none of them is the end.
async fn read(stream: &mut Stream, buffer: &mut Vec<u8>) -> io::Result<usize> {
    thread_local! {
        static ROOM: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());
    }
    let read = |context: &mut std::task::Context<'_>| {
        ROOM.with_borrow_mut(|room| {
            let mut room = ReadBuf::new(room);
            ready!(Pin::new(&mut *stream).poll_read(context, &mut room))?;
            buffer.extend_from_slice(room.filled());
            Poll::Ready(Ok(room.filled().len()))
        })
    };
    std::future::poll_fn(read).await
}

type Parsed = (Head, Framing, bool);

/// One head and how many bytes it took; an inner `None` is an informational one, an outer one asks for more bytes.
fn parse(bytes: &[u8], is_head_request: bool) -> io::Result<Option<(Option<Parsed>, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let used = match response.parse(bytes) {
        Ok(httparse::Status::Complete(used)) => used,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(invalid("not an HTTP answer")),
    };
    let status = response.code.unwrap_or(0);
    if (100..200).contains(&status) {
        return if status == 101 { Err(invalid("unasked upgrade")) } else { Ok(Some((None, used))) };
    }
    let keep_alive_by_default = response.version == Some(1);
    Ok(Some((Some(collect(status, response.headers, keep_alive_by_default, is_head_request)?), used)))
}

fn collect(
    status: u16,
    headers: &[httparse::Header<'_>],
    mut keep_alive: bool,
    is_head_request: bool,
) -> io::Result<Parsed> {
    let mut header =
        ResponseHeader::build_no_case(status, Some(headers.len() + 6)).map_err(|_| invalid("bad status"))?;
    let (mut length, mut chunked, mut is_event_stream) = (None, false, false);
    for line in headers {
        if line.name.eq_ignore_ascii_case("content-length") {
            let value = std::str::from_utf8(line.value).ok().and_then(|text| text.trim().parse::<u64>().ok());
            let value = value.ok_or_else(|| invalid("bad content-length"))?;
            if length.replace(value).is_some_and(|before| before != value) {
                return Err(invalid("two content-lengths"));
            }
        } else if line.name.eq_ignore_ascii_case("transfer-encoding") {
            chunked = true;
        } else if line.name.eq_ignore_ascii_case("connection") {
            keep_alive = match line.value {
                value if value.eq_ignore_ascii_case(b"close") => false,
                value if value.eq_ignore_ascii_case(b"keep-alive") => true,
                _ => keep_alive,
            };
        } else if !super::headers::is_hop_by_hop(line.name) {
            if line.name.eq_ignore_ascii_case("content-type") {
                is_event_stream = line.value.starts_with(b"text/event-stream");
            }
            let name =
                http::HeaderName::from_bytes(line.name.as_bytes()).map_err(|_| invalid("bad header"))?;
            let value = http::HeaderValue::from_bytes(line.value).map_err(|_| invalid("bad header"))?;
            header.append_header(name, value).map_err(|_| invalid("bad header"))?;
        }
    }
    let framing = match length {
        _ if is_head_request || status == 204 || status == 304 => Framing::Done,
        _ if chunked => Framing::Chunked(Chunks::default()),
        Some(0) => Framing::Done,
        Some(length) => Framing::Length(length),
        None => Framing::UntilClose,
    };
    let length = if chunked { None } else { length };
    Ok((Head { header: Box::new(header), length, is_event_stream }, framing, keep_alive))
}

impl Body {
    /// Whether all of the body has been read.
    pub fn is_done(&self) -> bool {
        match &self.framing {
            Framing::Done => true,
            Framing::Chunked(chunks) => chunks.is_done(),
            Framing::Length(_) | Framing::UntilClose => false,
        }
    }

    /// Payload that has arrived and was not yet taken.
    pub fn payload(&self) -> &[u8] {
        &self.buffer[..self.ready]
    }

    /// Forgets the payload seen so far.
    pub fn consume(&mut self) {
        self.ready = 0;
        if self.buffer.capacity() > KEPT_BYTES_MAX {
            self.buffer = Vec::new();
        } else {
            self.buffer.clear();
        }
    }

    /// Waits until there is payload or the end. Dropping the future loses nothing.
    ///
    /// # Errors
    ///
    /// When the connection breaks before the body's end, or its framing is wrong.
    pub async fn fill(&mut self) -> io::Result<()> {
        while self.ready == 0 && !self.is_done() {
            self.buffer.clear();
            if read(&mut self.stream, &mut self.buffer).await? == 0 {
                if matches!(self.framing, Framing::UntilClose) {
                    self.framing = Framing::Done;
                    self.keep_alive = false;
                    return Ok(());
                }
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.decode()?;
        }
        Ok(())
    }

    /// The connection, when another request may use it.
    pub fn into_reusable(self) -> Option<Stream> {
        (self.keep_alive && self.is_done()).then_some(self.stream)
    }

    fn decode(&mut self) -> io::Result<()> {
        let arrived = self.buffer.len();
        self.ready = match &mut self.framing {
            Framing::Chunked(chunks) => chunks.decode(&mut self.buffer).map_err(|_| invalid("bad chunk"))?,
            Framing::Length(left) => {
                let take = usize::try_from(*left).unwrap_or(usize::MAX).min(arrived);
                *left -= take as u64;
                if *left == 0 {
                    self.framing = Framing::Done;
                }
                self.keep_alive &= take == arrived;
                take
            }
            Framing::UntilClose => arrived,
            Framing::Done => {
                self.keep_alive &= arrived == 0;
                0
            }
        };
        Ok(())
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
