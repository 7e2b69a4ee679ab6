//! The life of one `flotilla up`: look, lay out, start, wait until ready, watch, end.

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::child::{Spec, State, Wanted, keep};
use super::console::{self, Console};
use super::fleet::{self, Ports};
use super::greeting::greeting;
use super::layout::{Wish, lay_out};
use super::ports;
use super::settings::{Args, Settings};
use crate::machine::{Machine, program};
use crate::model::source::Source;
use crate::model::store::Store;
use crate::model::{catalog, fetch, hub_endpoint};

const ADMIN_PORT: u16 = 9000;
/// From the first process started to all of them ready.
const START_DEADLINE: Duration = Duration::from_mins(20);
/// What a process may take to finish before it is killed.
const END_GRACE: Duration = Duration::from_secs(10);
/// What a killed process may take to be gone.
const KILL_GRACE: Duration = Duration::from_secs(5);

/// Runs the fleet to its end.
pub fn run(args: Args) -> Result<ExitCode, String> {
    let settings = Settings::gather(args)?;
    let store = Store::of_user()?;
    let model = present(Source::read(settings.model.as_deref(), &store)?, &store)?;
    let specs = specs(&settings, &model)?;
    // One thread: children are tied to the thread that starts them, and it must live as long as we do.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
    let (console, writer) = Console::start();
    let outcome = runtime.block_on(serve(specs, &settings, console.clone()));
    runtime.shutdown_background();
    console::wait(console, &writer);
    outcome
}

/// Fetches a model of the catalogue that isn't here yet.
fn present(model: Source, store: &Store) -> Result<Source, String> {
    let Source::Absent(name) = model else { return Ok(model) };
    let fetched = fetch(store, catalog::find(name)?, hub_endpoint().as_deref())?;
    Ok(Source::Path(fetched.path))
}

/// Every process of the fleet, the gateway first: it is there before its replicas.
fn specs(settings: &Settings, model: &Source) -> Result<Vec<Spec>, String> {
    let (gateway, replica) = (program("flotilla-gateway")?, program("flotilla-replica")?);
    let machine = Machine::look();
    let cuda = settings.replica_flag("--device") != Some("cpu")
        && !machine.cards.is_empty()
        && is_for_cuda(&replica);
    let wish = Wish {
        replicas: settings.replicas,
        tensor_parallel: settings.tensor_parallel_size,
        cuda,
        weight_bytes: model.weight_bytes(),
        kv_bytes: kv_bytes(settings)?,
        is_fake: *model == Source::Fake,
    };
    let places = lay_out(&machine, &wish)?;
    ports::check(settings.host, settings.port, "--port")?;
    let mut free = ports::free(places.len() + 1)?;
    let spare = free.remove(0);
    let ports = Ports { admin: admin_port(settings, spare)?, replicas: free };
    let mut specs = vec![fleet::gateway(gateway, settings, &ports)];
    for (index, place) in places.iter().enumerate() {
        let port = ports.replicas[index];
        specs.push(fleet::replica(replica.clone(), model, settings, place, index, port));
    }
    Ok(specs)
}

fn kv_bytes(settings: &Settings) -> Result<Option<u64>, String> {
    let Some(word) = settings.replica_flag("--kv-cache-memory-bytes") else { return Ok(None) };
    word.parse().map(Some).map_err(|_| format!("--kv-cache-memory-bytes {word}: not a number of bytes"))
}

fn admin_port(settings: &Settings, spare: u16) -> Result<u16, String> {
    let loopback = [127, 0, 0, 1].into();
    let port = settings.admin_port.unwrap_or(ADMIN_PORT);
    match ports::check(loopback, port, "--admin-port") {
        Ok(()) => Ok(port),
        Err(_) if settings.admin_port.is_none() => Ok(spare),
        Err(taken) => Err(taken),
    }
}

/// Whether the replica program was built with CUDA: its version says so.
fn is_for_cuda(replica: &PathBuf) -> bool {
    let asked = Command::new(replica).arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output();
    asked.is_ok_and(|answer| String::from_utf8_lossy(&answer.stdout).contains("cuda"))
}

/// Why the fleet ends.
enum End {
    /// Someone asked for it.
    Asked,
    /// It can't work.
    Failed(String),
}

async fn serve(specs: Vec<Spec>, settings: &Settings, console: Console) -> Result<ExitCode, String> {
    let mut signals = Signals::listen()?;
    let (wanted, orders) = watch::channel(Wanted::Run);
    let (sender, mut states) = mpsc::channel(64);
    let names: Vec<_> = specs.iter().map(|spec| spec.who.clone()).collect();
    let authorities: Vec<_> = specs.iter().map(|spec| spec.authority.clone()).collect();
    let mut children = JoinSet::new();
    for (index, spec) in specs.into_iter().enumerate() {
        children.spawn(keep(index, spec, console.clone(), orders.clone(), sender.clone()));
    }
    drop(sender);
    let greeting = || {
        let replica = authorities.get(1).map(String::as_str);
        greeting(&authorities[0], replica, settings.replica_flag("--api-key"), authorities.len() - 1)
    };
    let end = tokio::select! {
        () = signals.next() => End::Asked,
        failure = watch_over(&names, &mut states, &console, greeting) => End::Failed(failure),
    };
    console.status(None);
    console.line("flotilla", "ending; Ctrl-C again ends at once");
    let _ = wanted.send(Wanted::End);
    tokio::select! {
        () = all_gone(&mut children) => {}
        () = signals.next() => {}
        () = tokio::time::sleep(END_GRACE) => {}
    }
    let _ = wanted.send(Wanted::Kill);
    let _ = tokio::time::timeout(KILL_GRACE, all_gone(&mut children)).await;
    match end {
        End::Asked => Ok(ExitCode::SUCCESS),
        End::Failed(why) => Err(why),
    }
}

async fn all_gone(children: &mut JoinSet<()>) {
    while children.join_next().await.is_some() {}
}

/// Follows the states of all processes; returns only when the fleet can't work, with the reason.
async fn watch_over(
    names: &[String],
    states: &mut mpsc::Receiver<(usize, State)>,
    console: &Console,
    greeting: impl AsyncFn() -> [String; 2],
) -> String {
    let mut now = vec![State::Starting; names.len()];
    let mut was_ready = false;
    let deadline = tokio::time::sleep(START_DEADLINE);
    tokio::pin!(deadline);
    console.status(Some(status(names, &now)));
    loop {
        tokio::select! {
            () = &mut deadline, if !was_ready => {
                return format!("not ready within {} minutes ({})", START_DEADLINE.as_secs() / 60, status(names, &now));
            }
            news = states.recv() => {
                let Some((index, state)) = news else { return "every process has ended for good".to_owned() };
                if let State::GivenUp(why) = &state && (!was_ready || index == 0) {
                    return format!("{} cannot run: {why}", names[index]);
                }
                if was_ready && state == State::Ready {
                    console.line("flotilla", format!("{} is ready again", names[index]));
                }
                now[index] = state;
            }
        }
        if !was_ready {
            console.status(Some(status(names, &now)));
        }
        if !was_ready && now.iter().all(|state| *state == State::Ready) {
            was_ready = true;
            console.status(None);
            for line in greeting().await {
                console.line("flotilla", line);
            }
        }
    }
}

fn status(names: &[String], now: &[State]) -> String {
    let ready = now.iter().filter(|state| **state == State::Ready).count();
    let missing: Vec<_> = names.iter().zip(now).filter(|(_, state)| **state != State::Ready).collect();
    let missing: Vec<_> = missing.iter().map(|(name, _)| name.as_str()).collect();
    format!("{ready} of {} ready, waiting for {}", names.len(), missing.join(", "))
}

/// Ctrl-C, a supervisor's TERM, and the terminal that went away.
struct Signals([Signal; 3]);

impl Signals {
    fn listen() -> Result<Self, String> {
        let open = |kind| signal(kind).map_err(|error| format!("cannot listen for signals: {error}"));
        Ok(Self([
            open(SignalKind::interrupt())?,
            open(SignalKind::terminate())?,
            open(SignalKind::hangup())?,
        ]))
    }

    async fn next(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}
