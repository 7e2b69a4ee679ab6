//! The listener: connections in, bounded in number and in time; and their graceful end.

use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::app::App;
use super::serve::serve;
use super::socket::Socket;

/// Connections at once; more wait in the system's backlog.
const CONNECTIONS_MAX: usize = 8192;
/// From a connection's last answer to the end of its next head.
const HEAD_MAX: Duration = Duration::from_secs(75);
/// Pause after the system has no more files to give.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `ending` says so; then lets what runs finish, and returns.
pub async fn listen(listener: TcpListener, app: Arc<App>, mut ending: watch::Receiver<bool>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    let last = ending.clone();
    loop {
        let place = places.clone().acquire_owned();
        let accepted = async {
            let place = place.await;
            (listener.accept().await, place)
        };
        tokio::select! {
            (accepted, place) = accepted => match accepted {
                Ok((stream, _)) => {
                    let connection = connection(stream, app.clone(), last.clone());
                    connections.spawn(async move {
                        connection.await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
            () = told(&mut ending) => break,
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Returns once `ending` says so, or whoever would say so is gone.
async fn told(ending: &mut watch::Receiver<bool>) {
    drop(ending.wait_for(|ending| *ending).await);
}

async fn connection(stream: TcpStream, app: Arc<App>, mut ending: watch::Receiver<bool>) {
    // Tokens go out one by one: waiting to fill a packet would hold them up.
    drop(stream.set_nodelay(true));
    app.metrics.connections.inc();
    let service = service_fn(|request| serve(app.clone(), request));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_MAX);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(Some(HEAD_MAX));
    let connection = builder.serve_connection(TokioIo::new(Socket::new(stream)), service);
    let mut connection = std::pin::pin!(connection);
    let outcome = tokio::select! {
        outcome = connection.as_mut() => outcome,
        () = told(&mut ending) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "connection ended");
    }
    app.metrics.connections.dec();
}
