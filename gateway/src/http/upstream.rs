//! The connections to replicas: idle ones per thread, checked before use and dropped when they have grown old.
//!
//! A connection never changes its thread, so no lock is taken. Which replica is right is not decided here.

use super::endpoint::Endpoint;
use pingora::connectors::TransportConnector;
use pingora::protocols::Stream;
use shared::id::ReplicaId;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, ReadBuf};

/// An idle connection is not used after this: common servers close theirs after 5 s and more.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// Idle connections of one thread to one replica.
const IDLE_CONNECTIONS_MAX: usize = 256;
/// How often a thread looks for idle connections that were closed or are too old.
const SWEEP: Duration = Duration::from_secs(2);

#[derive(Debug)]
struct Idle {
    stream: Stream,
    since: Instant,
    epoch: u32,
}

#[derive(Debug, Default)]
struct Pool {
    idle: BTreeMap<ReplicaId, Vec<Idle>>,
    is_swept: bool,
}

thread_local! {
    static POOL: RefCell<Pool> = RefCell::default();
}

/// An idle connection to the replica that looks alive.
pub fn take(replica: ReplicaId, endpoint: &Endpoint) -> Option<Stream> {
    POOL.with_borrow_mut(|pool| {
        let idle = pool.idle.get_mut(&replica)?;
        while let Some(mut candidate) = idle.pop() {
            if candidate.epoch != endpoint.epoch() || candidate.since.elapsed() >= IDLE_MAX {
                continue;
            }
            if is_alive(&mut candidate.stream) {
                return Some(candidate.stream);
            }
            // Closed by the other side: it may not be the same process that listens there now.
            endpoint.distrust();
        }
        None
    })
}

/// Keeps a connection for the next request on this thread.
pub fn put_back(replica: ReplicaId, endpoint: &Endpoint, stream: Stream) {
    let starts_sweeping = POOL.with_borrow_mut(|pool| {
        let idle = pool.idle.entry(replica).or_default();
        if idle.len() < IDLE_CONNECTIONS_MAX {
            idle.push(Idle { stream, since: Instant::now(), epoch: endpoint.epoch() });
        }
        !std::mem::replace(&mut pool.is_swept, true)
    });
    if starts_sweeping {
        tokio::spawn(sweep());
    }
}

/// A new connection.
pub async fn connect(
    connector: &TransportConnector,
    endpoint: &Endpoint,
    timeout: Duration,
) -> Result<Stream, Box<pingora::Error>> {
    let Some(peer) = endpoint.peer(timeout) else {
        return pingora::Error::e_explain(pingora::ErrorType::ConnectNoRoute, "the name does not resolve");
    };
    connector.new_stream(&peer).await
}

/// Nobody has closed it, and nobody has sent what was not asked for.
fn is_alive(stream: &mut Stream) -> bool {
    let mut byte = [0; 1];
    let mut context = Context::from_waker(Waker::noop());
    let read = Pin::new(stream).poll_read(&mut context, &mut ReadBuf::new(&mut byte));
    matches!(read, Poll::Pending)
}

/// Closes what is of no more use, as long as this thread lives. Runs on the thread whose pool it sweeps.
async fn sweep() {
    loop {
        tokio::time::sleep(SWEEP).await;
        POOL.with_borrow_mut(|pool| {
            pool.idle.retain(|_, idle| {
                idle.retain_mut(|candidate| {
                    candidate.since.elapsed() < IDLE_MAX && is_alive(&mut candidate.stream)
                });
                !idle.is_empty()
            });
        });
    }
}
