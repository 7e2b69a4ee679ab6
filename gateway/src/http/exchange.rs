//! Sends one request to one replica and brings the head of its answer back. Knows nothing of policy.

use super::answer::{Body, Head, read_head};
use super::{fetch, upstream};
use crate::engine;
use crate::gateway::{Gateway, Peer};
use bytes::{Buf, Bytes};
use gateway_core::retry::Failure;
use pingora::protocols::Stream;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;

/// A new connection carries a request without asking who is there if somebody asked less than this ago, and a watched
/// connection shows that the process has not ended since.
const VERIFIED_FOR: Duration = Duration::from_millis(250);

/// The bytes to send.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Request line and headers.
    pub head: &'a [u8],
    /// The body.
    pub body: &'a Bytes,
    /// Whether it is a HEAD request, whose answer has no body.
    pub is_head_request: bool,
    /// Longest wait for the first byte.
    pub first_byte: Duration,
    /// Not on an idle connection, which has just shown itself to be dead.
    pub fresh: bool,
}

/// An answer that has begun.
#[derive(Debug)]
pub struct Answer {
    /// Status and headers.
    pub head: Head,
    /// What follows.
    pub body: Body,
    /// Time until the connection stood; zero for an idle one.
    pub connect: Duration,
    /// Time from there to the first byte.
    pub first_byte: Duration,
}

/// Sends, and waits for the head; of a stream of events also for the first bytes, so that a replica that fails
/// before its first token can still be replaced unseen.
pub async fn send(gateway: &Gateway, peer: &Peer, outgoing: Outgoing<'_>) -> Result<Answer, Failure> {
    let began = Instant::now();
    let idle = if outgoing.fresh { None } else { upstream::take(peer.id, &peer.endpoint) };
    let (reused, kind) = match (&idle, outgoing.fresh) {
        (Some(_), _) => (true, "reused"),
        (None, true) => (false, "replaced"),
        (None, false) => (false, "fresh"),
    };
    let stream = match idle {
        Some(stream) => stream,
        None => connect(gateway, peer).await?,
    };
    gateway.metrics.connections.with_label_values(&[kind]).inc();
    let connect = if reused { Duration::ZERO } else { began.elapsed() };
    let connected = Instant::now();
    match pingora::time::timeout(outgoing.first_byte, exchange(stream, outgoing, reused)).await {
        Ok(Ok((head, body))) => Ok(Answer { head, body, connect, first_byte: connected.elapsed() }),
        Ok(Err(failure)) => {
            peer.endpoint.distrust();
            Err(failure)
        }
        Err(_) => Err(Failure::FirstByteLate),
    }
}

async fn exchange(mut stream: Stream, outgoing: Outgoing<'_>, reused: bool) -> Result<(Head, Body), Failure> {
    let mut bytes = outgoing.head.chain(outgoing.body.clone());
    // A replica may answer, and stop reading, before it has all: what it says counts, not that the write failed.
    if stream.write_all_buf(&mut bytes).await.is_ok() {
        let _ = stream.flush().await;
    }
    let (head, mut body) = match read_head(stream, outgoing.is_head_request).await {
        Ok(answer) => answer,
        Err((_, has_begun)) => return Err(Failure::Reset { reused: reused && !has_begun }),
    };
    if head.is_event_stream && head.header.status.is_success() {
        body.fill().await.map_err(|_| Failure::Reset { reused: false })?;
        if body.payload().starts_with(br#"data: {"error""#) {
            return Err(Failure::Status(500, None));
        }
    }
    Ok((head, body))
}

/// A new connection to a replica that is who we think it is.
async fn connect(gateway: &Gateway, peer: &Peer) -> Result<Stream, Failure> {
    let timeout = gateway.config.load().timeouts.connect;
    let open = async || {
        upstream::connect(&gateway.connector, &peer.endpoint, timeout).await.map_err(|error| {
            tracing::debug!(replica = %peer.endpoint.authority, %error, "can't connect");
            peer.endpoint.distrust();
            if *error.etype() == pingora::ErrorType::ConnectRefused {
                Failure::Refused
            } else {
                Failure::Unreachable
            }
        })
    };
    let stream = open().await?;
    if peer.endpoint.is_verified(gateway.now(), VERIFIED_FOR) {
        return Ok(stream);
    }
    let identity = peer.identity.load();
    let asked = fetch::get(stream, &peer.endpoint, engine::identity_path(identity.engine));
    let patience = gateway.config.load().probe.timeout;
    let Ok(Ok((reply, stream))) = pingora::time::timeout(patience, asked).await else {
        return Err(Failure::Unreachable);
    };
    if !engine::is_same(identity.engine, &identity, &reply) {
        tracing::warn!(replica = %peer.endpoint.authority, "somebody else answers here");
        peer.endpoint.forget_connections();
        peer.probe_now.notify_one();
        return Err(Failure::Stranger);
    }
    peer.endpoint.set_verified(gateway.now());
    match stream {
        Some(stream) => Ok(stream),
        None => open().await,
    }
}
