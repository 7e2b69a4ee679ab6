//! The SLO and how fast its error budget burns: alerts on two windows at once, so that they come soon and go soon
//! (the multi-window, multi-burn-rate alerts of Google's SRE workbook).

use std::time::Duration;

use shared::metric::gateway as names;
use shared::slo::Slo;

use super::{Alert, Case, Record, Severity};

/// What answers are measured against; the gateway counts goodput against the same unless it is told otherwise.
pub const SLO: Slo = Slo::DEFAULT;

/// A promise: this part of requests is good.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Objective {
    /// Its name in recorded series.
    pub name: &'static str,
    /// Its name in alerts.
    pub title: &'static str,
    /// The part of requests that must be good.
    pub target: f64,
}

/// All promises.
pub const OBJECTIVES: [Objective; 3] = [
    Objective { name: "availability", title: "Availability", target: 0.999 },
    Objective { name: "ttft", title: "FirstToken", target: 0.95 },
    Objective { name: "tpot", title: "TokenPace", target: 0.95 },
];

/// Windows that somebody needs.
const WINDOWS: [&str; 6] = ["5m", "30m", "1h", "2h", "6h", "3d"];

/// How fast, over which windows, and how loud.
const BURNS: [(&str, f64, &str, &str, Severity); 3] = [
    ("Fast", 14.4, "1h", "5m", Severity::Page),
    ("Steady", 6.0, "6h", "30m", Severity::Page),
    ("Slow", 1.0, "3d", "6h", Severity::Ticket),
];

/// Fewer requests than this an hour say nothing of a rate.
const REQUESTS_PER_HOUR_MIN: u32 = 50;

/// Selects a histogram's bucket that ends at a target, however the server writes the number.
pub fn bound(target: Duration) -> String {
    let seconds = target.as_secs_f64();
    if seconds.fract() == 0.0 {
        format!("le=~\"{seconds}|{seconds:.1}\"")
    } else {
        format!("le=\"{seconds}\"")
    }
}

/// The part of requests that is bad, by model.
fn errors(objective: &str, window: &str) -> String {
    if objective == "availability" {
        let requests = names::REQUESTS.name;
        return format!(
            "sum by (model) (rate({requests}{{outcome=~\"shed|no_replica|failed|broken\"}}[{window}])) / \
             (sum by (model) (rate({requests}{{outcome!~\"client_error|client_closed\"}}[{window}])) > 0)"
        );
    }
    let (histogram, target) =
        if objective == "ttft" { (&names::TTFT, SLO.ttft) } else { (&names::TPOT, SLO.tpot) };
    let (name, bound) = (histogram.name, bound(target));
    format!(
        "1 - sum by (model) (rate({name}_bucket{{{bound}}}[{window}])) / \
         (sum by (model) (rate({name}_count[{window}])) > 0)"
    )
}

/// The recorded series of an objective's bad part.
pub fn series(objective: &str, window: &str) -> String {
    format!("slo:{objective}_errors:ratio_rate{window}")
}

/// Every objective over every window.
pub fn records() -> Vec<Record> {
    let pairs = OBJECTIVES.iter().flat_map(|objective| WINDOWS.iter().map(move |window| (objective, window)));
    pairs
        .map(|(objective, window)| {
            Record::new(series(objective.name, window), errors(objective.name, window))
        })
        .collect()
}

/// An alert for every objective and speed.
pub fn alerts() -> Vec<Alert> {
    let pairs = OBJECTIVES.iter().flat_map(|objective| BURNS.iter().map(move |burn| (objective, burn)));
    pairs.map(|(objective, burn)| alert(objective, *burn)).collect()
}

fn alert(objective: &Objective, burn: (&str, f64, &str, &str, Severity)) -> Alert {
    let (speed, factor, long, short, severity) = burn;
    let limit = format!("{:.6}", factor * (1.0 - objective.target));
    let limit = limit.trim_end_matches('0');
    let (slow, quick) = (series(objective.name, long), series(objective.name, short));
    let requests = names::REQUESTS.name;
    let action = match objective.name {
        "availability" => {
            "Open the fleet board: `no_replica` means none is ready (replica states), `shed` means too few (queue, KV), `failed` and `broken` name a replica on the routing board."
        }
        "ttft" => {
            "Open the fleet board: a long queue or full KV wants replicas or shorter prompts; a low cached share wants the routing board; neither, and it is prefill itself."
        }
        _ => {
            "Open the replica board: many running sequences with long steps want a smaller --max-num-seqs or another replica; throttled cards want the GPU board."
        }
    };
    let (fires, quiet) = cases(objective);
    Alert {
        name: format!("Slo{}Burn{speed}", objective.title),
        expr: format!(
            "{slow} > {limit} and on (model) {quick} > {limit} and on (model) \
             (sum by (model) (rate({requests}[1h])) * 3600 > {REQUESTS_PER_HOUR_MIN})"
        ),
        hold: "1m",
        severity,
        summary: format!(
            "The error budget of `{{{{ $labels.model }}}}` for {} burns {factor} times as fast as it may.",
            objective.name
        ),
        action,
        fires,
        quiet,
    }
}

/// Ten requests a minute, of which all are bad; and of which none is.
fn cases(objective: &Objective) -> (Case, Case) {
    let ok = format!("{}{{model=\"m\",outcome=\"ok\"}}", names::REQUESTS.name);
    let failed = format!("{}{{model=\"m\",outcome=\"failed\"}}", names::REQUESTS.name);
    if objective.name == "availability" {
        let case = |good: &str, bad: &str| Case::after(60, &[(&ok, good), (&failed, bad)]);
        return (case("0x70", "0+10x70"), case("0+10x70", "0x70"));
    }
    let (name, target) =
        if objective.name == "ttft" { (names::TTFT.name, SLO.ttft) } else { (names::TPOT.name, SLO.tpot) };
    let within = format!("{name}_bucket{{model=\"m\",le=\"{}\"}}", target.as_secs_f64());
    let count = format!("{name}_count{{model=\"m\"}}");
    let case = |good: &str| Case::after(60, &[(&ok, "0+10x70"), (&within, good), (&count, "0+10x70")]);
    (case("0x70"), case("0+10x70"))
}
