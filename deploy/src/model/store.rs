//! The user's cache of models: which folder, which files, are they whole.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::catalog::Known;

/// A folder of model files.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// The user's own: `$XDG_CACHE_HOME/flotilla/models`, else `~/.cache/flotilla/models`.
    ///
    /// # Errors
    ///
    /// When neither variable is set.
    pub fn of_user() -> Result<Self, String> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let cache = variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")));
        let cache =
            cache.ok_or("neither XDG_CACHE_HOME nor HOME is set, so there is no cache folder for models")?;
        Ok(Self::at(cache.join("flotilla/models")))
    }

    /// A store in that folder, which need not exist yet.
    pub fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where that model is or would be.
    pub fn path(&self, known: &Known) -> PathBuf {
        self.folder.join(known.file)
    }

    /// Whether its file is there with the right length. Files get their name only once verified, so this
    /// is enough for a start; [`Self::verify`] looks at every byte.
    pub fn has(&self, known: &Known) -> bool {
        fs::metadata(self.path(known)).is_ok_and(|file| file.is_file() && file.len() == known.bytes)
    }

    /// Reads the whole file and compares its SHA-256.
    ///
    /// # Errors
    ///
    /// When it can't be read, or says what it is instead.
    pub fn verify(&self, known: &Known) -> Result<(), String> {
        verify_file(&self.path(known), known)
    }
}

/// Compares a file's SHA-256 with what the catalogue says.
///
/// # Errors
///
/// When it can't be read or differs.
pub fn verify_file(path: &Path, known: &Known) -> Result<(), String> {
    let found = sha256(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    if found == known.sha256 {
        return Ok(());
    }
    Err(format!("{} is not {}: its SHA-256 is {found}, not {}", path.display(), known.name, known.sha256))
}

fn sha256(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut digest = Sha256::new();
    let mut piece = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut piece)?;
        if read == 0 {
            return Ok(format!("{:x}", digest.finalize()));
        }
        digest.update(&piece[..read]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::catalog::DEFAULT;

    const HELLO: Known = Known {
        file: "hello",
        bytes: 5,
        sha256: "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
        ..*DEFAULT
    };

    #[test]
    fn a_file_is_there_only_at_its_full_length() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path().to_owned());
        assert!(!store.has(&HELLO));
        fs::write(store.path(&HELLO), "hell").unwrap();
        assert!(!store.has(&HELLO));
        fs::write(store.path(&HELLO), "hello").unwrap();
        assert!(store.has(&HELLO));
    }

    #[test]
    fn one_changed_byte_fails_the_check() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path().to_owned());
        fs::write(store.path(&HELLO), "hello").unwrap();
        assert_eq!(store.verify(&HELLO), Ok(()));
        fs::write(store.path(&HELLO), "hellO").unwrap();
        assert!(store.verify(&HELLO).unwrap_err().contains("SHA-256"));
    }
}
