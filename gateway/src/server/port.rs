//! A listening socket, bound here or taken over from the process before, and the application served on it.

use parking_lot::Mutex;
use pingora::apps::ServerApp;
use pingora::listeners::tls::TlsSettings;
use pingora::listeners::{L4BufferSettings, ListenerConfig};
use pingora::server::{Fds, ListenFds};
use pingora::services::Service as _;
use pingora::services::listening::Service;
use std::io;
use std::net::{TcpListener, ToSocketAddrs};
use std::os::fd::{IntoRawFd, RawFd};
use std::sync::Arc;
use tokio::sync::watch;

/// Write buffer of a connection: one segment, so that an event leaves in one piece.
const WRITE_BUFFER_BYTES: usize = 1460;
/// Read buffer of a connection with TLS, whose records are read in pieces; plain text is read where it is wanted.
const TLS_READ_BUFFER_BYTES: usize = 4096;

/// A bound port.
pub struct Port {
    /// What it is for.
    pub name: &'static str,
    /// Where it listens.
    pub address: String,
    fds: ListenFds,
}

impl Port {
    /// Binds a socket.
    ///
    /// # Errors
    ///
    /// Names the address.
    pub fn bind(name: &'static str, host: &str, port: u16) -> io::Result<Self> {
        let explain = |error: io::Error| {
            io::Error::new(error.kind(), format!("can't listen on {host}:{port}: {error}"))
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let address = (host, port).to_socket_addrs().map_err(explain)?.next();
        let address = address.ok_or_else(|| explain(io::ErrorKind::AddrNotAvailable.into()))?;
        let listener = TcpListener::bind(address).map_err(explain)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?.to_string();
        Ok(Self::of(name, address, listener.into_raw_fd()))
    }

    /// A socket that another process bound.
    pub fn of(name: &'static str, address: String, socket: RawFd) -> Self {
        let mut fds = Fds::new();
        fds.add(address.clone(), socket);
        Self { name, address, fds: Arc::new(Mutex::new(fds)) }
    }

    /// The socket, to be handed to another process while this one still listens.
    pub fn socket(&self) -> Option<RawFd> {
        self.fds.lock().get(&self.address).copied()
    }

    /// Serves an application here until `shutdown` says so.
    pub fn serve<A: ServerApp + Send + Sync + 'static>(
        &self,
        app: A,
        tls: Option<TlsSettings>,
        runtime: &pingora_runtime::Runtime,
        shutdown: watch::Receiver<bool>,
    ) {
        let mut service = Service::new(self.name.to_owned(), app);
        let read_buffer = if tls.is_some() { TLS_READ_BUFFER_BYTES } else { 0 };
        let listener = ListenerConfig::tcp(self.address.clone())
            .l4_buffer(L4BufferSettings::new(read_buffer, WRITE_BUFFER_BYTES));
        service.add_listener(match tls {
            Some(tls) => listener.tls(tls),
            None => listener,
        });
        let fds = self.fds.clone();
        runtime.get_handle().spawn(async move { service.start_service(Some(fds), shutdown, 1).await });
        println!("listening on {} ({})", self.address, self.name);
    }
}
