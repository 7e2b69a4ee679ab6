//! Which policy each model follows: configuration says it at the start, operators change it while the gateway runs.

use super::Gateway;
use crate::config::Routing;
use gateway_core::route::Policy;
use std::collections::BTreeMap;

impl Gateway {
    /// The policy of models that have none of their own, and the others' by model.
    pub fn policies(&self) -> (Policy, BTreeMap<String, Policy>) {
        let core = self.core();
        let own = core.router.policies();
        let own = own.map(|(model, policy)| (core.fleet.model_name(model).to_owned(), policy)).collect();
        (core.router.default_policy(), own)
    }

    /// Changes the policy of models that have none of their own.
    pub fn set_default_policy(&self, policy: Policy) {
        self.core().router.set_policy(None, policy);
    }

    /// Gives a model a policy of its own, or takes it back; a model that nobody serves yet has it when it comes.
    ///
    /// # Errors
    ///
    /// When too many models that nobody serves are waited for already.
    pub fn set_policy(&self, model: &str, policy: Option<Policy>) -> Result<(), String> {
        let mut core = self.core();
        let key = core.fleet.expect(model);
        let key = key.ok_or_else(|| format!("`{model}`: too many models that nobody serves"))?;
        match policy {
            Some(policy) => core.router.set_policy(Some(key), policy),
            None => core.router.unset_policy(key),
        }
        Ok(())
    }

    /// Takes in what changed between two readings; what operators changed otherwise stays.
    pub fn change_policies(&self, before: &Routing, now: &Routing) {
        if before.policy != now.policy {
            self.set_default_policy(now.policy);
        }
        let left = before.policies.keys().filter(|model| !now.policies.contains_key(*model));
        let set = now.policies.iter().filter(|(model, policy)| before.policies.get(*model) != Some(policy));
        let changes =
            left.map(|model| (model, None)).chain(set.map(|(model, policy)| (model, Some(*policy))));
        for (model, policy) in changes {
            if let Err(error) = self.set_policy(model, policy) {
                tracing::warn!(error, "`routing.policies` not followed");
            }
        }
    }
}
