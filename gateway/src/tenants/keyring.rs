//! Keys in, tenants out. It holds digests only, and compares them in a time that tells nothing.

use gateway_core::admission::{Allowance, TenantId};
use gateway_core::queue::Class;
use shared::keys::{KeyFile, Priority, TenantEntry, digest};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

/// Hex digits of a digest.
const DIGEST_LEN: usize = 64;
/// Digits by which digests are looked up. They tell nothing of a key, whoever measures them.
const INDEX_LEN: usize = 16;

/// One tenant, as the gateway relies on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tenant {
    /// Its number for as long as the gateway lives.
    pub id: TenantId,
    /// Its name in logs and metrics.
    pub name: String,
    /// Models it may ask for; empty: all.
    pub models: Vec<String>,
    /// How much it may have.
    pub allowance: Allowance,
    /// How urgent its requests are.
    pub class: Class,
    /// Seeds its prefix pieces: equal salts share what is cached.
    pub cache_salt: String,
}

impl Tenant {
    /// Everybody, where no keys are asked for: no limits, and one cache for all.
    pub fn anybody() -> Arc<Self> {
        static ANYBODY: LazyLock<Arc<Tenant>> = LazyLock::new(|| {
            Arc::new(Tenant {
                id: TenantId(0),
                name: String::new(),
                models: Vec::new(),
                allowance: Allowance::default(),
                class: Class::Normal,
                cache_salt: String::new(),
            })
        });
        ANYBODY.clone()
    }

    /// How urgent its request is, when it asks for a class: it may ask for less than its own. Who has no key may ask
    /// for anything.
    pub fn class_of(&self, asked: Option<Class>) -> Class {
        match asked {
            Some(asked) if self.id == TenantId(0) => asked,
            Some(asked) => asked.max(self.class),
            None => self.class,
        }
    }

    /// Whether it may ask for a model.
    pub fn may_use(&self, model: &str) -> bool {
        self.models.is_empty() || self.models.iter().any(|allowed| allowed == model)
    }
}

/// Who asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caller {
    /// Whose key it is.
    pub tenant: Arc<Tenant>,
    /// What names the key without telling it; absent where no keys are asked for.
    pub key: Option<Arc<str>>,
}

impl Caller {
    /// See [`Tenant::anybody`].
    pub fn anybody() -> Self {
        Self { tenant: Tenant::anybody(), key: None }
    }
}

/// Why a key opens nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stranger {
    /// No key was sent.
    Missing,
    /// Nobody has it, or has it any more.
    Unknown,
    /// The keys have not been read yet.
    Unread,
}

/// All keys of one reading of the file.
#[derive(Clone, Debug, Default)]
pub struct Keyring {
    is_read: bool,
    /// By the first digits of the digest.
    keys: BTreeMap<String, Vec<Key>>,
    tenants: BTreeMap<TenantId, Arc<Tenant>>,
    names: BTreeMap<String, Arc<Tenant>>,
}

#[derive(Clone, Debug)]
struct Key {
    id: Arc<str>,
    digest: String,
    expires_at: Option<u64>,
    tenant: Arc<Tenant>,
}

impl Keyring {
    /// Checks a file; `number` gives each name its number.
    ///
    /// # Errors
    ///
    /// Names the tenant and the key at fault.
    pub fn new(file: &KeyFile, mut number: impl FnMut(&str) -> TenantId) -> Result<Self, String> {
        let mut ring = Self { is_read: true, ..Self::default() };
        let mut digests = BTreeSet::new();
        for entry in &file.tenants {
            if entry.name.is_empty() || ring.names.contains_key(&entry.name) {
                return Err(format!("tenant `{}`: names must be there and differ", entry.name));
            }
            let tenant = Arc::new(tenant(entry, number(&entry.name)));
            for key in &entry.keys {
                let is_digest =
                    key.sha256.len() == DIGEST_LEN && key.sha256.bytes().all(|b| b.is_ascii_hexdigit());
                if !is_digest {
                    return Err(format!(
                        "key `{}` of `{}`: `sha256` must be 64 hex digits",
                        key.id, entry.name
                    ));
                }
                let digest = key.sha256.to_ascii_lowercase();
                if !digests.insert(digest.clone()) {
                    return Err(format!("key `{}` of `{}` is there twice", key.id, entry.name));
                }
                let id = key.id.as_str().into();
                let key = Key { id, digest, expires_at: key.expires_at, tenant: tenant.clone() };
                ring.keys.entry(key.digest[..INDEX_LEN].to_owned()).or_default().push(key);
            }
            ring.tenants.insert(tenant.id, tenant.clone());
            ring.names.insert(tenant.name.clone(), tenant);
        }
        Ok(ring)
    }

    /// Whether it was read from anywhere.
    pub fn is_read(&self) -> bool {
        self.is_read
    }

    /// Everybody with a key, by number.
    pub fn tenants(&self) -> impl ExactSizeIterator<Item = &Tenant> {
        self.tenants.values().map(Arc::as_ref)
    }

    /// The tenant with a number.
    pub fn numbered(&self, id: TenantId) -> Option<&Tenant> {
        self.tenants.get(&id).map(Arc::as_ref)
    }

    /// The tenant with a name.
    pub fn named(&self, name: &str) -> Option<&Tenant> {
        self.names.get(name).map(Arc::as_ref)
    }

    /// Whose key an `Authorization` header carries, at so many seconds since 1970.
    ///
    /// # Errors
    ///
    /// [`Stranger`] when it is nobody's.
    pub fn identify(&self, authorization: &[u8], unix_s: u64) -> Result<Caller, Stranger> {
        let key = bearer(authorization).ok_or(Stranger::Missing)?;
        let digest = digest(key);
        let candidates = self.keys.get(&digest[..INDEX_LEN]).map_or(&[][..], Vec::as_slice);
        let found = candidates.iter().find(|key| is_same(key.digest.as_bytes(), digest.as_bytes()));
        let is_good = |key: &&Key| key.expires_at.is_none_or(|end| unix_s < end);
        let caller = |key: &Key| Caller { tenant: key.tenant.clone(), key: Some(key.id.clone()) };
        found.filter(is_good).map(caller).ok_or(Stranger::Unknown)
    }
}

fn tenant(entry: &TenantEntry, id: TenantId) -> Tenant {
    Tenant {
        id,
        name: entry.name.clone(),
        models: entry.models.clone(),
        allowance: Allowance {
            requests_per_min: entry.requests_per_min,
            tokens_per_min: entry.tokens_per_min,
            requests_max: entry.requests_max,
        },
        class: match entry.priority {
            Priority::High => Class::High,
            Priority::Normal => Class::Normal,
            Priority::Low => Class::Low,
            Priority::Batch => Class::Batch,
        },
        // A shared salt and a name that happens to equal it must not meet.
        cache_salt: entry
            .cache_salt
            .as_ref()
            .map_or_else(|| format!("tenant:{}", entry.name), |salt| format!("salt:{salt}")),
    }
}

/// The token of a `Bearer` header; the scheme's case does not matter.
fn bearer(authorization: &[u8]) -> Option<&[u8]> {
    const SCHEME: &[u8] = b"bearer ";
    let (scheme, key) = authorization.split_at_checked(SCHEME.len())?;
    let key = key.trim_ascii();
    (scheme.eq_ignore_ascii_case(SCHEME) && !key.is_empty()).then_some(key)
}

/// Compares all bytes, wherever they differ.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    let differences = a.iter().zip(b).fold(0, |sum, (a, b)| sum | (a ^ b));
    a.len() == b.len() && std::hint::black_box(differences) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::keys::KeyEntry;

    fn entry(name: &str, keys: &[(&str, Option<u64>)]) -> TenantEntry {
        let keys = keys.iter().map(|(key, expires_at)| KeyEntry {
            id: format!("id-{key}"),
            sha256: digest(key.as_bytes()),
            created_at: 0,
            expires_at: *expires_at,
        });
        TenantEntry { name: name.to_owned(), keys: keys.collect(), ..TenantEntry::default() }
    }

    fn ring(tenants: Vec<TenantEntry>) -> Result<Keyring, String> {
        Keyring::new(&KeyFile { tenants }, |name| TenantId(name.len() as u32))
    }

    fn name(ring: &Keyring, header: &str, unix_s: u64) -> Result<String, Stranger> {
        ring.identify(header.as_bytes(), unix_s).map(|caller| caller.tenant.name.clone())
    }

    #[test]
    fn a_key_opens_its_tenant_only() {
        let ring = ring(vec![entry("a", &[("key-a", None)]), entry("bb", &[("key-b", None)])]).unwrap();
        assert_eq!(name(&ring, "Bearer key-a", 0), Ok("a".to_owned()));
        assert_eq!(name(&ring, "bearer key-b", 0), Ok("bb".to_owned()));
        for header in ["Bearer key-c", "Bearer key-", "Bearer key-aa"] {
            assert_eq!(name(&ring, header, 0), Err(Stranger::Unknown), "{header}");
        }
        for header in ["", "Bearer", "Bearer  ", "Basic a2V5", "key-a"] {
            assert_eq!(name(&ring, header, 0), Err(Stranger::Missing), "{header}");
        }
    }

    #[test]
    fn while_keys_are_rotated_both_are_good_and_then_one() {
        let ring = ring(vec![entry("a", &[("old", Some(100)), ("new", None)])]).unwrap();
        assert!(name(&ring, "Bearer old", 99).is_ok() && name(&ring, "Bearer new", 99).is_ok());
        assert_eq!(name(&ring, "Bearer old", 100), Err(Stranger::Unknown));
    }

    #[test]
    fn a_bad_file_is_refused_with_the_name_at_fault() {
        let mut short = entry("a", &[("k", None)]);
        short.keys[0].sha256.pop();
        assert!(ring(vec![short]).unwrap_err().contains("`id-k` of `a`"));
        assert!(ring(vec![entry("a", &[]), entry("a", &[])]).unwrap_err().contains("`a`"));
        assert!(ring(vec![entry("a", &[("k", None)]), entry("b", &[("k", None)])]).is_err());
        assert!(ring(vec![entry("", &[])]).is_err());
    }

    #[test]
    fn salts_keep_tenants_apart_unless_they_share_one() {
        let shared = |name| TenantEntry { cache_salt: Some("a".to_owned()), ..entry(name, &[]) };
        let ring = ring(vec![entry("a", &[]), shared("bb"), shared("ccc")]).unwrap();
        let salt = |name| ring.named(name).map(|tenant| &tenant.cache_salt);
        assert_eq!(salt("bb"), salt("ccc"));
        assert_ne!(salt("a"), salt("bb"));
    }

    #[test]
    fn a_tenant_may_be_held_to_some_models() {
        let tenant = Tenant { models: vec!["m".to_owned()], ..(*Tenant::anybody()).clone() };
        assert!(tenant.may_use("m") && !tenant.may_use("n"));
        assert!(Tenant::anybody().may_use("n"));
    }

    #[test]
    fn a_tenant_may_ask_for_less_than_its_class_but_not_for_more() {
        let tenant = Tenant { id: TenantId(1), ..(*Tenant::anybody()).clone() };
        assert_eq!(tenant.class_of(None), Class::Normal);
        assert_eq!(tenant.class_of(Some(Class::Batch)), Class::Batch);
        assert_eq!(tenant.class_of(Some(Class::High)), Class::Normal);
        assert_eq!(Tenant::anybody().class_of(Some(Class::High)), Class::High);
    }

    /// U109: what is printed of a keyring holds no key.
    #[test]
    fn a_keyring_never_shows_a_key() {
        let mut entry = entry("a", &[("canary", None)]);
        entry.keys[0].id = "k1".to_owned();
        assert!(!format!("{:?}", ring(vec![entry]).unwrap()).contains("canary"));
    }
}
