//! Who may start: the core counts, this gives leave that comes back by itself.

use super::Gateway;
use crate::tenants::{Keyring, Tenant};
use gateway_core::admission::{Denied, Permit, Standing, TenantId};
use gateway_core::replica::ModelKey;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Leave for one request. It goes back when dropped, with the tokens the request took.
#[derive(Debug)]
pub struct Admitted {
    gateway: Arc<Gateway>,
    permit: Option<Permit>,
    tokens: AtomicU32,
}

/// Not now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unadmitted(pub Denied);

impl Admitted {
    /// The request took so many tokens; without a word the estimate stands.
    pub fn took(&self, tokens: u32) {
        self.tokens.store(tokens, Ordering::Relaxed);
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            let now = self.gateway.now();
            let tokens = self.tokens.load(Ordering::Relaxed);
            self.gateway.core().admission.finish(permit, Some(tokens), now);
        }
    }
}

impl Gateway {
    /// Asks for leave to start a request.
    ///
    /// # Errors
    ///
    /// [`Unadmitted`] names the limit and when to come back.
    pub fn admit(
        self: &Arc<Self>,
        tenant: &Tenant,
        model: ModelKey,
        prompt_bytes: u32,
        answer_tokens_max: Option<u32>,
    ) -> Result<Admitted, Unadmitted> {
        let now = self.now();
        let mut core = self.core();
        let prompt_tokens = core.fleet.prompt_tokens(model, prompt_bytes);
        let tokens = prompt_tokens.saturating_add(core.fleet.answer_tokens(answer_tokens_max));
        let permit = core.admission.admit(tenant.id, tokens, now).map_err(Unadmitted)?;
        drop(core);
        Ok(Admitted { gateway: self.clone(), permit: Some(permit), tokens: AtomicU32::new(tokens) })
    }

    /// Tokens of a prompt, as far as is known.
    pub fn prompt_tokens(&self, model: &str, bytes: u32) -> u32 {
        let core = self.core();
        core.fleet.model(model).map_or(0, |model| core.fleet.prompt_tokens(model, bytes))
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
