//! The file of API keys: who may use the gateway, and how much. The operator's command writes it, the gateway
//! reads it; keys are in it only as digests.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Where gateways that share a store find the file there, behind the store's prefix and a colon.
pub const STORE_KEY: &str = "keys";

/// The whole file, as JSON.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KeyFile {
    /// In the order they were made.
    pub tenants: Vec<TenantEntry>,
}

/// One tenant: its keys, and what they are good for.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TenantEntry {
    /// What logs and metrics call it.
    pub name: String,
    /// Several while one replaces another.
    pub keys: Vec<KeyEntry>,
    /// Models it may ask for; empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// Requests a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_min: Option<u32>,
    /// Tokens a minute, prompt and answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_min: Option<u32>,
    /// Requests at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_max: Option<u32>,
    /// How urgent its requests are.
    pub priority: Priority,
    /// Tenants with one salt share cached prefixes; absent: nobody shares with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_salt: Option<String>,
}

/// One key.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KeyEntry {
    /// Names it without telling it.
    pub id: String,
    /// [`digest`] of the key.
    pub sha256: String,
    /// Seconds since 1970.
    pub created_at: u64,
    /// Seconds since 1970 from which on it is no longer good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
}

/// How urgent a tenant's requests are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    /// Twice the share of normal.
    High,
    /// As everybody.
    #[default]
    Normal,
    /// A quarter of the share of normal.
    Low,
    /// Only what nobody else wants.
    Batch,
}

/// SHA-256 as 64 hex digits. Keys are random and long, so a fast hash is enough: there is nothing to guess.
pub fn digest(key: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    Sha256::digest(key).iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_sha_256_in_hex() {
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest(b"abc"), expected);
    }

    #[test]
    fn a_minimal_entry_is_enough() {
        let text = r#"{"tenants":[{"name":"a","keys":[{"id":"k1","sha256":"00"}]}]}"#;
        let file: KeyFile = serde_json::from_str(text).unwrap();
        assert_eq!(file.tenants[0].priority, Priority::Normal);
        assert_eq!(file.tenants[0].models, Vec::<String>::new());
    }

    #[test]
    fn a_misspelt_field_is_refused() {
        assert!(serde_json::from_str::<KeyFile>(r#"{"tenants":[{"nmae":"a"}]}"#).is_err());
    }
}
