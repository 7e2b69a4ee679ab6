//! The client's side of one request, with what pingora leaves to its users.

use super::error::{Error, What};
use super::reply;
use pingora::ErrorType;
use pingora::apps::{HttpPersistentSettings, ReusedHttpStream};
use pingora::http::ResponseHeader;
use pingora::protocols::http::ServerSession;
use std::time::Duration;

/// Resolves when the client is gone. The whole body must have been read. Dropping the future loses nothing.
pub async fn client_gone(session: &mut ServerSession) {
    // With the body read, this waits for an end or an error; a pipelined request is kept for later.
    let _ = session.read_body_or_idle(true).await;
}

/// Writes body bytes and sends them at once. `false` when the client is gone.
pub async fn write(session: &mut ServerSession, bytes: &[u8]) -> bool {
    match session {
        // pingora would copy into `Bytes` first.
        ServerSession::H1(h1) => h1.write_body(bytes).await.is_ok(),
        other => other.write_response_body(bytes::Bytes::copy_from_slice(bytes), false).await.is_ok(),
    }
}

/// Whether the answer may be chunked: HTTP/1.0 knows no chunks.
pub fn knows_chunks(session: &ServerSession) -> bool {
    !session.is_http2() && session.req_header().version == http::Version::HTTP_11
}

/// Writes a comment line, which clients skip, into a stream of events; begins the stream if it has not begun.
pub async fn comment(session: &mut ServerSession, request_id: &str) -> bool {
    if session.response_written().is_none() && !begin_events(session, request_id).await {
        return false;
    }
    write(session, b": keep-alive\n\n").await
}

async fn begin_events(session: &mut ServerSession, request_id: &str) -> bool {
    let head = || -> pingora::Result<ResponseHeader> {
        let mut header = ResponseHeader::build_no_case(200, Some(6))?;
        header.insert_header(http::header::CONTENT_TYPE, "text/event-stream")?;
        header.insert_header(http::header::CACHE_CONTROL, "no-cache")?;
        header.insert_header("x-accel-buffering", "no")?;
        header.insert_header("x-request-id", request_id)?;
        if knows_chunks(session) {
            header.insert_header(http::header::TRANSFER_ENCODING, "chunked")?;
        }
        Ok(header)
    };
    match head() {
        Ok(header) => session.write_response_header(Box::new(header)).await.is_ok(),
        Err(_) => false,
    }
}

/// Reads the next request's head. `false` when there is none to answer.
pub async fn open(session: &mut ServerSession, limits: HeadLimits) -> bool {
    if let ServerSession::H1(h1) = session {
        h1.set_pipelining_enabled(true);
        h1.set_read_timeout(Some(limits.head));
    }
    session.set_write_timeout(Some(limits.client_idle));
    let read = pingora::time::timeout(KEEP_ALIVE + limits.head, session.read_request()).await;
    let fault = match read {
        Ok(Ok(true)) => return true,
        Ok(Ok(false)) => None,
        Ok(Err(error)) => match error.etype() {
            ErrorType::InvalidHTTPHeader | ErrorType::CustomCode(..) => {
                Some(Error::new(What::BadHttp, "the request's head is not well formed"))
            }
            _ => None,
        },
        Err(_) => Some(Error::new(What::BodyTooSlow, "the request's head did not arrive in time")),
    };
    if let Some(fault) = fault {
        reply::refuse_head(session, &fault).await;
    }
    false
}

/// Limits before a request is known.
#[derive(Clone, Copy, Debug)]
pub struct HeadLimits {
    /// Longest pause within a head.
    pub head: Duration,
    /// Longest pause of a client that reads.
    pub client_idle: Duration,
}

/// How long a connection may be idle between two requests.
const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// How long what a refused client still sends is read, so that it sees the refusal before the connection ends.
const LINGER: Duration = Duration::from_secs(2);

/// Ends one request: the connection goes on to the next, or is closed.
pub async fn close(mut session: ServerSession, keep: bool) -> Option<ReusedHttpStream> {
    if !keep || session.response_written().is_none() {
        if session.response_written().is_some() {
            let _ = pingora::time::timeout(LINGER, session.drain_request_body()).await;
        }
        session.shutdown().await;
        return None;
    }
    if session.get_keepalive().is_some() {
        session.set_keepalive(Some(KEEP_ALIVE.as_secs()));
    }
    let settings = HttpPersistentSettings::for_session(&session);
    let reusable = session.finish().await.ok()??;
    Some(ReusedHttpStream::from_reusable_stream(reusable, settings))
}
