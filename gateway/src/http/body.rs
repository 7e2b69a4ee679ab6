//! Reads a request's body whole, within its limits.

use super::error::{Error, What};
use bytes::{Bytes, BytesMut};
use flate2::read::MultiGzDecoder;
use http::header;
use pingora::http::ResponseHeader;
use pingora::protocols::http::ServerSession;
use std::io::Read;
use std::time::Duration;

/// Room made ahead for a body of announced length; a liar gets no more until its bytes arrive.
const RESERVE_BYTES_MAX: usize = 1 << 20;

/// Limits of one body.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes, before and after decompression.
    pub bytes_max: usize,
    /// Longest pause of the client.
    pub idle: Duration,
}

/// The whole body, decompressed.
///
/// # Errors
///
/// When it is over a limit, or the client stopped; the connection can't carry another request then.
pub async fn read(session: &mut ServerSession, limits: Limits) -> Result<Bytes, Error> {
    let announced = content_length(session);
    if announced.is_some_and(|length| length > limits.bytes_max) {
        return Err(too_large(limits));
    }
    if is_continue_expected(session) {
        let header = ResponseHeader::build_no_case(100, Some(0)).expect("100 is a status");
        session.write_response_header(Box::new(header)).await.map_err(|_| stopped())?;
    }
    let Some(first) = part(session, limits).await? else { return Ok(Bytes::new()) };
    let body = if announced == Some(first.len()) {
        first
    } else {
        let mut whole = BytesMut::with_capacity(
            announced.unwrap_or(0).clamp(first.len(), RESERVE_BYTES_MAX.max(first.len())),
        );
        whole.extend_from_slice(&first);
        while let Some(more) = part(session, limits).await? {
            whole.extend_from_slice(&more);
            if whole.len() > limits.bytes_max {
                return Err(too_large(limits));
            }
        }
        whole.freeze()
    };
    decode(session, body, limits)
}

async fn part(session: &mut ServerSession, limits: Limits) -> Result<Option<Bytes>, Error> {
    match pingora::time::timeout(limits.idle, session.read_request_body()).await {
        Ok(Ok(part)) => Ok(part),
        Ok(Err(error)) if matches!(error.etype(), pingora::ErrorType::ReadTimedout) => Err(too_slow()),
        Ok(Err(_)) => Err(stopped()),
        Err(_) => Err(too_slow()),
    }
}

fn content_length(session: &ServerSession) -> Option<usize> {
    session.get_header(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn is_continue_expected(session: &ServerSession) -> bool {
    let expects = session
        .get_header(header::EXPECT)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    expects && !session.is_http2()
}

fn decode(session: &ServerSession, body: Bytes, limits: Limits) -> Result<Bytes, Error> {
    match session.get_header_bytes(header::CONTENT_ENCODING) {
        b"" | b"identity" => Ok(body),
        encoding if encoding.eq_ignore_ascii_case(b"gzip") || encoding.eq_ignore_ascii_case(b"x-gzip") => {
            let mut plain = Vec::new();
            let most = limits.bytes_max as u64 + 1;
            MultiGzDecoder::new(&body[..]).take(most).read_to_end(&mut plain).map_err(|_| {
                Error::new(What::BadBody, "the body is not gzip, though content-encoding says so")
            })?;
            if plain.len() > limits.bytes_max { Err(too_large(limits)) } else { Ok(plain.into()) }
        }
        _ => Err(Error::new(What::UnknownEncoding, "content-encoding must be gzip or identity")),
    }
}

fn too_large(limits: Limits) -> Error {
    Error::new(
        What::BodyTooLarge,
        format!("the request body is over the limit of {} bytes", limits.bytes_max),
    )
}

fn too_slow() -> Error {
    Error::new(What::BodyTooSlow, "the request body did not arrive in time")
}

fn stopped() -> Error {
    Error::new(What::BadHttp, "the request body broke off or is not well framed")
}
