//! Sockets, threads, signals: starts both ports, and ends them when told to.
//!
//! pingora's services run here without pingora's server, whose end waits out a fixed time even when nothing runs.

mod certificate;
mod port;
mod reload;
mod upgrade;

use crate::admin::Admin;
use crate::config::{Config, Flags, Keys};
use crate::discovery;
use crate::discovery::lease::Leases;
use crate::gateway::Gateway;
use crate::http::door::Door;
use crate::store::{self, Redis};
use crate::telemetry::Logs;
use crate::tenants::{self, Keyring, Tenants};
use certificate::Certificate;
use port::Port;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use traces::{Origin, Tracer};

/// The names of the two ports, in messages and in a hand-over.
const PUBLIC: &str = "public";
const ADMIN: &str = "admin";
/// Fewer open files than this are worth a warning.
const FILES_WANTED: u64 = 8192;
/// How often expired leases, late replicas and room in the queue are looked for.
const TICK: Duration = Duration::from_millis(100);

/// Runs the gateway until a signal ends it. With `is_upgrade` it takes over from the one that runs already.
///
/// # Errors
///
/// When a port is taken, a file can't be opened or a certificate can't be read.
pub fn run(flags: Flags, config: Config, is_upgrade: bool) -> io::Result<()> {
    raise_file_limit();
    let bound = if is_upgrade { None } else { Some(bind(&config)?) };
    let certificate =
        config.server.tls.as_ref().map(|(chain, key)| Certificate::load(chain, key)).transpose()?;
    let background = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("background")
        .enable_all()
        .build()?;
    // No work is stolen: a connection stays on its thread, and with it the idle connections it left there.
    let serving = pingora_runtime::Runtime::new_no_steal(config.server.threads, "serving");
    let administering = pingora_runtime::Runtime::new_no_steal(1, "admin");
    let logs = Logs::open(&config.log)?;
    let tenants = Arc::new(match &config.keys {
        Some(Keys::Store) => Tenants::of_store(),
        Some(Keys::File(path)) => {
            Tenants::of_file(path).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?
        }
        None => Tenants::open_to_all(),
    });
    let tracer = tracer(&config, background.handle())?;
    let mut gateway = Gateway::new(config, tenants, logs, background.handle().clone());
    gateway.tracer = tracer;
    let gateway = Arc::new(gateway);
    let leases = Arc::new(Leases::default());
    discovery::configured::apply(&gateway, None, &gateway.config.load_full());
    watch_sources(&gateway, &leases, background.handle());
    let [public, admin] = match bound {
        Some(ports) => ports,
        None => background.block_on(upgrade::take_over(&gateway, &leases))?,
    };
    let (stop, stopped) = watch::channel(false);
    let tls = certificate.as_ref().map(Certificate::settings).transpose()?;
    public.serve(Door::new(&gateway), tls, &serving, stopped.clone());
    admin.serve(Admin::new(gateway.clone(), leases.clone()), None, &administering, stopped);
    background.spawn(reload::watch(gateway.clone(), flags, certificate));
    background.block_on(async {
        let is_graceful = tokio::select! {
            () = tick(&gateway, &leases) => true,
            is_graceful = ended() => is_graceful,
            () = upgrade::hand_over(&gateway, [&public, &admin]) => true,
        };
        if is_graceful {
            drain_requests(&gateway, &stop).await;
        }
        if let Some(tracer) = &gateway.tracer {
            tracer.flush().await;
        }
    });
    gateway.logs.drain();
    // The process ends now, and its threads with it. Ending the runtimes in order would join threads that may
    // never come to an end of their own.
    std::mem::forget((serving, administering));
    background.shutdown_background();
    Ok(())
}

/// Takes all the open files that the system lets this process have: each stream needs two.
fn raise_file_limit() {
    match rlimit::increase_nofile_limit(u64::MAX) {
        Ok(limit) if limit < FILES_WANTED => {
            tracing::warn!(limit, "few open files are allowed: about half as many requests can run at once");
        }
        Ok(limit) => tracing::debug!(limit, "open files allowed"),
        Err(error) => tracing::warn!(%error, "can't raise the limit of open files"),
    }
}

fn bind(config: &Config) -> io::Result<[Port; 2]> {
    let public = Port::bind(PUBLIC, &config.server.host, config.server.port)?;
    let admin = Port::bind(ADMIN, &config.admin.host, config.admin.port)?;
    Ok([public, admin])
}

/// Begins to send traces, where a collector is configured.
fn tracer(config: &Config, runtime: &tokio::runtime::Handle) -> io::Result<Option<Tracer>> {
    let Some(endpoint) = &config.traces else { return Ok(None) };
    let instance = uuid::Uuid::new_v4().simple().to_string();
    let origin = Origin { name: "flotilla-gateway", version: env!("CARGO_PKG_VERSION"), instance: &instance };
    Tracer::start(endpoint, origin, runtime).map(Some).map_err(io::Error::other)
}

/// Starts what watches the world for the gateway, for as long as it lives.
fn watch_sources(gateway: &Arc<Gateway>, leases: &Arc<Leases>, runtime: &tokio::runtime::Handle) {
    let config = gateway.config.load_full();
    runtime.spawn(crate::status::follow(gateway.clone()));
    let changed = {
        let gateway = gateway.clone();
        move |ring: &Keyring| gateway.set_tenants(ring)
    };
    if let Some(store) = &config.store {
        let store =
            Redis::new(store.url.reveal(), &store.prefix).expect("the configuration was checked with it");
        let store = Arc::new(store);
        runtime.spawn(store::share(gateway.clone(), leases.clone(), store.clone()));
        if config.keys == Some(Keys::Store) {
            runtime.spawn(store::follow_keys(gateway.tenants.clone(), store, changed.clone()));
        }
    }
    if let Some(Keys::File(_)) = config.keys {
        runtime.spawn(tenants::watch(gateway.tenants.clone(), changed));
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

/// Takes nothing new, and waits until what runs has ended, for as long as configured.
async fn drain_requests(gateway: &Gateway, stop: &watch::Sender<bool>) {
    let longest = gateway.config.load().server.drain;
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
