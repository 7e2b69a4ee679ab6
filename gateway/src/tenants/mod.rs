//! Who may use the gateway: the file of keys, read again when it changes.

mod file;
mod keyring;

pub use file::{Tenants, watch};
pub use keyring::{Caller, Keyring, Stranger, Tenant};
