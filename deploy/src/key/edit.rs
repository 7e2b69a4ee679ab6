//! Changes of the key file. Pure: time and chance come in.

use std::time::Duration;

use shared::keys::{KeyEntry, KeyFile, TenantEntry, digest};

/// A new key and the id that names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Drawn {
    /// Names it without telling it.
    pub id: String,
    /// The key itself, which nobody keeps.
    pub key: String,
}

impl Drawn {
    fn entry(&self, now: u64, expires_at: Option<u64>) -> KeyEntry {
        KeyEntry { id: self.id.clone(), sha256: digest(self.key.as_bytes()), created_at: now, expires_at }
    }
}

/// Adds a tenant with a key; a tenant that is there gets one more key, and the limits that are wished now.
///
/// # Errors
///
/// When the name can't be one.
pub fn create(
    keys: &mut KeyFile,
    wished: TenantEntry,
    drawn: &Drawn,
    now: u64,
    expires_at: Option<u64>,
) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if wished.name.is_empty() || wished.name.len() > 64 || !wished.name.chars().all(is_plain) {
        return Err(format!("{:?}: a tenant's name is 1 to 64 letters, digits, -, _ or .", wished.name));
    }
    let entry = drawn.entry(now, expires_at);
    match keys.tenants.iter_mut().find(|tenant| tenant.name == wished.name) {
        Some(tenant) => {
            let mut all = std::mem::take(&mut tenant.keys);
            all.push(entry);
            *tenant = TenantEntry { keys: all, ..wished };
        }
        None => keys.tenants.push(TenantEntry { keys: vec![entry], ..wished }),
    }
    Ok(())
}

/// Gives a tenant a new key and its old ones an end.
///
/// # Errors
///
/// When there is no such tenant.
pub fn rotate(
    keys: &mut KeyFile,
    name: &str,
    drawn: &Drawn,
    now: u64,
    grace: Duration,
) -> Result<(), String> {
    let tenant = keys.tenants.iter_mut().find(|tenant| tenant.name == name);
    let tenant = tenant.ok_or_else(|| format!("there is no tenant {name}"))?;
    let end = now + grace.as_secs();
    tenant.keys.retain(|key| key.expires_at.is_none_or(|expires_at| expires_at > now));
    for key in &mut tenant.keys {
        key.expires_at = Some(key.expires_at.map_or(end, |expires_at| expires_at.min(end)));
    }
    tenant.keys.push(drawn.entry(now, None));
    Ok(())
}

/// Takes a tenant away, or the key of that id; returns how many keys went.
///
/// # Errors
///
/// When there is neither.
pub fn revoke(keys: &mut KeyFile, target: &str) -> Result<usize, String> {
    let count = |keys: &KeyFile| keys.tenants.iter().map(|tenant| tenant.keys.len()).sum::<usize>();
    let before = count(keys);
    if keys.tenants.iter().any(|tenant| tenant.name == target) {
        keys.tenants.retain(|tenant| tenant.name != target);
        return Ok(before - count(keys));
    }
    for tenant in &mut keys.tenants {
        tenant.keys.retain(|key| key.id != target);
    }
    let gone = before - count(keys);
    if gone == 0 { Err(format!("{target} is neither a tenant nor a key's id")) } else { Ok(gone) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(id: &str) -> Drawn {
        Drawn { id: id.to_owned(), key: format!("sk-{id}") }
    }

    fn tenant(name: &str) -> TenantEntry {
        TenantEntry { name: name.to_owned(), ..TenantEntry::default() }
    }

    fn with_two() -> KeyFile {
        let mut keys = KeyFile::default();
        create(&mut keys, tenant("a"), &drawn("k1"), 100, None).unwrap();
        create(&mut keys, tenant("b"), &drawn("k2"), 100, None).unwrap();
        keys
    }

    #[test]
    fn the_file_holds_digests_and_never_keys() {
        let keys = with_two();
        let text = serde_json::to_string(&keys).unwrap();
        assert!(!text.contains("sk-k1"), "{text}");
        assert_eq!(keys.tenants[0].keys[0].sha256, digest(b"sk-k1"));
    }

    #[test]
    fn a_second_create_adds_a_key_and_takes_the_new_limits() {
        let mut keys = with_two();
        let wished = TenantEntry { requests_max: Some(3), ..tenant("a") };
        create(&mut keys, wished, &drawn("k3"), 200, Some(300)).unwrap();
        let ids: Vec<_> = keys.tenants[0].keys.iter().map(|key| key.id.as_str()).collect();
        assert_eq!((ids, keys.tenants[0].requests_max, keys.tenants.len()), (vec!["k1", "k3"], Some(3), 2));
    }

    #[test]
    fn after_a_rotation_old_keys_end_and_ended_ones_are_gone() {
        let mut keys = with_two();
        rotate(&mut keys, "a", &drawn("k3"), 1000, Duration::from_mins(1)).unwrap();
        let ends: Vec<_> = keys.tenants[0].keys.iter().map(|key| (key.id.as_str(), key.expires_at)).collect();
        assert_eq!(ends, [("k1", Some(1060)), ("k3", None)]);
        rotate(&mut keys, "a", &drawn("k4"), 2000, Duration::ZERO).unwrap();
        let ends: Vec<_> = keys.tenants[0].keys.iter().map(|key| (key.id.as_str(), key.expires_at)).collect();
        assert_eq!(ends, [("k3", Some(2000)), ("k4", None)]);
        assert!(rotate(&mut keys, "nobody", &drawn("k5"), 0, Duration::ZERO).is_err());
    }

    #[test]
    fn a_key_or_a_tenant_is_revoked_and_nothing_else() {
        let mut keys = with_two();
        assert_eq!(revoke(&mut keys, "k1"), Ok(1));
        assert_eq!((keys.tenants[0].keys.len(), keys.tenants[1].keys.len()), (0, 1));
        assert_eq!(revoke(&mut keys, "b"), Ok(1));
        assert_eq!(keys.tenants.len(), 1);
        assert!(revoke(&mut keys, "k1").is_err());
    }

    #[test]
    fn a_name_must_fit_logs_and_labels() {
        for wrong in ["", "a b", "a\"b", &"x".repeat(65)] {
            assert!(create(&mut KeyFile::default(), tenant(wrong), &drawn("k"), 0, None).is_err(), "{wrong}");
        }
    }
}
