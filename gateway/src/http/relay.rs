//! Passes a replica's answer on to the client as it comes, and sees how it ends. Knows nothing of policy.

use super::answer::Body;
use super::exchange::Answer;
use super::request::Request;
use super::route::Api;
use super::session::{self, client_gone};
use super::stream::{self, Lines, Watcher};
use super::transcript::Transcript;
use http::header;
use pingora::http::ResponseHeader;
use pingora::protocols::http::ServerSession;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// How an answer ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Whole.
    Whole,
    /// The client left.
    ClientGone,
    /// The replica broke it off.
    Broken,
    /// The replica fell silent.
    Silent,
    /// The request's time was up.
    OutOfTime,
}

/// An answer under way to the client.
#[derive(Debug)]
pub struct Relay {
    /// What has been seen.
    pub watcher: Watcher,
    /// Body bytes sent.
    pub bytes_out: u64,
    lines: Option<Lines>,
    /// What a stream that may go on elsewhere has said.
    pub transcript: Option<Transcript>,
    /// What goes out next, when it is not what came in.
    out: Vec<u8>,
    /// The model's name that events must carry, escaped, and room to write them.
    rename: Option<(String, Vec<u8>)>,
    /// A stream of this API ends with `[DONE]`.
    needs_done: bool,
    /// The last time anything came from the replica.
    heard: Instant,
}

/// How long a silent stream is waited for.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// In any case.
    pub idle: Duration,
    /// When its replica is lost and another could go on.
    pub lost: Duration,
}

impl Patience {
    /// When to see again whether it was silent for too long.
    fn next_look(self, heard: Instant, now: Instant, request: &Request) -> Instant {
        let lost = if heard + self.lost > now { heard + self.lost } else { now + self.lost };
        lost.min(heard + self.idle).min(request.deadline)
    }
}

impl Relay {
    /// For an answer that has not begun at the client.
    pub fn new(is_event_stream: bool, needs_done: bool, transcript: Option<Transcript>) -> Self {
        Self {
            watcher: Watcher::new(is_event_stream),
            bytes_out: 0,
            lines: is_event_stream.then(Lines::default),
            transcript,
            out: Vec::new(),
            rename: None,
            needs_done,
            heard: Instant::now(),
        }
    }

    /// Whether events go to the client, and not one body.
    pub fn is_event_stream(&self) -> bool {
        self.lines.is_some()
    }

    /// Passes the body on to its end; `first_token` is called once, when it goes by. A silent stream ends after
    /// `patience.idle`, and after `patience.lost` already when `is_lost` says that nothing more can be hoped for.
    pub async fn run(
        &mut self,
        session: &mut ServerSession,
        body: &mut Body,
        request: &Request,
        patience: Patience,
        is_lost: impl Fn() -> bool,
        mut first_token: impl FnMut(),
    ) -> End {
        let timer = tokio::time::sleep_until(patience.next_look(self.heard, Instant::now(), request).into());
        tokio::pin!(timer);
        let mut has_begun = self.watcher.first_token.is_some();
        loop {
            if !body.payload().is_empty() {
                self.heard = Instant::now();
                if !self.pass(session, body.payload()).await {
                    return End::ClientGone;
                }
                body.consume();
                if self.has_failed() {
                    return End::Broken;
                }
                if !has_begun && self.watcher.first_token.is_some() {
                    has_begun = true;
                    first_token();
                }
            }
            if body.is_done() {
                return self.finish(session).await;
            }
            // The timer is not reset with every token: when it fires, it is seen whether something came since.
            tokio::select! {
                biased;
                filled = body.fill() => if filled.is_err() { return End::Broken },
                () = client_gone(session) => return End::ClientGone,
                () = timer.as_mut() => {
                    let now = Instant::now();
                    if now >= request.deadline {
                        return End::OutOfTime;
                    }
                    if now >= self.heard + patience.idle || (now >= self.heard + patience.lost && is_lost()) {
                        return End::Silent;
                    }
                    timer.as_mut().reset(patience.next_look(self.heard, now, request).into());
                }
            }
        }
    }

    /// Events carry this name of the model, whatever the replica calls it.
    pub fn rename(&mut self, model: &str) {
        let escaped = serde_json::Value::from(model).to_string();
        self.rename = Some((escaped[1..escaped.len() - 1].to_owned(), Vec::new()));
    }

    /// Another replica's answer follows: what was cut of the first one's last line is forgotten.
    pub fn change_replica(&mut self, as_prompt: u32) {
        self.lines = Some(Lines::default());
        self.heard = Instant::now();
        if let Some(transcript) = &mut self.transcript {
            transcript.change_replica(as_prompt);
        }
    }

    async fn pass(&mut self, session: &mut ServerSession, bytes: &[u8]) -> bool {
        let whole = match &mut self.lines {
            Some(lines) => lines.push(bytes),
            None => bytes,
        };
        self.out.clear();
        let passed = match &mut self.transcript {
            Some(transcript) => {
                transcript.pass(whole, &mut self.out);
                self.out.as_slice()
            }
            None => whole,
        };
        let passed = match &mut self.rename {
            Some((model, out)) => {
                out.clear();
                stream::rename(passed, model, out);
                out.as_slice()
            }
            _ => passed,
        };
        self.watcher.see(passed, self.heard);
        if let Some(usage) = self.transcript.as_ref().and_then(|transcript| transcript.hidden_usage) {
            self.watcher.usage = usage;
        }
        self.bytes_out += passed.len() as u64;
        passed.is_empty() || session::write(session, passed).await
    }

    /// Whether the replica has sent an error event in mid-stream.
    fn has_failed(&self) -> bool {
        self.transcript.as_ref().is_some_and(|transcript| transcript.error.is_some())
    }

    async fn finish(&mut self, session: &mut ServerSession) -> End {
        let rest = self.lines.as_ref().map_or(&[][..], Lines::rest);
        if !rest.is_empty() {
            self.watcher.see(rest, self.heard);
            if !session::write(session, rest).await {
                return End::ClientGone;
            }
        }
        self.watcher.end();
        if self.watcher.has_error || (self.needs_done && !self.watcher.is_done) {
            // It closed the body rightly, but the stream lacks its end.
            return End::Broken;
        }
        if session.finish_body().await.is_ok() { End::Whole } else { End::ClientGone }
    }
}

/// Writes the head of an answer. `false` when the client is gone.
pub async fn begin(
    session: &mut ServerSession,
    answer: &mut Answer,
    request: &Request,
    replica: &str,
) -> bool {
    if session.response_written().is_some_and(|header| header.status.as_u16() >= 200) {
        return true;
    }
    let head = &mut answer.head;
    // A body of known length is buffered until a segment is full; events are not to wait for that.
    let length = head.length.filter(|_| !head.is_event_stream);
    let header = &mut *head.header;
    let written = decorate(header, request, replica, head.is_event_stream);
    let framed = written.and_then(|()| frame(session, header, length));
    if framed.is_err() {
        return false;
    }
    let header = std::mem::replace(
        &mut head.header,
        Box::new(ResponseHeader::build_no_case(200, Some(0)).expect("200 is a status")),
    );
    session.write_response_header(header).await.is_ok()
}

fn frame(session: &ServerSession, header: &mut ResponseHeader, length: Option<u64>) -> pingora::Result<()> {
    match length {
        Some(length) => header.insert_header(header::CONTENT_LENGTH, length),
        None if session::knows_chunks(session) => header.insert_header(header::TRANSFER_ENCODING, "chunked"),
        None => Ok(()),
    }
}

/// Headers of ours, beside the replica's.
fn decorate(
    header: &mut ResponseHeader,
    request: &Request,
    replica: &str,
    is_event_stream: bool,
) -> pingora::Result<()> {
    header.insert_header("x-request-id", request.id.as_str())?;
    header.insert_header("x-flotilla-replica", replica)?;
    header.insert_header("x-flotilla-attempts", request.history.attempts)?;
    if request.renamed().is_some() {
        header.insert_header("x-flotilla-model", request.resolved.as_str())?;
    }
    for (name, value) in &request.limits {
        header.insert_header(*name, value.as_str())?;
    }
    let times = request.times;
    let ms = |duration: Duration| duration.as_secs_f64() * 1000.0;
    let mut timing = String::with_capacity(96);
    let _ = write!(
        timing,
        "queue;dur={:.1}, route;dur={:.2}, retry;dur={:.1}, connect;dur={:.1}, first_byte;dur={:.1}",
        ms(times.queue),
        ms(times.route),
        ms(times.retry),
        ms(times.connect),
        ms(times.first_byte)
    );
    // The replica's own queue and prefill times follow ours, when it says them.
    header.append_header("server-timing", timing)?;
    if is_event_stream {
        header.insert_header(header::CACHE_CONTROL, "no-cache")?;
        header.insert_header("x-accel-buffering", "no")?;
    }
    Ok(())
}

/// Whether broken streams of this API end with its own kind of event.
pub fn has_own_error_event(api: Api) -> bool {
    api == Api::Responses
}
