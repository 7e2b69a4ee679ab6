//! The repository as tidy's tests see it: where it is, which files it has.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders that builds leave behind; nothing in them is ours.
const NOT_OURS: &[&str] = &[".git", "target", ".venv", "__pycache__", ".pytest_cache"];

/// One of the repository's text files.
#[derive(Debug)]
pub struct File {
    /// Its path from the repository's root, with `/`.
    pub path: String,
    /// Its text; files that are no text are not listed.
    pub text: String,
}

impl File {
    /// Its name without folders.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// Its lines with their numbers.
    pub fn numbered(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }
}

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every text file, sorted by path.
pub fn files() -> Vec<File> {
    let mut files = Vec::new();
    gather(&root(), "", &mut files);
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

/// Every file of Rust.
pub fn sources() -> Vec<File> {
    files()
        .into_iter()
        .filter(|file| Path::new(&file.path).extension().is_some_and(|end| end == "rs"))
        .collect()
}

fn gather(folder: &Path, prefix: &str, files: &mut Vec<File>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && !NOT_OURS.contains(&name.as_str()) => {
                gather(&entry.path(), &format!("{path}/"), files);
            }
            Ok(kind) if kind.is_file() => {
                files.extend(fs::read_to_string(entry.path()).ok().map(|text| File { path, text }));
            }
            _ => {}
        }
    }
}

/// Fails with every fault found, one a line.
///
/// # Panics
///
/// When there is a fault.
pub fn assert_none(rule: &str, faults: &[String]) {
    assert!(faults.is_empty(), "{rule}:\n  {}", faults.join("\n  "));
}
