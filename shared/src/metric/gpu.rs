//! What a replica exports of the cards it uses, read from NVML. Without a driver none of these exist: a zero would be
//! a lie. Values that a card can't tell are absent too.

use super::{Kind, Metric};

/// Labels of every card's series.
pub const LABELS: &[&str] = &["gpu", "uuid"];

const fn gauge(name: &'static str, help: &'static str) -> Metric {
    Metric { name, help, kind: Kind::Gauge, labels: LABELS }
}

const fn counter(name: &'static str, help: &'static str) -> Metric {
    Metric { name, help, kind: Kind::Counter, labels: LABELS }
}

/// Which card.
pub const INFO: Metric = Metric {
    name: "flotilla_gpu_info",
    help: "The card's name and driver; the value is always 1.",
    kind: Kind::Gauge,
    labels: &["gpu", "uuid", "name", "driver"],
};
/// Utilisation.
pub const UTILIZATION: Metric =
    gauge("flotilla_gpu_utilization_ratio", "Share of time in which some kernel ran, 0 to 1.");
/// Memory in use.
pub const MEMORY_USED: Metric =
    gauge("flotilla_gpu_memory_used_bytes", "Memory in use on the card, by anyone.");
/// Memory there is.
pub const MEMORY_TOTAL: Metric = gauge("flotilla_gpu_memory_total_bytes", "Memory of the card.");
/// Memory of others.
pub const MEMORY_FOREIGN: Metric = gauge(
    "flotilla_gpu_memory_foreign_bytes",
    "Memory that processes other than this replica hold on the card.",
);
/// Temperature.
pub const TEMPERATURE: Metric = gauge("flotilla_gpu_temperature_celsius", "Temperature of the chip.");
/// Power.
pub const POWER: Metric = gauge("flotilla_gpu_power_watts", "Power drawn.");
/// Clock.
pub const CLOCK: Metric = gauge("flotilla_gpu_sm_clock_hertz", "Clock of the multiprocessors.");
/// NVLink traffic.
pub const NVLINK: Metric =
    counter("flotilla_gpu_nvlink_bytes_total", "Payload bytes over all NVLinks, both directions.");
/// Corrected memory errors.
pub const ECC_CORRECTED: Metric =
    counter("flotilla_gpu_ecc_corrected_total", "Memory errors corrected since the driver was loaded.");
/// Uncorrected memory errors.
pub const ECC_UNCORRECTED: Metric =
    counter("flotilla_gpu_ecc_uncorrected_total", "Memory errors not corrected since the driver was loaded.");
/// Critical errors.
pub const XID: Metric =
    counter("flotilla_gpu_xid_errors_total", "Critical errors (XID events) since this replica started.");
/// Slowed down.
pub const THROTTLED: Metric = gauge(
    "flotilla_gpu_throttled",
    "1 while heat or power hold the clock down, 0 while nothing but load or its own limit does.",
);

/// All of them.
pub const ALL: &[Metric] = &[
    INFO,
    UTILIZATION,
    MEMORY_USED,
    MEMORY_TOTAL,
    MEMORY_FOREIGN,
    TEMPERATURE,
    POWER,
    CLOCK,
    NVLINK,
    ECC_CORRECTED,
    ECC_UNCORRECTED,
    XID,
    THROTTLED,
];
