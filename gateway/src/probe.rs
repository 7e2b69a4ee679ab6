//! Asks each replica, again and again, who it is and how it does, and tells the fleet.

use crate::engine::{self, Reply};
use crate::gateway::{Gateway, Peer};
use crate::http::{fetch, upstream};
use gateway_core::fleet::Report;
use gateway_core::replica::Engine;
use pingora::protocols::Stream;
use shared::time::Instant;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::AsyncReadExt;

/// A probe out of turn comes no sooner than this after the last: a dying replica must not be hammered.
const PAUSE_MIN: Duration = Duration::from_millis(100);

/// Watches one replica until it is gone.
pub async fn watch(gateway: Arc<Gateway>, peer: Arc<Peer>) {
    let mut engine = peer.engine;
    let mut connection = None;
    while !peer.is_gone.load(Ordering::Relaxed) {
        let probe = gateway.config.load().probe;
        let at = gateway.now();
        let asked = ask(&gateway, &peer, &mut engine, &mut connection, at);
        let report = tokio::time::timeout(probe.timeout, asked).await.unwrap_or_else(|_| {
            tracing::debug!(replica = %peer.endpoint.authority, "probe timed out");
            None
        });
        if report.is_none() {
            connection = None;
            peer.endpoint.distrust();
            engine = peer.engine;
        }
        gateway.probed(&peer, report);
        peer.endpoint.set_watched(connection.is_some());
        rest(&peer, probe.interval, &mut connection).await;
    }
}

/// Waits for the next round, with an eye on the connection: when it ends, its process may have, and another may
/// have taken its place.
async fn rest(peer: &Peer, interval: Duration, connection: &mut Option<Stream>) {
    let began = tokio::time::Instant::now();
    let asked = peer.probe_now.notified();
    let ended = async {
        match connection {
            Some(stream) => stream.read(&mut [0; 1]).await.map_or(true, |_| true),
            None => std::future::pending().await,
        }
    };
    let has_ended = tokio::select! {
        () = tokio::time::sleep(interval) => false,
        () = asked => false,
        ended = ended => ended,
    };
    if has_ended {
        *connection = None;
        peer.endpoint.set_watched(false);
        peer.endpoint.distrust();
    }
    tokio::time::sleep_until(began + PAUSE_MIN.min(interval)).await;
}

/// One round: who are you, if that is not known, and how do you do.
async fn ask(
    gateway: &Gateway,
    peer: &Peer,
    engine: &mut Option<Engine>,
    connection: &mut Option<Stream>,
    at: Instant,
) -> Option<Report> {
    if let Err(error) = peer.endpoint.resolve().await {
        tracing::debug!(replica = %peer.endpoint.authority, %error, "does not resolve");
        return None;
    }
    let known = if let Some(known) = *engine {
        known
    } else {
        let found = detect(gateway, peer, connection).await?;
        tracing::info!(replica = %peer.endpoint.authority, engine = engine::word(found), "found out");
        *engine.insert(found)
    };
    let replies = replies(gateway, peer, engine::paths(known), connection).await?;
    engine::read(known, &replies, at)
        .inspect_err(|why| tracing::debug!(replica = %peer.endpoint.authority, why = why.0, "unreadable"))
        .ok()
}

async fn detect(gateway: &Gateway, peer: &Peer, connection: &mut Option<Stream>) -> Option<Engine> {
    let report = replies(gateway, peer, engine::paths(Engine::Flotilla), connection).await?;
    if report.first().is_some_and(engine::is_ours) {
        return Some(Engine::Flotilla);
    }
    engine::detect(&replies(gateway, peer, engine::DETECTION_PATHS, connection).await?)
}

/// Asks one path after the other. A path without an answer gets an empty reply, unless it is the first: then nobody
/// is there.
async fn replies(
    gateway: &Gateway,
    peer: &Peer,
    paths: &[&str],
    connection: &mut Option<Stream>,
) -> Option<Vec<Reply>> {
    let timeouts = gateway.config.load().timeouts;
    let mut replies = Vec::with_capacity(paths.len());
    for path in paths {
        let reply = match get(gateway, peer, path, connection, timeouts.connect).await {
            Some(reply) => reply,
            None if replies.is_empty() => return None,
            None => Reply::default(),
        };
        replies.push(reply);
    }
    Some(replies)
}

async fn get(
    gateway: &Gateway,
    peer: &Peer,
    path: &str,
    connection: &mut Option<Stream>,
    connect: Duration,
) -> Option<Reply> {
    // A kept connection may have been closed meanwhile: once more on a new one.
    if let Some(stream) = connection.take()
        && let Ok((reply, stream)) = fetch::get(stream, &peer.endpoint, path).await
    {
        *connection = stream;
        return Some(reply);
    }
    let stream = upstream::connect(&gateway.connector, &peer.endpoint, connect).await.ok()?;
    let (reply, stream) = fetch::get(stream, &peer.endpoint, path).await.ok()?;
    *connection = stream;
    Some(reply)
}
