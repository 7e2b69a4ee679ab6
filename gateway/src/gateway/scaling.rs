//! How many replicas each model wants, for autoscalers to ask.

use super::Gateway;
use gateway_core::capacity::{Scale, fleet_requests_per_s, load};
use shared::wire::ScaleEntry;

impl Gateway {
    /// Takes in how busy each model is. Called every so often, so that a burst between two questions is seen.
    pub(super) fn observe_scale(&self) {
        let now = self.now();
        let damping = self.config.load().scale.damping;
        let mut core = self.core();
        let core = &mut *core;
        for (_, model) in core.fleet.models_served() {
            let load = load(&core.fleet, model, core.queue.waiting(model), now);
            let serving =
                core.fleet.replicas().iter().filter(|replica| replica.is_serving() && replica.serves(model));
            let replicas = serving.count() as u32;
            let scale = core.scales.entry(model).or_insert_with(|| Scale::new(damping, replicas));
            scale.observe(load, now);
        }
    }

    /// What each model that was ever served has and wants.
    pub fn scale(&self) -> Vec<ScaleEntry> {
        let now = self.now();
        let slo = self.config.load().scale.slo;
        let core = self.core();
        let entry = |(&model, scale): (_, &Scale)| {
            let of_model = core.fleet.replicas().iter().filter(|replica| replica.serves(model));
            let waiting = core.queue.waiting(model);
            ScaleEntry {
                model: core.fleet.model_name(model).to_owned(),
                replicas_ready: of_model.clone().filter(|replica| replica.is_serving()).count() as u32,
                replicas: of_model.count() as u32,
                replicas_wanted: scale.wanted(),
                load: load(&core.fleet, model, waiting, now),
                waiting: waiting as u32,
                requests_per_s_max: fleet_requests_per_s(&core.fleet, model, slo, now),
            }
        };
        core.scales.iter().map(entry).collect()
    }
}
