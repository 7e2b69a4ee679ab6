//! A new process takes the listening sockets over from an old one, so that no connection is refused in between.
//!
//! The new one gets to know its replicas first. Then it asks the old one on its admin port, which sends the sockets
//! through a Unix socket, takes nothing new and ends when its requests have.

use super::port::Port;
use super::{ADMIN, PUBLIC};
use crate::config::Config;
use crate::discovery::lease::Leases;
use crate::gateway::Gateway;
use pingora::server::Fds;
use shared::wire::{FleetList, Registration};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long the new process waits for its replicas before it takes over all the same.
const WARM_UP: Duration = Duration::from_secs(15);
/// Leases that the new process gives to replicas it learned from the old one, until they renew themselves.
const LEASE_S: u32 = 60;
/// How long one question to the old process may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The new process's part: the two ports.
///
/// # Errors
///
/// When no gateway runs there, or it hands nothing over.
pub async fn take_over(gateway: &Arc<Gateway>, leases: &Leases) -> io::Result<[Port; 2]> {
    let config = gateway.config.load_full();
    let socket = config.server.upgrade_socket.clone();
    let socket =
        socket.ok_or_else(|| io::Error::other("`server.upgrade_socket` is not set; both need it"))?;
    let fleet = ask(&config, "GET", "/fleet").await?;
    let fleet: FleetList = serde_json::from_slice(&fleet)?;
    for replica in fleet.replicas.iter().filter(|replica| replica.source == "lease") {
        let asked = Registration { url: replica.url.clone(), engine: None, lease_s: Some(LEASE_S) };
        leases.register(gateway, &asked).map_err(io::Error::other)?;
    }
    let ready = async {
        while !gateway.is_ready() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    if tokio::time::timeout(WARM_UP, ready).await.is_err() {
        tracing::warn!("no replica is ready; taking over all the same");
    }
    let receiving = tokio::task::spawn_blocking(move || {
        let mut fds = Fds::new();
        fds.get_from_sock(&*socket.to_string_lossy()).map(|()| fds.serialize()).map_err(io::Error::from)
    });
    ask(&config, "POST", "/upgrade").await?;
    let (names, sockets) = receiving.await??;
    let port = |name: &'static str| {
        let found = names.iter().zip(&sockets).find_map(|(key, socket)| {
            let address = key.strip_prefix(name)?.strip_prefix('=')?;
            Some(Port::of(name, address.to_owned(), *socket))
        });
        found.ok_or_else(|| io::Error::other(format!("the running gateway sent no {name} port")))
    };
    Ok([port(PUBLIC)?, port(ADMIN)?])
}

/// The old process's part: waits until it is asked, and returns when the sockets have gone.
pub async fn hand_over(gateway: &Arc<Gateway>, ports: [&Port; 2]) {
    loop {
        gateway.upgrade.notified().await;
        let Some(socket) = gateway.config.load().server.upgrade_socket.clone() else { continue };
        let mut fds = Fds::new();
        for port in ports {
            if let Some(socket) = port.socket() {
                fds.add(format!("{}={}", port.name, port.address), socket);
            }
        }
        let sending = tokio::task::spawn_blocking(move || fds.send_to_sock(&*socket.to_string_lossy()));
        match sending.await {
            Ok(Ok(_)) => {
                tracing::info!("handed over to another process");
                return;
            }
            Ok(Err(error)) => tracing::error!(%error, "nobody took the sockets"),
            Err(error) => tracing::error!(%error, "the hand-over failed"),
        }
    }
}

/// One question to the running gateway's admin port; the body of a good answer.
async fn ask(config: &Config, method: &str, path: &str) -> io::Result<Vec<u8>> {
    let asking = async {
        let mut stream = TcpStream::connect((config.admin.host.as_str(), config.admin.port)).await?;
        let key = config.admin.key.as_ref();
        let key = key.map(|key| format!("authorization: Bearer {}\r\n", key.reveal())).unwrap_or_default();
        let head = format!("{method} {path} HTTP/1.0\r\nhost: gateway\r\n{key}content-length: 0\r\n\r\n");
        stream.write_all(head.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        let end = memchr::memmem::find(&answer, b"\r\n\r\n").unwrap_or(answer.len());
        if answer.get(9..12) != Some(b"200") {
            let head = String::from_utf8_lossy(&answer[..end]).into_owned();
            return Err(io::Error::other(format!("the running gateway refuses {path}: {head}")));
        }
        Ok(answer.split_off((end + 4).min(answer.len())))
    };
    tokio::time::timeout(PATIENCE, asking).await?
}
