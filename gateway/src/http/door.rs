//! Which HTTP a new connection of the public port speaks.
//!
//! pingora would wait for as many bytes as HTTP/2's preface has, and the shortest requests of HTTP/1.0 have fewer.

use super::front::Front;
use crate::gateway::Gateway;
use async_trait::async_trait;
use pingora::apps::ServerApp;
use pingora::protocols::Stream;
use pingora::server::ShutdownWatch;
use std::sync::Arc;
use std::time::Duration;

/// How HTTP/2 without TLS begins; no method of HTTP/1 begins so.
const PREFACE: &[u8; 3] = b"PRI";

/// A client that connects and says nothing is left after this.
const PATIENCE: Duration = Duration::from_secs(75);

/// The application of the public port.
#[derive(Debug)]
pub struct Door {
    http1: Arc<Front>,
    http2: Arc<Front>,
}

impl Door {
    /// For one gateway.
    pub fn new(gateway: &Arc<Gateway>) -> Self {
        let front = |h2c| Arc::new(Front::new(gateway.clone(), h2c));
        Self { http1: front(false), http2: front(true) }
    }
}

#[async_trait]
impl ServerApp for Door {
    async fn process_new(self: &Arc<Self>, mut stream: Stream, shutdown: &ShutdownWatch) -> Option<Stream> {
        let mut start = [0; PREFACE.len()];
        // With TLS, the handshake has said which it is.
        if stream.get_ssl_digest().is_none() {
            pingora::time::timeout(PATIENCE, stream.try_peek(&mut start)).await.ok()?.ok()?;
        }
        let front = if &start == PREFACE { &self.http2 } else { &self.http1 };
        front.process_new(stream, shutdown).await
    }
}
