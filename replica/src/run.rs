//! The life of the process: listen, load, serve, drain, end.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use traces::{Origin, Tracer};

use crate::api::app::App;
use crate::api::register::Registrar;
use crate::api::server::listen;
use crate::config::Config;
use crate::engine::Handle;
use crate::load::{Loaded, load};
use crate::telemetry;

/// Threads for sockets: few, since the cores belong to the engine's.
const SERVER_THREADS: usize = 2;
/// Threads for work on long bodies.
const BLOCKING_THREADS: usize = 8;
/// How often a condition is looked at that nothing announces.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// What connections get to send their last bytes.
const GOODBYE: Duration = Duration::from_secs(1);
/// What a group of ranks gets to find out itself who hangs.
const GRACE: Duration = Duration::from_secs(1);
/// By convention, of a program that SIGINT ended.
const INTERRUPTED: u8 = 130;

/// Runs until a signal or a fault ends it.
pub fn run(config: Config) -> ExitCode {
    telemetry::init_logs(&config);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(SERVER_THREADS)
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_name("server")
        .enable_all()
        .build();
    let outcome = match runtime {
        Ok(runtime) => {
            let outcome = runtime.block_on(live(config));
            // A thread that still loads or computes must not keep the process alive.
            runtime.shutdown_background();
            outcome
        }
        Err(error) => Err(format!("the server's threads could not start: {error}")),
    };
    outcome.unwrap_or_else(|reason| {
        eprintln!("error: {}", reason.replace('\n', " "));
        ExitCode::FAILURE
    })
}

async fn live(config: Config) -> Result<ExitCode, String> {
    let address = format!("{}:{}", config.host, config.port);
    let listener = TcpListener::bind((config.host.trim_matches(['[', ']']), config.port))
        .await
        .map_err(|error| format!("cannot listen on {address} (--host, --port): {error}"))?;
    let signal = |kind| signal(kind).map_err(|error| format!("signals cannot be caught: {error}"));
    let mut signals =
        Signals { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? };
    let port = announce(&listener)?;
    let mut app = App::new(config);
    app.tracer = tracer(&app)?;
    let app = Arc::new(app);
    let (end, ending) = watch::channel(false);
    let server = tokio::spawn(listen(listener, app.clone(), ending));
    let code = serve(&app, port, &mut signals).await;
    // Connections close after the answer they are giving, which may be why it failed; idle ones close now.
    end.send_replace(true);
    drop(tokio::time::timeout(GOODBYE, server).await);
    if let Some(tracer) = &app.tracer {
        tracer.flush().await;
    }
    code
}

/// Tells whoever started us where we are: with port 0 only we know.
fn announce(listener: &TcpListener) -> Result<u16, String> {
    let address = listener.local_addr().map_err(|error| format!("no address to listen on: {error}"))?;
    let mut out = std::io::stdout().lock();
    // A closed standard output is no reason not to serve.
    drop(writeln!(out, "listening on {address}").and_then(|()| out.flush()));
    Ok(address.port())
}

/// Begins to send traces, where a collector is configured.
fn tracer(app: &App) -> Result<Option<Tracer>, String> {
    let Some(endpoint) = &app.config.traces else { return Ok(None) };
    let origin =
        Origin { name: "flotilla-replica", version: env!("CARGO_PKG_VERSION"), instance: &app.instance };
    Tracer::start(endpoint, origin, &tokio::runtime::Handle::current()).map(Some)
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

/// How to join a fleet, where one is to be joined.
fn registrar(config: &Config, port: u16) -> Option<Registrar> {
    let registration = config.registration.clone()?;
    let url = registration.url.unwrap_or_else(|| format!("http://{}:{port}", config.host));
    Some(Registrar { gateway: registration.gateway, key: registration.key, url })
}

/// Loads, then serves until told to end.
async fn serve(app: &Arc<App>, port: u16, signals: &mut Signals) -> Result<ExitCode, String> {
    let config = app.config.clone();
    let loading = tokio::task::spawn_blocking(move || load(&config));
    let Loaded { served, cached, engine } = tokio::select! {
        loaded = loading => loaded.map_err(|_| "loading the model panicked".to_owned())??,
        _ = signals.terminate.recv() => return Ok(ExitCode::SUCCESS),
        _ = signals.interrupt.recv() => return Ok(ExitCode::from(INTERRUPTED)),
    };
    let held = app.held.clone();
    tokio::spawn(async move { held.follow(cached).await });
    let served = Arc::new(served);
    app.open(served.clone());
    if let Some(registrar) = registrar(&app.config, port) {
        tokio::spawn(registrar.keep());
    }
    tracing::info!(instance = app.instance, "ready");
    let ended = async {
        while !engine.is_finished() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::select! {
        () = ended => Err(match engine.join() {
            Ok(Err(failure)) => format!("the engine ended: {failure}"),
            Ok(Ok(())) => "the engine ended without being told to".to_owned(),
            Err(_) => "the engine's thread panicked".to_owned(),
        }),
        _ = signals.interrupt.recv() => Ok(ExitCode::from(INTERRUPTED)),
        _ = signals.terminate.recv() => tokio::select! {
            code = drain(app, &mut signals.interrupt) => Ok(code),
            reason = hung(&served.engine, &app.config) => Err(reason),
        },
        reason = hung(&served.engine, &app.config) => Err(reason),
    }
}

/// Waits for a step that does not end, and gives the engine up then: nothing in this process can get its thread
/// back, so the process ends too and whoever started it starts another.
async fn hung(engine: &Handle, config: &Config) -> String {
    // The ranks of a group watch each other, and know better who is missing: they come first.
    let grace = if config.tensor_parallel_size > 1 { GRACE } else { Duration::ZERO };
    while engine.stalled_for() <= config.step_timeout + grace {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let limit = config.step_timeout;
    let reason = format!("a step has not ended within {limit:?} (--step-timeout)");
    tracing::error!(reason, "the engine hangs; the replica ends");
    engine.give_up(&reason);
    reason
}

/// Takes nothing new and gives what runs its time. New connections are still answered, so that probes learn it.
async fn drain(app: &App, interrupt: &mut Signal) -> ExitCode {
    tracing::info!(in_flight = app.metrics.in_flight.get(), "draining");
    app.drain();
    let until = Instant::now() + app.config.drain_timeout;
    while app.metrics.in_flight.get() > 0 {
        if Instant::now() > until {
            tracing::warn!(
                in_flight = app.metrics.in_flight.get(),
                "the drain time is over: answers are cut off"
            );
            break;
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            _ = interrupt.recv() => return ExitCode::from(INTERRUPTED),
        }
    }
    tracing::info!("drained");
    ExitCode::SUCCESS
}
