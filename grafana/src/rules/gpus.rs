//! Cards under one name, whoever tells of them: a replica of ours (NVML), DCGM's exporter, or `nvidia_gpu_exporter`.
//!
//! Where several tell of one card (by UUID), the first in that order is believed.

use shared::metric::{Metric, gpu};

use super::Record;

/// A name of ours and where it comes from: expressions in which `@` stands for the labels' treatment.
struct Mapping {
    name: &'static str,
    ours: String,
    dcgm: Option<&'static str>,
    smi: Option<&'static str>,
}

const MIB: &str = "1048576";

fn plain(metric: &Metric) -> String {
    metric.name.to_owned()
}

fn of(name: &'static str, ours: String, dcgm: Option<&'static str>, smi: Option<&'static str>) -> Mapping {
    Mapping { name, ours, dcgm, smi }
}

/// What is, now.
fn levels() -> Vec<Mapping> {
    vec![
        of(
            "gpu:utilization:ratio",
            plain(&gpu::UTILIZATION),
            Some("DCGM_FI_DEV_GPU_UTIL / 100"),
            Some("nvidia_smi_utilization_gpu_ratio"),
        ),
        of(
            "gpu:memory_used:bytes",
            plain(&gpu::MEMORY_USED),
            Some("DCGM_FI_DEV_FB_USED * MIB"),
            Some("nvidia_smi_memory_used_bytes"),
        ),
        of(
            "gpu:memory_total:bytes",
            plain(&gpu::MEMORY_TOTAL),
            Some("(DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE) * MIB"),
            Some("nvidia_smi_memory_total_bytes"),
        ),
        of("gpu:memory_foreign:bytes", plain(&gpu::MEMORY_FOREIGN), None, None),
        of(
            "gpu:temperature:celsius",
            plain(&gpu::TEMPERATURE),
            Some("DCGM_FI_DEV_GPU_TEMP"),
            Some("nvidia_smi_temperature_gpu"),
        ),
        of(
            "gpu:power:watts",
            plain(&gpu::POWER),
            Some("DCGM_FI_DEV_POWER_USAGE"),
            Some("nvidia_smi_power_draw_watts"),
        ),
        of(
            "gpu:sm_clock:hertz",
            plain(&gpu::CLOCK),
            Some("DCGM_FI_DEV_SM_CLOCK * 1000000"),
            Some("nvidia_smi_clocks_current_sm_clock_hz"),
        ),
        of(
            "gpu:throttled:bool",
            plain(&gpu::THROTTLED),
            Some("(rate(DCGM_FI_DEV_THERMAL_VIOLATION[1m]) > bool 0)"),
            Some("(nvidia_smi_clocks_event_reasons_hw_slowdown)"),
        ),
    ]
}

/// What has happened lately.
fn changes() -> Vec<Mapping> {
    let over =
        |function: &str, metric: &Metric, window: &str| format!("{function}({}[{window}])", metric.name);
    vec![
        of(
            "gpu:nvlink:bytes_rate1m",
            over("rate", &gpu::NVLINK, "1m"),
            Some("(DCGM_FI_PROF_NVLINK_TX_BYTES + DCGM_FI_PROF_NVLINK_RX_BYTES)"),
            None,
        ),
        of(
            "gpu:ecc_uncorrected:increase1h",
            over("increase", &gpu::ECC_UNCORRECTED, "1h"),
            Some("increase(DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS[1h])"),
            Some("increase(nvidia_smi_ecc_errors_uncorrected_volatile_total[1h])"),
        ),
        of(
            "gpu:ecc_corrected:increase1h",
            over("increase", &gpu::ECC_CORRECTED, "1h"),
            Some("increase(DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS[1h])"),
            Some("increase(nvidia_smi_ecc_errors_corrected_volatile_total[1h])"),
        ),
        of(
            "gpu:xid:changes10m",
            over("increase", &gpu::XID, "10m"),
            Some("changes(DCGM_FI_DEV_XID_ERRORS[10m])"),
            None,
        ),
    ]
}

/// All of them.
pub fn records() -> Vec<Record> {
    levels().into_iter().chain(changes()).map(|mapping| record(&mapping)).collect()
}

fn record(mapping: &Mapping) -> Record {
    let merged = |expr: &str| format!("max by (instance, gpu, uuid) ({expr})");
    let mut exprs = vec![merged(&uuid(&mapping.ours, "uuid"))];
    if let Some(dcgm) = mapping.dcgm {
        exprs.push(merged(&uuid(&dcgm.replace("MIB", MIB), "UUID")));
    }
    if let Some(smi) = mapping.smi {
        let index = "label_replace(nvidia_smi_gpu_info, \"gpu\", \"$1\", \"index\", \"(.*)\")";
        exprs.push(merged(&uuid(&format!("{smi} * on (instance, uuid) group_left (gpu) {index}"), "uuid")));
    }
    Record::new(mapping.name, exprs.join(" or on (uuid) "))
}

/// Exporters differ in whether a UUID begins with `GPU-`.
fn uuid(expr: &str, label: &str) -> String {
    format!("label_replace({expr}, \"uuid\", \"$2\", \"{label}\", \"(GPU-|gpu-)?(.*)\")")
}
