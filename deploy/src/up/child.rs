//! One process of the fleet: started, listened to, asked whether it is ready, started again, ended.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use http::StatusCode;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::console::Console;
use super::supervise::{Record, Verdict};
use crate::http::Peer;

/// Bytes of a line; a longer one is shown in pieces.
const LINE_BYTES_MAX: u64 = 16 << 10;
/// Between two questions whether it is ready.
const READY_EVERY: Duration = Duration::from_millis(100);
/// How long one such question may take.
const READY_DEADLINE: Duration = Duration::from_secs(2);

/// How long the log of an ended process may take to arrive.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What to run and how to recognise it.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Its name in the log.
    pub who: String,
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Variables it gets on top of ours.
    pub environment: Vec<(&'static str, String)>,
    /// Beginnings of variables that it would not understand.
    pub not_its: &'static [&'static str],
    /// `host:port` that answers `/ready`.
    pub authority: String,
}

/// What the whole fleet is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// Serve.
    Run,
    /// Finish and end.
    End,
    /// End now.
    Kill,
}

/// How one process is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    /// Loading, or ended and about to be started again.
    Starting,
    /// Takes work.
    Ready,
    /// Won't be started again, and why.
    GivenUp(&'static str),
}

/// Keeps one process alive until the fleet is to end; `states` hears of every change.
pub async fn keep(
    index: usize,
    spec: Spec,
    console: Console,
    mut wanted: watch::Receiver<Wanted>,
    states: mpsc::Sender<(usize, State)>,
) {
    let mut record = Record::default();
    while *wanted.borrow() == Wanted::Run {
        let begun = Instant::now();
        let (code, how) = match start(&spec, &console) {
            Err(error) => (None, error),
            Ok((mut child, mut echoes)) => {
                let ready = async {
                    until_ready(&spec.authority).await;
                    let _ = states.send((index, State::Ready)).await;
                };
                let status = live(&mut child, ready, &mut record, &mut wanted).await;
                // Its last words come before ours.
                let _ =
                    tokio::time::timeout(LAST_WORDS, async { while echoes.join_next().await.is_some() {} })
                        .await;
                (status.and_then(|status| status.code()), describe(status))
            }
        };
        if *wanted.borrow() != Wanted::Run {
            return;
        }
        match record.ended(code, begun.elapsed()) {
            Verdict::Restart(wait) => {
                console.line(&spec.who, format!("ended ({how}); starting again in {} s", wait.as_secs_f32()));
                let _ = states.send((index, State::Starting)).await;
                // A change of what is wanted ends the wait; the loop looks.
                let _ = tokio::time::timeout(wait, wanted.changed()).await;
            }
            Verdict::GiveUp(why) => {
                console.line(&spec.who, format!("ended ({how}); not started again: {why}"));
                let _ = states.send((index, State::GivenUp(why))).await;
                return;
            }
        }
    }
}

/// One life: to its own end, or to the one that is wanted.
async fn live(
    child: &mut Child,
    ready: impl Future<Output = ()>,
    record: &mut Record,
    wanted: &mut watch::Receiver<Wanted>,
) -> Option<ExitStatus> {
    let group = child.id().and_then(|id| Pid::from_raw(id as i32));
    let mut is_ready = false;
    tokio::pin!(ready);
    loop {
        tokio::select! {
            status = child.wait() => return status.ok(),
            () = &mut ready, if !is_ready => {
                is_ready = true;
                record.ready();
            }
            _ = wanted.changed() => {
                let signal = match *wanted.borrow() {
                    Wanted::Run => continue,
                    Wanted::End => Signal::TERM,
                    Wanted::Kill => Signal::KILL,
                };
                // It may have ended by itself in this moment.
                let _ = group.map(|group| kill_process_group(group, signal));
            }
        }
    }
}

/// Starts it in a group of its own, so that a terminal's Ctrl-C reaches us alone and we decide the order, and on
/// a leash, so that it ends with us. The caller must be the main thread: the leash is tied to the thread.
fn start(spec: &Spec, console: &Console) -> Result<(Child, JoinSet<()>), String> {
    let own = std::env::current_exe().map_err(|error| format!("cannot find my own executable: {error}"))?;
    let mut command = Command::new(own);
    command
        .arg("leash")
        .arg(std::process::id().to_string())
        .arg(&spec.program)
        .args(&spec.arguments)
        .env("NO_COLOR", "1")
        .envs(spec.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    let is_not_its = |name: &str| spec.not_its.iter().any(|beginning| name.starts_with(beginning));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_not_its)) {
        command.env_remove(name);
    }
    let mut child = command.spawn().map_err(|error| format!("cannot start: {error}"))?;
    let mut echoes = JoinSet::new();
    if let Some(stdout) = child.stdout.take() {
        echoes.spawn(echo(stdout, spec.who.clone(), console.clone()));
    }
    if let Some(stderr) = child.stderr.take() {
        echoes.spawn(echo(stderr, spec.who.clone(), console.clone()));
    }
    Ok((child, echoes))
}

/// Passes lines on until the process closes its end.
async fn echo(stream: impl AsyncRead + Unpin, who: String, console: Console) {
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut stream).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        if !text.is_empty() {
            console.line(&who, text);
        }
    }
}

async fn until_ready(authority: &str) {
    let peer = Peer { authority, key: None, deadline: READY_DEADLINE };
    loop {
        if peer.get("/ready").await.is_ok_and(|answer| answer.status == StatusCode::OK) {
            return;
        }
        tokio::time::sleep(READY_EVERY).await;
    }
}

fn describe(status: Option<ExitStatus>) -> String {
    status.map_or_else(|| "nobody knows how".to_owned(), |status| status.to_string())
}
