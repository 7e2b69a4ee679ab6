//! What the status page shows: the fleet now, and its last minutes.

use crate::gateway::Gateway;
use crate::telemetry::{Pace, STEP, Sample};
use serde::Serialize;
use shared::wire::FleetEntry;
use std::sync::{Arc, PoisonError};

/// The page, whole: it asks for [`Status`] every two seconds.
pub const PAGE: &str = include_str!("status.html");

/// All that the page needs.
#[derive(Debug, Serialize)]
pub struct Status {
    version: &'static str,
    step_s: f64,
    slo_ttft_s: f64,
    slo_tpot_s: f64,
    in_flight: i64,
    queued: i64,
    models: Vec<Model>,
    replicas: Vec<Row>,
    samples: Vec<Sample>,
}

#[derive(Debug, Serialize)]
struct Model {
    name: String,
    ready: usize,
}

#[derive(Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    entry: FleetEntry,
    #[serde(flatten)]
    pace: Pace,
}

/// As it is now.
pub fn status(gateway: &Gateway) -> Status {
    let slo = gateway.config.load().scale.slo;
    let entries = gateway.entries();
    let models = gateway.ready_replicas();
    let history = gateway.history.lock().unwrap_or_else(PoisonError::into_inner);
    let row = |entry: FleetEntry| Row { pace: history.pace(&entry.id), entry };
    Status {
        version: env!("CARGO_PKG_VERSION"),
        step_s: STEP.as_secs_f64(),
        slo_ttft_s: slo.ttft.as_secs_f64(),
        slo_tpot_s: slo.tpot.as_secs_f64(),
        in_flight: gateway.metrics.in_flight.get(),
        queued: gateway.metrics.queued.get(),
        models: models.into_iter().map(|(name, ready)| Model { name, ready }).collect(),
        replicas: entries.into_iter().map(row).collect(),
        samples: history.samples(),
    }
}

/// Takes samples for as long as the gateway lives.
pub async fn follow(gateway: Arc<Gateway>) {
    let mut steps = tokio::time::interval(STEP);
    steps.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        steps.tick().await;
        gateway.history.lock().unwrap_or_else(PoisonError::into_inner).observe(&gateway.metrics);
    }
}
