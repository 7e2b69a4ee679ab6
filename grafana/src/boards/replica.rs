//! One replica from inside: its queue, its steps, its cache, where a request's time goes.

use shared::metric::replica as names;

use super::{OF_BOTH, number, recorded_quantiles, third};
use crate::board::{Board, MODEL, REPLICA};
use crate::panel::{Panel, Shape, Unit};

/// The filter of series as a replica itself names them.
const OF_INSTANCE: &str = "instance=~\"$replica\"";

/// The board.
pub fn board() -> Board {
    Board {
        uid: "flotilla-replica",
        title: "Flotilla / Replica",
        description: "One replica from inside; ours, vLLM, SGLang and llama.cpp. Choose one above.",
        variables: vec![MODEL, REPLICA],
        groups: vec![
            ("Now", now()),
            ("Where a request's time goes", time()),
            ("Engine", engine()),
            ("KV cache and prefixes", cache()),
            ("Requests", requests()),
            ("Server", server()),
        ],
    }
}

fn own(metric: &shared::metric::Metric, by: &str) -> String {
    format!("sum by ({by}) ({}{{{OF_INSTANCE}}})", metric.name)
}

fn own_rate(metric: &shared::metric::Metric, by: &str) -> String {
    format!("sum by ({by}) (rate({}{{{OF_INSTANCE}}}[$__rate_interval]))", metric.name)
}

/// Quantiles of a histogram that only some engines have.
fn own_quantiles(panel: Panel, metric: &shared::metric::Metric) -> Panel {
    super::quantiles(panel, metric, OF_INSTANCE)
}

fn now() -> Vec<Panel> {
    vec![
        number("Running", "Sequences in the running set.", Unit::Count)
            .ask("running", format!("sum(replica:requests_running:sum{{{OF_BOTH}}})")),
        number("Waiting", "Sequences that wait for their first step.", Unit::Count)
            .ask("waiting", format!("sum(replica:requests_waiting:sum{{{OF_BOTH}}})"))
            .limits(1.0, 20.0),
        number("Fullest KV cache", "Of the fullest chosen replica.", Unit::Ratio)
            .ask("used", format!("max(replica:kv_usage:ratio{{{OF_BOTH}}})"))
            .limits(0.75, 0.9),
        number("Answer tokens", "Made a second.", Unit::TokensPerSecond)
            .ask("tokens", format!("sum(replica:generation_tokens:rate1m{{{OF_BOTH}}})")),
        number("Prompt tokens still to compute", "Over all sequences.", Unit::Count)
            .ask("tokens", format!("sum({}{{{OF_INSTANCE}}})", names::WAITING_TOKENS.name)),
        number("Open connections", "Of clients and gateways.", Unit::Count)
            .ask("connections", format!("sum({}{{{OF_INSTANCE}}})", names::CONNECTIONS.name)),
    ]
}

fn time() -> Vec<Panel> {
    let recorded = |title, description, record| {
        recorded_quantiles(third(title, description, Unit::Seconds), record, OF_BOTH)
    };
    vec![
        recorded("Queue", "From arrival to the first scheduled row.", "replica:queue_seconds:bucket_rate1m"),
        recorded(
            "Prefill",
            "From the first scheduled row to the first token.",
            "replica:prefill_seconds:bucket_rate1m",
        ),
        recorded("Decode", "From the first token to the last.", "replica:decode_seconds:bucket_rate1m"),
        recorded("Time to first token", "Queue and prefill together.", "replica:ttft_seconds:bucket_rate1m"),
        recorded(
            "Between tokens",
            "From one token of a sequence to the next.",
            "replica:itl_seconds:bucket_rate1m",
        ),
        recorded("Whole request", "From arrival to the last token.", "replica:e2e_seconds:bucket_rate1m"),
        own_quantiles(
            third(
                "Time per token of a request",
                "Its decode time divided by its later tokens.",
                Unit::Seconds,
            ),
            &names::REQUEST_TPOT,
        ),
        own_quantiles(
            third("Inference time", "From the first scheduled row to the last token.", Unit::Seconds),
            &names::INFERENCE_TIME,
        ),
        own_quantiles(
            third("Between tokens, vLLM's older name", "For engines that only tell this one.", Unit::Seconds),
            &names::TPOT,
        ),
    ]
}

fn engine() -> Vec<Panel> {
    let seconds = own_rate(&names::STEP_SECONDS, "instance");
    vec![
        third(
            "Running and waiting",
            "A queue beside a short running set: the KV pool or --max-num-seqs is the limit.",
            Unit::Count,
        )
        .ask("{{replica}} runs", format!("sum by (replica) (replica:requests_running:sum{{{OF_BOTH}}})"))
        .ask("{{replica}} waits", format!("sum by (replica) (replica:requests_waiting:sum{{{OF_BOTH}}})")),
        third("Time of a step", "One forward pass of everything that runs.", Unit::Seconds)
            .ask("{{instance}}", format!("{seconds} / ({} > 0)", own_rate(&names::STEPS, "instance"))),
        third("Busy", "Part of time spent in steps; 1 is never idle.", Unit::Ratio)
            .ask("{{instance}}", seconds),
        own_quantiles(
            third("Tokens of a step", "Prefill and decode rows together.", Unit::Count),
            &names::ITERATION_TOKENS,
        ),
        third(
            "Measured pace",
            "What the engine measures of itself: the router's estimate uses it.",
            Unit::TokensPerSecond,
        )
        .ask("{{instance}} prefill", own(&names::PREFILL_RATE, "instance"))
        .ask("{{instance}} decode", own(&names::DECODE_RATE, "instance")),
        third("Tokens", "Prompt tokens taken in and answer tokens made.", Unit::TokensPerSecond)
            .ask(
                "{{replica}} prompt",
                format!("sum by (replica) (replica:prompt_tokens:rate1m{{{OF_BOTH}}})"),
            )
            .ask(
                "{{replica}} answer",
                format!("sum by (replica) (replica:generation_tokens:rate1m{{{OF_BOTH}}})"),
            ),
    ]
}

fn cache() -> Vec<Panel> {
    vec![
        third("KV usage", "Part of the pool that sequences hold.", Unit::Ratio)
            .ask("{{replica}}", format!("max by (replica) (replica:kv_usage:ratio{{{OF_BOTH}}})"))
            .limits(0.75, 0.9),
        third("Blocks", "Free ones may still hold cached prefixes.", Unit::Count)
            .ask("{{instance}} all", own(&names::BLOCKS_TOTAL, "instance"))
            .ask("{{instance}} free", own(&names::BLOCKS_FREE, "instance"))
            .ask("{{instance}} of {{block_size}}", own(&names::CACHE_CONFIG, "instance, block_size")),
        third("Prefix hits", "Part of looked-up prompt tokens found in the cache.", Unit::Ratio)
            .ask("{{replica}}", format!("replica:prefix_hit:ratio{{{OF_BOTH}}}")),
        third(
            "Preemptions",
            "Sequences that gave their blocks back; their work is done again.",
            Unit::EventsPerSecond,
        )
        .ask("{{replica}}", format!("sum by (replica) (replica:preemptions:rate1m{{{OF_BOTH}}})")),
        third(
            "Memory of each rank",
            "A group is as large as its smallest rank: bars should be alike.",
            Unit::Bytes,
        )
        .ask("{{instance}} rank {{rank}} weights", own(&names::RANK_WEIGHT_BYTES, "instance, rank"))
        .ask("{{instance}} rank {{rank}} KV", own(&names::RANK_KV_BYTES, "instance, rank")),
        own_quantiles(third("Prompt length", "Tokens of a prompt.", Unit::Count), &names::REQUEST_PROMPT),
    ]
}

fn requests() -> Vec<Panel> {
    vec![
        own_quantiles(
            third("Answer length", "Tokens of an answer.", Unit::Count),
            &names::REQUEST_GENERATION,
        ),
        own_quantiles(
            third("Wanted length", "The most tokens that requests ask for.", Unit::Count),
            &names::PARAMS_MAX_TOKENS,
        ),
        own_quantiles(third("Wanted choices", "`n` of requests.", Unit::Count), &names::PARAMS_N),
        third(
            "Why answers end",
            "stop and length are normal; abort is a client that left.",
            Unit::RequestsPerSecond,
        )
        .ask("{{finished_reason}}", own_rate(&names::SUCCESS, "finished_reason")),
        third("Requests by outcome", "Generation requests that ended.", Unit::RequestsPerSecond)
            .ask("{{outcome}}", own_rate(&names::REQUESTS, "outcome")),
        third("Refusals", "Requests answered with an error body, by reason.", Unit::EventsPerSecond)
            .ask("{{reason}}", own_rate(&names::REFUSALS, "reason")),
    ]
}

fn server() -> Vec<Panel> {
    vec![
        third("Answers by route and status", "HTTP answers begun.", Unit::RequestsPerSecond)
            .ask("{{route}} {{code}}", own_rate(&names::RESPONSES, "route, code")),
        third("In flight", "Requests between their last body byte and their last answer byte.", Unit::Count)
            .ask("{{instance}}", own(&names::IN_FLIGHT, "instance")),
        Panel::new("State", "Loading, ready, draining or stalled.", Shape::States, Unit::Count)
            .ask("{{instance}} {{state}}", own(&names::STATE, "instance, state")),
        Panel::new("Version", "What runs where.", Shape::Bars, Unit::Count)
            .ask("{{instance}} {{version}} {{dtype}}", own(&names::BUILD, "instance, version, dtype"))
            .size(24, 4),
    ]
}
