//! Reads a request's body whole: bounded in size, in time, and in encodings.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http_body_util::BodyExt;
use hyper::body::Body;
use serde_json::Value;

use crate::error::Error;

/// The longest a body may take to arrive.
const ARRIVAL_MAX: Duration = Duration::from_mins(2);
/// How long a refused body is still read, so that a client that sends first and reads later sees the refusal.
const DISCARD_MAX: Duration = Duration::from_secs(5);

/// All bytes.
///
/// # Errors
///
/// Too large, too slow, encoded, or broken off.
pub async fn read<B: Body<Data = Bytes> + Unpin>(
    headers: &HeaderMap,
    body: B,
    bytes_max: usize,
) -> Result<Bytes, Error> {
    if let Some(encoding) = headers.get(CONTENT_ENCODING).filter(|encoding| *encoding != "identity") {
        return Err(Error::encoded(&String::from_utf8_lossy(encoding.as_bytes())));
    }
    let declared = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    let mut body = body;
    let whole = if declared.is_some_and(|declared| declared > bytes_max as u64) {
        Err(Error::too_large(bytes_max))
    } else {
        let room = declared.unwrap_or(0) as usize;
        let whole = tokio::time::timeout(ARRIVAL_MAX, collect(&mut body, room, bytes_max)).await;
        whole.unwrap_or_else(|_| Err(Error::too_slow()))
    };
    if whole.is_err() {
        drop(tokio::time::timeout(DISCARD_MAX, discard(&mut body, bytes_max)).await);
    }
    whole
}

async fn collect<B: Body<Data = Bytes> + Unpin>(
    body: &mut B,
    room: usize,
    bytes_max: usize,
) -> Result<Bytes, Error> {
    let mut whole = BytesMut::with_capacity(room);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Error::malformed("the body broke off"))?;
        let Ok(data) = frame.into_data() else { continue };
        if whole.len() + data.len() > bytes_max {
            return Err(Error::too_large(bytes_max));
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}

/// Reads on to the end, or `bytes_max` bytes more.
async fn discard<B: Body<Data = Bytes> + Unpin>(body: &mut B, bytes_max: usize) {
    let mut discarded = 0;
    while let Some(Ok(frame)) = body.frame().await {
        discarded += frame.data_ref().map_or(0, Bytes::len);
        if discarded > bytes_max {
            return;
        }
    }
}

/// The bytes of the body's tools, as they were sent: a gateway hashes them so.
pub fn tools(body: &[u8]) -> &[u8] {
    #[derive(serde::Deserialize)]
    struct Tools<'a> {
        #[serde(borrow)]
        tools: &'a serde_json::value::RawValue,
    }
    serde_json::from_slice::<Tools<'_>>(body).map_or(b"", |found| found.tools.get().as_bytes())
}

/// The body as JSON.
pub fn parse(body: &[u8]) -> Result<Value, Error> {
    // Without serde_json's own words: they may quote what the client wrote.
    serde_json::from_slice(body).map_err(|error| {
        let what = if error.is_eof() { "ends too early" } else { "is not valid" };
        Error::malformed(format!("the JSON body {what} at line {}, column {}", error.line(), error.column()))
    })
}
