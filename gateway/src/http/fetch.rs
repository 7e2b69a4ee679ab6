//! One small question to a replica on a connection, whole answer back: probes and identity checks.

use super::answer::{Body, read_head};
use super::endpoint::Endpoint;
use crate::engine::Reply;
use pingora::protocols::Stream;
use std::io;
use tokio::io::AsyncWriteExt;

/// Largest reply that is read; a list of models or a scrape is far smaller.
const REPLY_BYTES_MAX: usize = 8 << 20;

/// Asks `GET path`, and gives the connection back when it can carry more.
pub async fn get(mut stream: Stream, endpoint: &Endpoint, path: &str) -> io::Result<(Reply, Option<Stream>)> {
    stream.write_all(head(endpoint, path).as_bytes()).await?;
    stream.flush().await?;
    let (answer, body) = read_head(stream, false).await.map_err(|(error, _)| error)?;
    let (bytes, stream) = whole(body, REPLY_BYTES_MAX).await?;
    Ok((Reply { status: answer.header.status.as_u16(), body: bytes }, stream))
}

/// The head of such a question.
pub fn head(endpoint: &Endpoint, path: &str) -> String {
    let key = endpoint.key.as_ref().map(|key| format!("authorization: Bearer {key}\r\n")).unwrap_or_default();
    let base = &endpoint.base;
    let host = &endpoint.authority;
    format!("GET {base}{path} HTTP/1.1\r\nhost: {host}\r\naccept: */*\r\n{key}\r\n")
}

/// Reads a body to its end, and gives the connection back when it can carry more.
///
/// # Errors
///
/// When it breaks off or is larger than `bytes_max`.
pub async fn whole(mut body: Body, bytes_max: usize) -> io::Result<(Vec<u8>, Option<Stream>)> {
    let bytes = fill(&mut body, bytes_max).await?;
    Ok((bytes, body.into_reusable()))
}

/// All that is left of a body.
///
/// # Errors
///
/// See [`whole`].
pub async fn fill(body: &mut Body, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        bytes.extend_from_slice(body.payload());
        body.consume();
        if body.is_done() {
            return Ok(bytes);
        }
        if bytes.len() > bytes_max {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "body too large"));
        }
        body.fill().await?;
    }
}
