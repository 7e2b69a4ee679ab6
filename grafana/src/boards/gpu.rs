//! Every card by index.

use shared::metric::gpu as names;

use super::{NO_GPU, OF_GPU, third};
use crate::board::{Board, GPU};
use crate::panel::{Panel, Shape, Unit};

/// The board.
pub fn board() -> Board {
    Board {
        uid: "flotilla-gpu",
        title: "Flotilla / GPU",
        description: "Every card by index: our replicas' own NVML numbers, DCGM's exporter or nvidia_gpu_exporter, whichever is there.",
        variables: vec![GPU],
        groups: vec![("Work and memory", work()), ("Body", body()), ("Errors", errors())],
    }
}

fn card(panel: Panel, expr: &str) -> Panel {
    panel.ask("{{instance}} gpu {{gpu}}", expr.replace('@', OF_GPU)).may_be_empty(NO_GPU)
}

fn work() -> Vec<Panel> {
    vec![
        card(
            Panel::new("Memory now", "Part of each card in use, by anyone.", Shape::Bars, Unit::Ratio)
                .limits(0.9, 0.97),
            "gpu:memory_used:bytes{@} / on (instance, gpu, uuid) gpu:memory_total:bytes{@}",
        ),
        card(
            third(
                "Utilisation",
                "Share of time in which some kernel ran. One card at 100 % and another at 5 %: tensor parallelism is not in effect.",
                Unit::Ratio,
            ),
            "gpu:utilization:ratio{@}",
        ),
        card(third("Memory in use", "By anyone.", Unit::Bytes), "gpu:memory_used:bytes{@}"),
        card(
            third(
                "Memory of others",
                "What processes other than the replica hold: `flotilla doctor` names them.",
                Unit::Bytes,
            ),
            "gpu:memory_foreign:bytes{@}",
        ),
        card(
            third(
                "NVLink",
                "Payload over all links. Nothing here with tensor parallelism: the traffic goes over PCIe.",
                Unit::BytesPerSecond,
            ),
            "gpu:nvlink:bytes_rate1m{@}",
        ),
        card(
            third("Clock", "Of the multiprocessors; a drop under load is throttling.", Unit::Hertz),
            "gpu:sm_clock:hertz{@}",
        ),
    ]
}

fn body() -> Vec<Panel> {
    vec![
        card(
            third("Temperature", "Of the chip.", Unit::Celsius).limits(80.0, 90.0),
            "gpu:temperature:celsius{@}",
        ),
        card(third("Power", "Drawn by each card.", Unit::Watts), "gpu:power:watts{@}"),
        card(
            Panel::new("Throttled", "Red while heat or power hold a card back.", Shape::States, Unit::Count)
                .limits(0.5, 1.0),
            "gpu:throttled:bool{@}",
        ),
    ]
}

fn errors() -> Vec<Panel> {
    vec![
        card(
            third("XID events in 10 minutes", "Critical errors; `dmesg` has their numbers.", Unit::Count),
            "gpu:xid:changes10m{@}",
        ),
        card(
            third("Memory errors in an hour", "Not corrected: answers may be wrong.", Unit::Count),
            "gpu:ecc_uncorrected:increase1h{@}",
        ),
        card(
            third(
                "Corrected memory errors in an hour",
                "Harmless one by one; many on one card announce worse.",
                Unit::Count,
            ),
            "gpu:ecc_corrected:increase1h{@}",
        ),
        Panel::new("Cards", "Names and drivers, as replicas tell them.", Shape::Bars, Unit::Count)
            .ask(
                "{{instance}} gpu {{gpu}}: {{name}}, driver {{driver}}",
                format!("max by (instance, gpu, name, driver) ({}{{{OF_GPU}}})", names::INFO.name),
            )
            .may_be_empty(NO_GPU)
            .size(24, 4),
    ]
}
