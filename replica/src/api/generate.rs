//! Runs one understood request: waits for the first token or the first error, then answers in events or at once.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame};

use super::answer::Delta;
use super::app::App;
use super::choices::Choices;
use super::plan::Plan;
use super::record::Origin;
use super::respond::{self, Response, json_response};
use super::served::Served;
use super::speech::Speech;
use crate::error::Error;

/// Events that are ready together go out together, up to about this many bytes.
const FRAME_BYTES: usize = 16 << 10;

/// Answers. Dropping the future or the response's body aborts the sequences.
pub async fn generate(
    plan: Plan,
    origin: Origin,
    tells_ids: bool,
    app: &Arc<App>,
    served: &Arc<Served>,
) -> Result<Response, Error> {
    let mut speech = Speech::new(&plan, served, tells_ids);
    app.held.expect(&plan.landed);
    let mut choices = Choices::start(&plan, origin, app, served)?;
    if plan.options.stream.is_none() {
        return whole(plan.choices(), &mut speech, &mut choices).await;
    }
    // No head is sent before there is a token: until then an error has a status of its own.
    let first = choices.delta().await.ok_or_else(|| Error::failed("no choice was run"))??;
    let timing = choices.server_timing();
    let events = Events {
        choices,
        speech,
        begun: vec![!plan.answered().is_empty(); plan.choices()],
        first: Some(first),
        is_over: false,
    };
    let mut response = respond::stream(events.boxed_unsync());
    add_timing(&mut response, timing);
    Ok(response)
}

async fn whole(count: usize, speech: &mut Speech, choices: &mut Choices) -> Result<Response, Error> {
    let mut deltas = vec![Delta::default(); count];
    while let Some(delta) = choices.delta().await {
        let (index, delta) = delta?;
        deltas[index].piece.extend(delta.piece);
        deltas[index].tokens.extend(delta.tokens);
        deltas[index].prompt.extend(delta.prompt);
        deltas[index].finish = delta.finish;
    }
    let mut response = json_response(http::StatusCode::OK, speech.whole(deltas, choices.usage()));
    add_timing(&mut response, choices.server_timing());
    Ok(response)
}

fn add_timing(response: &mut Response, timing: Option<String>) {
    let value = timing.and_then(|timing| HeaderValue::from_str(&timing).ok());
    if let Some(value) = value {
        response.headers_mut().insert(HeaderName::from_static("server-timing"), value);
    }
}

/// The body of a stream.
struct Events {
    choices: Choices,
    speech: Speech,
    begun: Vec<bool>,
    first: Option<(usize, Delta)>,
    is_over: bool,
}

impl Events {
    fn write(&mut self, out: &mut Vec<u8>, index: usize, delta: &Delta) {
        let usage = self.choices.usage();
        if !std::mem::replace(&mut self.begun[index], true) {
            self.speech.write_begin(out, index, usage);
        }
        self.speech.write_delta(out, index, delta, usage);
    }

    /// Ends the stream: the usage and `[DONE]`, or one event with the error and nothing after it.
    fn end(&mut self, out: &mut Vec<u8>, error: Option<&Error>) {
        self.is_over = true;
        match error {
            Some(error) => {
                tracing::warn!(error = %error, "stream ended by an error");
                self.speech.write_error(out, error);
            }
            None => self.speech.write_end(out, self.choices.usage()),
        }
    }
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        let mut out = Vec::new();
        while !this.is_over && out.len() < FRAME_BYTES {
            if let Some((index, delta)) = this.first.take() {
                this.write(&mut out, index, &delta);
            }
            match this.choices.poll_delta(context) {
                Poll::Ready(Some(Ok((index, delta)))) => this.write(&mut out, index, &delta),
                Poll::Ready(Some(Err(error))) => this.end(&mut out, Some(&error)),
                Poll::Ready(None) => this.end(&mut out, None),
                Poll::Pending if out.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        if out.is_empty() { Poll::Ready(None) } else { Poll::Ready(Some(Ok(Frame::data(out.into())))) }
    }
}
