//! Sockets, threads, signals: starts both ports, and ends them when told to.
//!
//! pingora's services run here without pingora's server, whose end waits out a fixed time even when nothing runs.

use crate::admin::Admin;
use crate::config::Config;
use crate::discovery;
use crate::discovery::lease::Leases;
use crate::gateway::Gateway;
use crate::http::door::Door;
use crate::store::{self, Redis};
use crate::tenants::{self, Keyring, Tenants};
use parking_lot::Mutex;
use pingora::apps::ServerApp;
use pingora::listeners::tls::TlsSettings;
use pingora::listeners::{L4BufferSettings, ListenerConfig};
use pingora::server::{Fds, ListenFds};
use pingora::services::Service as _;
use pingora::services::listening::Service;
use std::io;
use std::net::{TcpListener, ToSocketAddrs};
use std::os::fd::IntoRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Write buffer of a connection: one segment, so that an event leaves in one piece.
const WRITE_BUFFER_BYTES: usize = 1460;
/// How often expired leases, late replicas and room in the queue are looked for.
const TICK: Duration = Duration::from_millis(100);

/// A bound port.
struct Port {
    name: &'static str,
    address: String,
    fds: ListenFds,
}

impl Port {
    fn bind(name: &'static str, host: &str, port: u16) -> io::Result<Self> {
        let explain = |error: io::Error| {
            io::Error::new(error.kind(), format!("can't listen on {host}:{port}: {error}"))
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let address = (host, port).to_socket_addrs().map_err(explain)?.next();
        let address = address.ok_or_else(|| explain(io::ErrorKind::AddrNotAvailable.into()))?;
        let listener = TcpListener::bind(address).map_err(explain)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?.to_string();
        let mut fds = Fds::new();
        fds.add(address.clone(), listener.into_raw_fd());
        Ok(Self { name, address, fds: Arc::new(Mutex::new(fds)) })
    }

    /// Serves an application here until `shutdown` says so.
    fn serve<A: ServerApp + Send + Sync + 'static>(
        &self,
        app: A,
        tls: Option<TlsSettings>,
        runtime: &pingora_runtime::Runtime,
        shutdown: watch::Receiver<bool>,
    ) {
        let mut service = Service::new(self.name.to_owned(), app);
        // TLS reads records in pieces, plain text is read where it is wanted.
        let read_buffer = if tls.is_some() { 4096 } else { 0 };
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

/// Runs the gateway until a signal ends it.
///
/// # Errors
///
/// When a port is taken, a file can't be opened or a certificate can't be read.
pub fn run(config: Config) -> io::Result<()> {
    let public = Port::bind("public", &config.server.host, config.server.port)?;
    let admin = Port::bind("admin", &config.admin.host, config.admin.port)?;
    let tls = config.server.tls.as_ref().map(|(certificate, key)| tls(certificate, key)).transpose()?;
    let background = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("background")
        .enable_all()
        .build()?;
    // No work is stolen: a connection stays on its thread, and with it the idle connections it left there.
    let serving = pingora_runtime::Runtime::new_no_steal(config.server.threads, "serving");
    let administering = pingora_runtime::Runtime::new_no_steal(1, "admin");
    let access = crate::telemetry::AccessLog::open(&config.log.access)?;
    let drain = config.server.drain;
    let tenants = Arc::new(match &config.keys {
        Some(path) => {
            Tenants::of_file(path).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?
        }
        None => Tenants::open_to_all(),
    });
    let gateway = Arc::new(Gateway::new(config, tenants, access, background.handle().clone()));
    let leases = Arc::new(Leases::default());
    discovery::configured::apply(&gateway, None, &gateway.config.load_full());
    watch_sources(&gateway, &leases, background.handle());
    let (stop, stopped) = watch::channel(false);
    public.serve(Door::new(&gateway), tls, &serving, stopped.clone());
    admin.serve(Admin::new(gateway.clone(), leases.clone()), None, &administering, stopped);
    background.block_on(async {
        tokio::select! {
            () = tick(&gateway, &leases) => {}
            graceful = ended() => {
                if graceful {
                    drain_requests(&gateway, &stop, drain).await;
                }
            }
        }
    });
    gateway.access.drain();
    for runtime in [serving, administering] {
        runtime.shutdown_timeout(Duration::ZERO);
    }
    background.shutdown_background();
    Ok(())
}

/// Starts what watches the world for the gateway, for as long as it lives.
fn watch_sources(gateway: &Arc<Gateway>, leases: &Arc<Leases>, runtime: &tokio::runtime::Handle) {
    let config = gateway.config.load_full();
    if config.keys.is_some() {
        let changed = {
            let gateway = gateway.clone();
            move |ring: &Keyring| gateway.set_tenants(ring)
        };
        runtime.spawn(tenants::watch(gateway.tenants.clone(), changed));
    }
    if let Some(store) = &config.store {
        let store =
            Redis::new(store.url.reveal(), &store.prefix).expect("the configuration was checked with it");
        runtime.spawn(store::share(gateway.clone(), leases.clone(), Arc::new(store)));
    }
    for dns in &config.dns {
        runtime.spawn(discovery::dns::watch(gateway.clone(), dns.name.clone(), dns.interval));
    }
}

/// What time alone brings.
async fn tick(gateway: &Arc<Gateway>, leases: &Leases) {
    loop {
        tokio::time::sleep(TICK).await;
        leases.expire(gateway);
        gateway.tick();
    }
}

/// Waits for a signal; whether running requests may end first.
async fn ended() -> bool {
    let terminate = signal(SignalKind::terminate());
    let interrupt = signal(SignalKind::interrupt());
    let (Ok(mut terminate), Ok(mut interrupt)) = (terminate, interrupt) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => true,
        _ = interrupt.recv() => false,
    }
}

/// Takes nothing new, and waits until what runs has ended, for at most `longest`.
async fn drain_requests(gateway: &Gateway, stop: &watch::Sender<bool>, longest: Duration) {
    gateway.is_draining.store(true, Ordering::Relaxed);
    let running = gateway.running.load(Ordering::Relaxed);
    tracing::info!(running, "draining");
    // The receivers are the two services; if both are gone already, there is nobody to tell.
    let _ = stop.send(true);
    let all_ended = async {
        loop {
            let idle = gateway.idle.notified();
            if gateway.running.load(Ordering::Relaxed) == 0 {
                return;
            }
            let _ = tokio::time::timeout(Duration::from_millis(200), idle).await;
        }
    };
    let all_ended = tokio::time::timeout(longest, all_ended).await;
    let is_clean = all_ended.is_ok();
    tracing::info!(is_clean, "ended");
}

fn tls(certificate: &std::path::Path, key: &std::path::Path) -> io::Result<TlsSettings> {
    let invalid = |error: Box<pingora::Error>| io::Error::new(io::ErrorKind::InvalidInput, error.to_string());
    let (certificate, key) = (certificate.to_string_lossy(), key.to_string_lossy());
    let mut settings = TlsSettings::intermediate(&certificate, &key).map_err(invalid)?;
    settings.set_certificate_chain_file(&certificate).map_err(invalid)?;
    settings.set_private_key_file(&key).map_err(invalid)?;
    settings.enable_h2();
    Ok(settings)
}
