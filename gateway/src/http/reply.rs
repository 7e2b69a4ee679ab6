//! Answers of our own, as JSON.

use super::error::{Error, What};
use pingora::http::ResponseHeader;
use pingora::protocols::http::ServerSession;

/// Writes one whole answer. `false` when the client is gone.
pub async fn write(
    session: &mut ServerSession,
    status: u16,
    content_type: &'static str,
    body: Vec<u8>,
    extra: &[(&'static str, &str)],
) -> bool {
    let written = async {
        let mut header = ResponseHeader::build_no_case(status, Some(extra.len() + 4))?;
        header.insert_header(http::header::CONTENT_TYPE, content_type)?;
        header.insert_header(http::header::CONTENT_LENGTH, body.len())?;
        for (name, value) in extra {
            header.insert_header(*name, *value)?;
        }
        let has_body = session.req_header().method != http::Method::HEAD && !body.is_empty();
        session.write_response_header(Box::new(header)).await?;
        if has_body {
            session.write_response_body(body.into(), true).await?;
        } else {
            session.finish_body().await?;
        }
        Ok::<(), Box<pingora::Error>>(())
    };
    written.await.is_ok()
}

/// A JSON answer without more headers.
pub async fn json(session: &mut ServerSession, status: u16, body: &impl serde::Serialize) -> bool {
    let body = serde_json::to_vec(body).unwrap_or_default();
    write(session, status, "application/json", body, &[]).await
}

/// An error in OpenAI's shape.
pub async fn error(
    session: &mut ServerSession,
    error: &Error,
    request_id: &str,
    attempts: u32,
    limits: &[(&'static str, String)],
) -> bool {
    let wait = error.retry_after.map(|wait| wait.as_secs_f64().ceil().max(1.0).to_string());
    let attempts = attempts.to_string();
    let mut extra = vec![("x-request-id", request_id)];
    extra.extend(limits.iter().map(|(name, value)| (*name, value.as_str())));
    if attempts != "0" {
        extra.push(("x-flotilla-attempts", &attempts));
    }
    if let Some(wait) = &wait {
        extra.push(("retry-after", wait));
    }
    if !error.what.should_retry() {
        extra.push(("x-should-retry", "false"));
    }
    if error.what == What::WrongMethod {
        extra.push(("allow", "GET, HEAD"));
    }
    write(session, error.what.status(), "application/json", error.body().to_json(), &extra).await
}

/// An error about a head that could not be read; the connection ends with it.
pub async fn refuse_head(session: &mut ServerSession, error: &Error) {
    let body = error.body().to_json();
    let header = || -> pingora::Result<ResponseHeader> {
        let mut header = ResponseHeader::build_no_case(error.what.status(), Some(3))?;
        header.insert_header(http::header::CONTENT_TYPE, "application/json")?;
        header.insert_header(http::header::CONTENT_LENGTH, body.len())?;
        Ok(header)
    };
    session.set_keepalive(None);
    // Nobody may be there any more, and there is nothing else to be done for them.
    if let Ok(header) = header()
        && session.write_response_header(Box::new(header)).await.is_ok()
    {
        let _ = session.write_response_body(body.into(), true).await;
    }
}
