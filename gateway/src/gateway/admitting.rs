//! Who may start: the core counts, this gives leave that comes back by itself.

use super::Gateway;
use crate::tenants::{Keyring, Tenant};
use gateway_core::admission::{Denied, Permit, Standing, TenantId};
use std::sync::Arc;

/// Leave for one request. Dropped without a count, the estimate stands.
#[derive(Debug)]
pub struct Admitted {
    gateway: Arc<Gateway>,
    permit: Option<Permit>,
}

impl Admitted {
    /// The request is over, and took so many tokens.
    pub fn finish(mut self, tokens: u32) {
        self.close(Some(tokens));
    }

    fn close(&mut self, tokens: Option<u32>) {
        if let Some(permit) = self.permit.take() {
            let now = self.gateway.now();
            self.gateway.core().admission.finish(permit, tokens, now);
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.close(None);
    }
}

impl Gateway {
    /// Asks for leave to start a request of about so many tokens.
    ///
    /// # Errors
    ///
    /// [`Denied`] names the limit and when to come back.
    pub fn admit(self: &Arc<Self>, tenant: &Tenant, tokens: u32) -> Result<Admitted, Denied> {
        let now = self.now();
        let permit = self.core().admission.admit(tenant.id, tokens, now)?;
        Ok(Admitted { gateway: self.clone(), permit: Some(permit) })
    }

    /// Where a tenant stands with its requests and its tokens a minute.
    pub fn standing(&self, tenant: TenantId) -> (Option<Standing>, Option<Standing>) {
        self.core().admission.standing(tenant, self.now())
    }

    /// New keys: allowances change, what runs keeps running.
    pub fn set_tenants(&self, ring: &Keyring) {
        let now = self.now();
        let mut core = self.core();
        core.admission.retain(|id| ring.numbered(id).is_some());
        for tenant in ring.tenants() {
            core.admission.set(tenant.id, tenant.allowance, now);
        }
    }
}
