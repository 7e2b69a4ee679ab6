//! The page to look at first: KV across the top, latency left, GPU right, load below.

use shared::metric::gateway as names;

use super::{NO_GPU, OF_BOTH, OF_MODEL, OF_REPLICA, half, number, quantiles, rate, third};
use crate::board::{Board, MODEL, REPLICA};
use crate::panel::{Panel, Shape, Unit};

/// The board.
pub fn board() -> Board {
    Board {
        uid: "flotilla-fleet",
        title: "Flotilla / Fleet",
        description: "One look finds the bottleneck: KV usage across the top, latency left, GPU right.",
        variables: vec![MODEL, REPLICA],
        groups: vec![
            ("Now", now()),
            ("KV cache of every replica", kv()),
            ("Latency (left) and cards (right)", latency_and_cards()),
            ("Load", load()),
            ("Trouble", trouble()),
        ],
    }
}

fn now() -> Vec<Panel> {
    let requests = names::REQUESTS.name;
    let good = format!("sum(rate({}{{{OF_MODEL}}}[$__rate_interval]))", names::GOODPUT.name);
    let served = format!(
        "sum(rate({requests}{{{OF_MODEL},outcome!~\"client_error|client_closed\"}}[$__rate_interval]))"
    );
    let bad = format!(
        "sum(rate({requests}{{{OF_MODEL},outcome=~\"shed|no_replica|failed|broken\"}}[$__rate_interval]))"
    );
    let p95 = format!(
        "histogram_quantile(0.95, sum by (le) (rate({}_bucket{{{OF_MODEL}}}[$__rate_interval])))",
        names::TTFT.name
    );
    vec![
        number("Ready replicas", "Replicas that take work, summed over the chosen models.", Unit::Count)
            .ask("ready", format!("sum({}{{{OF_MODEL}}})", names::READY_REPLICAS.name))
            .limits(1.0, 0.5),
        number("Requests", "Requests that ended, a second.", Unit::RequestsPerSecond)
            .ask("requests", format!("sum({})", rate(&names::REQUESTS, "model", OF_MODEL))),
        number(
            "Goodput",
            "Part of served requests whose first token and pace were within the SLO.",
            Unit::Ratio,
        )
        .ask("good", format!("{good} / ({served} > 0)"))
        .limits(0.95, 0.8),
        number("Errors", "Part of requests that we failed: shed, no replica, failed or broken.", Unit::Ratio)
            .ask("bad", format!("{bad} / ({served} > 0)"))
            .limits(0.001, 0.01),
        number(
            "First token, p95",
            "Time to the first token that 95 % of requests keep below.",
            Unit::Seconds,
        )
        .ask("p95", p95)
        .limits(1.0, 2.0),
        number("Waiting in the gateway", "Requests that no replica has room for.", Unit::Count)
            .ask("queued", format!("sum({})", names::QUEUED.name))
            .limits(1.0, 50.0),
    ]
}

fn kv() -> Vec<Panel> {
    vec![
        Panel::new(
            "KV usage now",
            "Part of the KV pool that sequences hold. Above 0.9 with requests waiting: add a replica or shorten contexts.",
            Shape::Bars,
            Unit::Ratio,
        )
        .ask("{{replica}}", format!("max by (replica) (replica:kv_usage:ratio{{{OF_BOTH}}})"))
        .limits(0.75, 0.9)
        .size(12, 8),
        half("KV usage", "The same over time.", Unit::Ratio)
            .ask("{{replica}}", format!("max by (replica) (replica:kv_usage:ratio{{{OF_BOTH}}})"))
            .limits(0.75, 0.9),
    ]
}

fn latency_and_cards() -> Vec<Panel> {
    vec![
        quantiles(
            half(
                "Time to first token",
                "As clients see it, over all replicas. p99 far above p50 means queueing.",
                Unit::Seconds,
            ),
            &names::TTFT,
            OF_MODEL,
        ),
        half(
            "GPU utilisation",
            "Every card by index. Near 100 % in decode is normal; 50 % with slow answers is a bottleneck elsewhere.",
            Unit::Ratio,
        )
        .ask("{{instance}} gpu {{gpu}}", "gpu:utilization:ratio")
        .may_be_empty(NO_GPU),
        quantiles(
            half("Time between tokens", "Between two tokens of one stream, as they go out.", Unit::Seconds),
            &names::ITL,
            OF_MODEL,
        ),
        half("GPU memory", "Part of each card's memory in use, by anyone.", Unit::Ratio)
            .ask(
                "{{instance}} gpu {{gpu}}",
                "gpu:memory_used:bytes / on (instance, gpu, uuid) gpu:memory_total:bytes",
            )
            .may_be_empty(NO_GPU),
        quantiles(
            half("Whole request", "From the request's head in to its last byte out.", Unit::Seconds),
            &names::DURATION,
            OF_MODEL,
        ),
        half("GPU power", "Power of each card. Low power with high utilisation: waiting for memory.", Unit::Watts)
            .ask("{{instance}} gpu {{gpu}}", "gpu:power:watts")
            .may_be_empty(NO_GPU),
    ]
}

fn load() -> Vec<Panel> {
    let by_replica = |record: &str| format!("sum by (replica) ({record}{{{OF_BOTH}}})");
    vec![
        Panel::new("Requests by outcome", "How requests end.", Shape::Stack, Unit::RequestsPerSecond)
            .ask("{{outcome}}", rate(&names::REQUESTS, "outcome", OF_MODEL)),
        third("Running", "Sequences in each replica's running set.", Unit::Count)
            .ask("{{replica}}", by_replica("replica:requests_running:sum")),
        third("Waiting", "Sequences that wait inside each replica.", Unit::Count)
            .ask("{{replica}}", by_replica("replica:requests_waiting:sum")),
        third("Tokens", "Prompt tokens taken in and answer tokens made, a second.", Unit::TokensPerSecond)
            .ask("prompt", format!("sum(replica:prompt_tokens:rate1m{{{OF_BOTH}}})"))
            .ask("answer", format!("sum(replica:generation_tokens:rate1m{{{OF_BOTH}}})")),
        third("Imbalance", "Spread of requests in flight over a model's replicas: 0 is even.", Unit::Ratio)
            .ask("{{model}}", format!("{}{{{OF_MODEL}}}", names::IMBALANCE.name)),
        Panel::new(
            "Ready",
            "1 while a replica takes work; the routing board says why one does not.",
            Shape::States,
            Unit::Count,
        )
        .ask(
            "{{replica}}",
            format!(
                "max by (replica) ({}{{{OF_REPLICA},state=~\"ready|warming\"}})",
                names::REPLICA_STATE.name
            ),
        )
        .limits(1.0, 0.5),
    ]
}

fn trouble() -> Vec<Panel> {
    let overhead = third(
        "The gateway's own time",
        "What the gateway adds before the first byte, without queue, connection and replica.",
        Unit::Seconds,
    );
    vec![
        third(
            "Refused at the door",
            "Requests the gateway refused itself, by the error's code.",
            Unit::EventsPerSecond,
        )
        .ask("{{reason}}", rate(&names::REFUSED, "reason", "")),
        third(
            "Retries, continuations, shadows",
            "Attempts after the first, streams that changed replicas, and copies of requests for a model's shadow.",
            Unit::EventsPerSecond,
        )
        .ask("retry: {{reason}}", rate(&names::RETRIES, "reason", ""))
        .ask("stream {{outcome}}", rate(&names::CONTINUATIONS, "outcome", ""))
        .ask("shadow {{outcome}}", rate(&names::SHADOWS, "outcome", "")),
        quantiles(overhead, &names::OVERHEAD, ""),
        third("In flight", "Requests that are answered or wait in the gateway.", Unit::Count)
            .ask("in flight", format!("sum({})", names::IN_FLIGHT.name))
            .ask("queued", format!("sum({})", names::QUEUED.name)),
        third("Bodies that wait", "Bytes of request bodies in the gateway's queue.", Unit::Bytes)
            .ask("bytes", format!("sum({})", names::QUEUED_BYTES.name)),
        third(
            "The gateway itself",
            "Whether the shared store answers, reloads of the configuration, lost log lines.",
            Unit::Count,
        )
        .ask("store up", format!("min({})", names::STORE_UP.name))
        .ask(
            "reloads {{outcome}}",
            format!("sum by (outcome) (increase({}[$__rate_interval]))", names::CONFIG_RELOADS.name),
        )
        .ask("log lines lost", format!("sum(increase({}[$__rate_interval]))", names::LOG_LINES_DROPPED.name))
        .ask("version {{version}}", format!("sum by (version) ({})", names::INFO.name)),
    ]
}
