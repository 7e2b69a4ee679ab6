//! The keys in a file: one command changes it at a time, and a gateway that reads sees all of a change or nothing.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use shared::keys::KeyFile;

/// What the file holds; nothing where there is none.
pub fn read(path: &Path) -> Result<KeyFile, String> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(KeyFile::default()),
        Err(error) => Err(format!("{}: {error}", path.display())),
        Ok(text) => serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display())),
    }
}

/// Changes the file.
pub fn change<T>(path: &Path, change: impl FnOnce(&mut KeyFile) -> Result<T, String>) -> Result<T, String> {
    let _lock = lock(path)?;
    let mut keys = read(path)?;
    let told = change(&mut keys)?;
    write(path, &keys)?;
    Ok(told)
}

/// Held from reading to writing, so that two commands don't lose each other's change.
fn lock(path: &Path) -> Result<File, String> {
    let beside = path.with_extension("lock");
    let file = private(&beside)?;
    file.lock().map_err(|error| format!("cannot lock {}: {error}", beside.display()))?;
    Ok(file)
}

fn private(path: &Path) -> Result<File, String> {
    let opened = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(path);
    opened.map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// Whole or not at all: the gateway may read at any moment.
fn write(path: &Path, keys: &KeyFile) -> Result<(), String> {
    let text = serde_json::to_string_pretty(keys).map_err(|error| error.to_string())?;
    let new = path.with_extension("new");
    let fault = |error: std::io::Error| format!("cannot write {}: {error}", path.display());
    let mut file = private(&new)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(fault)?;
    fs::rename(&new, path).map_err(fault)
}
