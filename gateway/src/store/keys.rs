//! Keeps a gateway's keys in step with those in the store.

use super::Store;
use crate::tenants::{Keyring, Tenants};
use std::sync::Arc;
use std::time::Duration;

/// How often the store is asked: a revoked key is good for about so long.
const LOOK: Duration = Duration::from_secs(1);

/// Looks for ever; `changed` hears of each new keyring. While the store can't be reached, or what it holds can't be
/// read, the keys of the last good look stay.
pub async fn follow_keys(tenants: Arc<Tenants>, store: Arc<dyn Store>, mut changed: impl FnMut(&Keyring)) {
    let mut last_error = None;
    loop {
        let taken = match store.keys().await {
            Ok(Some(text)) => tenants.take(&text),
            Ok(None) => Err("there are no keys in the store".to_owned()),
            Err(outage) => Err(outage.to_string()),
        };
        match taken {
            Ok(false) => last_error = None,
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
        tokio::time::sleep(LOOK).await;
    }
}
