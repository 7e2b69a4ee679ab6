//! The file of keys, on disk or in the store, and the keyring of its last good reading.

use super::keyring::{Caller, Keyring, Stranger};
use arc_swap::ArcSwap;
use gateway_core::admission::TenantId;
use shared::keys::KeyFile;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often the file is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Everybody who may use the gateway.
#[derive(Debug)]
pub struct Tenants {
    whence: Whence,
    ring: ArcSwap<Keyring>,
    read: Mutex<Read>,
}

/// Where the keys come from.
#[derive(Debug)]
enum Whence {
    /// No keys are asked for.
    Nowhere,
    File(PathBuf),
    /// Whoever follows the store brings them.
    Store,
}

/// What reading the file again needs.
#[derive(Debug, Default)]
struct Read {
    numbers: BTreeMap<String, TenantId>,
    stamp: Option<Stamp>,
    /// The text of the last good reading, from the store.
    text: Vec<u8>,
}

/// Tells whether a file has changed: its time, its length, and its inode, since a rename keeps the other two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stamp {
    modified: SystemTime,
    len: u64,
    inode: u64,
}

impl Tenants {
    /// No keys are asked for: everybody is [`Caller::anybody`].
    pub fn open_to_all() -> Self {
        Self { whence: Whence::Nowhere, ring: ArcSwap::default(), read: Mutex::default() }
    }

    /// Those of the store; until they were read for the first time, nobody is let in.
    pub fn of_store() -> Self {
        Self { whence: Whence::Store, ..Self::open_to_all() }
    }

    /// Those of a file.
    ///
    /// # Errors
    ///
    /// Says what is wrong with the file, and where.
    pub fn of_file(path: &Path) -> Result<Self, String> {
        let tenants = Self { whence: Whence::File(path.to_owned()), ..Self::open_to_all() };
        tenants.refresh().map(|_| tenants)
    }

    /// Whether keys are asked for; then what clients send is ours and goes no further.
    pub fn ask_for_keys(&self) -> bool {
        !matches!(self.whence, Whence::Nowhere)
    }

    /// Whose key an `Authorization` header carries.
    ///
    /// # Errors
    ///
    /// [`Stranger`] when it is nobody's.
    pub fn identify(&self, authorization: &[u8]) -> Result<Caller, Stranger> {
        if !self.ask_for_keys() {
            return Ok(Caller::anybody());
        }
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let ring = self.ring.load();
        if !ring.is_read() {
            return Err(Stranger::Unread);
        }
        ring.identify(authorization, since_1970.as_secs())
    }

    /// The keyring now.
    pub fn ring(&self) -> Arc<Keyring> {
        self.ring.load_full()
    }

    /// Reads the file again if it has changed; true when there is a new keyring. A bad file changes nothing.
    ///
    /// # Errors
    ///
    /// Says once for each change what is wrong with the file.
    pub fn refresh(&self) -> Result<bool, String> {
        let Whence::File(path) = &self.whence else { return Ok(false) };
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let explain = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let stamp = stamp(path).map_err(|error| explain(&error))?;
        if read.stamp.replace(stamp) == Some(stamp) {
            return Ok(false);
        }
        let text = std::fs::read(path).map_err(|error| explain(&error))?;
        self.parse(&text, &mut read).map_err(|error| explain(&error))?;
        Ok(true)
    }

    /// The text that the store holds now; true when there is a new keyring. A bad one changes nothing.
    ///
    /// # Errors
    ///
    /// Says what is wrong with it.
    pub fn take(&self, text: &[u8]) -> Result<bool, String> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if self.ring.load().is_read() && read.text == text {
            return Ok(false);
        }
        self.parse(text, &mut read).map_err(|error| format!("the keys in the store: {error}"))?;
        read.text = text.to_vec();
        Ok(true)
    }

    fn parse(&self, text: &[u8], read: &mut Read) -> Result<(), String> {
        let file: KeyFile = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let ring = Keyring::new(&file, |name| number(&mut read.numbers, name))?;
        self.ring.store(Arc::new(ring));
        Ok(())
    }
}

/// The number of a name: the same through every change of the file. 0 is anybody's.
fn number(numbers: &mut BTreeMap<String, TenantId>, name: &str) -> TenantId {
    let next = TenantId(numbers.len() as u32 + 1);
    *numbers.entry(name.to_owned()).or_insert(next)
}

fn stamp(path: &Path) -> std::io::Result<Stamp> {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(path)?;
    Ok(Stamp { modified: metadata.modified()?, len: metadata.len(), inode: metadata.ino() })
}

/// Looks at the file every second, for ever; `changed` hears of each new keyring.
pub async fn watch(tenants: Arc<Tenants>, mut changed: impl FnMut(&Keyring)) {
    let mut last_error = None;
    loop {
        tokio::time::sleep(LOOK).await;
        match tenants.refresh() {
            Ok(false) => {}
            Ok(true) => {
                tracing::info!(tenants = tenants.ring().tenants().len(), "keys read");
                changed(&tenants.ring());
                last_error = None;
            }
            Err(error) if last_error.as_ref() == Some(&error) => {}
            Err(error) => {
                tracing::error!(error, "keys not read, the old ones stay");
                last_error = Some(error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::keys::digest;

    fn write(path: &Path, tenants: &[(&str, &str)]) {
        let entries = tenants.iter().map(|(name, key)| {
            serde_json::json!({ "name": name, "keys": [{ "id": name, "sha256": digest(key.as_bytes()) }] })
        });
        let file = serde_json::json!({ "tenants": entries.collect::<Vec<_>>() });
        let new = path.with_extension("new");
        std::fs::write(&new, file.to_string()).unwrap();
        std::fs::rename(&new, path).unwrap();
    }

    fn number_of(tenants: &Tenants, key: &str) -> Option<u32> {
        tenants.identify(format!("Bearer {key}").as_bytes()).ok().map(|caller| caller.tenant.id.0)
    }

    #[test]
    fn keys_come_and_go_without_a_restart_and_numbers_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.json");
        write(&path, &[("a", "key-a"), ("b", "key-b")]);
        let tenants = Tenants::of_file(&path).unwrap();
        assert_eq!((number_of(&tenants, "key-a"), number_of(&tenants, "key-b")), (Some(1), Some(2)));
        assert_eq!(tenants.refresh(), Ok(false));
        write(&path, &[("b", "key-b2"), ("c", "key-c")]);
        assert_eq!(tenants.refresh(), Ok(true));
        assert_eq!(number_of(&tenants, "key-a"), None);
        assert_eq!((number_of(&tenants, "key-b2"), number_of(&tenants, "key-c")), (Some(2), Some(3)));
    }

    #[test]
    fn a_bad_file_keeps_the_old_keys_and_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.json");
        write(&path, &[("a", "key-a")]);
        let tenants = Tenants::of_file(&path).unwrap();
        std::fs::write(&path, "{ \"tenants\": [").unwrap();
        assert!(tenants.refresh().unwrap_err().contains("keys.json"));
        assert_eq!(number_of(&tenants, "key-a"), Some(1));
        std::fs::remove_file(&path).unwrap();
        assert!(tenants.refresh().is_err());
        assert_eq!(number_of(&tenants, "key-a"), Some(1));
    }

    #[test]
    fn keys_of_the_store_are_waited_for_and_a_bad_text_keeps_them() {
        let text = |key: &str| {
            let keys = serde_json::json!([{ "id": "k", "sha256": digest(key.as_bytes()) }]);
            serde_json::json!({ "tenants": [{ "name": "a", "keys": keys }] }).to_string().into_bytes()
        };
        let tenants = Tenants::of_store();
        assert_eq!(tenants.identify(b"Bearer one"), Err(Stranger::Unread));
        assert_eq!(tenants.take(&text("one")), Ok(true));
        assert_eq!(tenants.take(&text("one")), Ok(false));
        assert_eq!(number_of(&tenants, "one"), Some(1));
        assert!(tenants.take(b"{").unwrap_err().contains("store"));
        assert_eq!(number_of(&tenants, "one"), Some(1));
        assert_eq!(tenants.take(&text("two")), Ok(true));
        assert_eq!((number_of(&tenants, "one"), number_of(&tenants, "two")), (None, Some(1)));
    }

    #[test]
    fn without_a_file_everybody_is_let_in() {
        assert_eq!(number_of(&Tenants::open_to_all(), "anything"), Some(0));
        assert!(Tenants::open_to_all().identify(b"").is_ok());
    }

    #[test]
    fn a_file_that_is_not_there_is_an_error_at_the_start() {
        assert!(
            Tenants::of_file(Path::new("/nowhere/keys.json")).unwrap_err().contains("/nowhere/keys.json")
        );
    }
}
