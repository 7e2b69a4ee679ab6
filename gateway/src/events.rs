//! Follows what our replicas say they keep and forget, so that the prefix index is exact where it can be.

use crate::gateway::{Gateway, Peer};
use crate::http::answer::read_head;
use crate::http::stream::Lines;
use crate::http::upstream;
use gateway_core::prefix_index::{PieceChange, Sync};
use gateway_core::replica::Engine;
use shared::wire::PieceEvents;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::AsyncWriteExt;

/// Pause between two attempts to follow.
const PAUSE: Duration = Duration::from_secs(1);
/// A stream that is silent for longer is opened anew: replicas write comments more often.
const SILENCE_MAX: Duration = Duration::from_mins(1);

/// Follows one replica until it is gone; does nothing while it is none of ours.
pub async fn follow(gateway: Arc<Gateway>, peer: Arc<Peer>) {
    while !peer.is_gone.load(Ordering::Relaxed) {
        if peer.identity.load().engine == Engine::Flotilla {
            let ended = listen(&gateway, &peer).await;
            gateway.lost_events(peer.id);
            if let Err(error) = ended {
                tracing::debug!(replica = %peer.endpoint.authority, %error, "events ended");
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// One stream of events, to its end.
async fn listen(gateway: &Gateway, peer: &Peer) -> io::Result<()> {
    let connect = gateway.config.load().timeouts.connect;
    let stream = upstream::connect(&gateway.connector, &peer.endpoint, connect).await;
    let mut stream = stream.map_err(|error| io::Error::other(error.to_string()))?;
    stream.write_all(crate::http::fetch::head(&peer.endpoint, "/fleet/events").as_bytes()).await?;
    stream.flush().await?;
    let answer = tokio::time::timeout(SILENCE_MAX, read_head(stream, false)).await?;
    let (head, mut body) = answer.map_err(|(error, _)| error)?;
    if !head.header.status.is_success() {
        return Err(io::Error::other(format!("status {}", head.header.status)));
    }
    let mut lines = Lines::default();
    loop {
        let whole = lines.push(body.payload());
        for line in whole.split(|&byte| byte == b'\n') {
            let Some(data) = line.strip_prefix(b"data:") else { continue };
            let events: PieceEvents = serde_json::from_slice(data.trim_ascii())?;
            if gateway.pieces_changed(peer, &events) == Sync::Lost {
                return Err(io::Error::other("a gap in the numbers"));
            }
        }
        body.consume();
        if body.is_done() || peer.is_gone.load(Ordering::Relaxed) {
            return Ok(());
        }
        tokio::time::timeout(SILENCE_MAX, body.fill()).await??;
    }
}

impl Gateway {
    /// What a replica says it stored and evicted; of another instance than ours, nothing is believed.
    fn pieces_changed(&self, peer: &Peer, events: &PieceEvents) -> Sync {
        if events.instance != peer.identity.load().instance {
            return Sync::Lost;
        }
        let pieces = |hexes: &[String]| -> Vec<u128> {
            hexes.iter().filter_map(|hex| u128::from_str_radix(hex, 16).ok()).collect()
        };
        let (stored, evicted) = (pieces(&events.stored), pieces(&events.evicted));
        let change =
            PieceChange { seq: events.seq, is_reset: events.reset, stored: &stored, evicted: &evicted };
        self.apply_pieces(peer.id, change)
    }
}
