//! Why requests go where they go, and whether caches were where the gateway believed.

use shared::metric::gateway as names;

use super::{OF_BOTH, OF_MODEL, OF_REPLICA, half, mean, quantiles, rate, third};
use crate::board::{Board, MODEL, REPLICA};
use crate::panel::{Panel, Shape, Unit};

/// The board.
pub fn board() -> Board {
    Board {
        uid: "flotilla-routing",
        title: "Flotilla / Routing and prefix cache",
        description: "Why requests go where they go, what the caches save, and what fails on the way.",
        variables: vec![MODEL, REPLICA],
        groups: vec![("Decisions", decisions()), ("Prefix cache", cache()), ("Failures", failures())],
    }
}

fn decisions() -> Vec<Panel> {
    vec![
        Panel::new(
            "Decisions by reason",
            "What decided: soonest first token, a cached prefix, the session, or a probe of a replica that failed.",
            Shape::Stack,
            Unit::EventsPerSecond,
        )
        .ask("{{reason}}", rate(&names::DECISIONS, "reason", "")),
        third("In flight by replica", "Requests this gateway has at each replica.", Unit::Count)
            .ask("{{replica}}", format!("sum by (replica) ({}{{{OF_REPLICA}}})", names::REPLICA_IN_FLIGHT.name)),
        third("Running and waiting as reported", "What each replica last said of itself.", Unit::Count)
            .ask("{{replica}} runs", format!("sum by (replica) ({}{{{OF_REPLICA}}})", names::REPLICA_RUNNING.name))
            .ask("{{replica}} waits", format!("sum by (replica) ({}{{{OF_REPLICA}}})", names::REPLICA_WAITING.name)),
        quantiles(
            third("Wait in the gateway's queue", "For a replica with room.", Unit::Seconds),
            &names::QUEUE_TIME,
            OF_MODEL,
        ),
        quantiles(
            third("Time to choose", "Reading a request for routing and choosing.", Unit::Seconds),
            &names::ROUTE_TIME,
            "",
        ),
        quantiles(
            third(
                "Error of the estimate",
                "Distance between the expected and the seen time to first token. Large: rates are wrong, or load comes from elsewhere.",
                Unit::Seconds,
            ),
            &names::TTFT_ERROR,
            "",
        )
        .ask("mean", mean(&names::TTFT_ERROR, "")),
    ]
}

fn cache() -> Vec<Panel> {
    let tokens = |metric| rate(metric, "model", OF_MODEL);
    vec![
        half("Cached prompt tokens, expected and found", "What the prefix index promised and what replicas reported. Found far below expected: the index is wrong, or caches are evicted.", Unit::TokensPerSecond)
            .ask("{{model}} expected", tokens(&names::CACHED_PREDICTED))
            .ask("{{model}} found", tokens(&names::CACHED_REPORTED)),
        half("Cached part of prompts", "Prompt tokens that need not be computed.", Unit::Ratio)
            .ask(
                "{{model}}",
                format!("{} / ({} > 0)", tokens(&names::CACHED_REPORTED), tokens(&names::PROMPT_TOKENS)),
            ),
        half("Cached part of prompts by replica", "As answers' usage tells, whatever the engine.", Unit::Ratio).ask(
            "{{replica}}",
            format!(
                "{} / ({} > 0)",
                rate(&names::REPLICA_TOKENS, "replica", &format!("{OF_REPLICA},kind=\"cached\"")),
                rate(&names::REPLICA_TOKENS, "replica", &format!("{OF_REPLICA},kind=\"prompt\""))
            ),
        ),
        half("Answer tokens by replica", "As answers' usage tells, whatever the engine.", Unit::TokensPerSecond).ask(
            "{{replica}}",
            rate(&names::REPLICA_TOKENS, "replica", &format!("{OF_REPLICA},kind=\"completion\"")),
        ),
        half("Hits by replica", "Part of looked-up tokens found in each replica's prefix cache.", Unit::Ratio)
            .ask("{{replica}}", format!("replica:prefix_hit:ratio{{{OF_BOTH}}}")),
        half("KV usage as the gateway sees it", "Part of each pool in use, and so how long cached prefixes may live.", Unit::Ratio)
            .ask("{{replica}}", format!("max by (replica) ({}{{{OF_REPLICA}}})", names::REPLICA_KV_USAGE.name)),
    ]
}

fn failures() -> Vec<Panel> {
    vec![
        third("Attempts by outcome", "What became of each attempt at each replica.", Unit::EventsPerSecond)
            .ask("{{replica}} {{outcome}}", rate(&names::REPLICA_REQUESTS, "replica, outcome", OF_REPLICA)),
        third("Failed attempts", "By replica and kind.", Unit::EventsPerSecond)
            .ask("{{replica}} {{what}}", rate(&names::REPLICA_FAILURES, "replica, what", OF_REPLICA)),
        third(
            "Ejections and failed probes",
            "Circuits that opened, and probes without an answer in time.",
            Unit::EventsPerSecond,
        )
        .ask("{{replica}} ejected", rate(&names::EJECTIONS, "replica", OF_REPLICA))
        .ask("{{replica}} probe", rate(&names::PROBE_FAILURES, "replica", OF_REPLICA)),
        Panel::new("State", "Each replica's state over time.", Shape::States, Unit::Count)
            .ask(
                "{{replica}} {{state}}",
                format!("max by (replica, state) ({}{{{OF_REPLICA}}})", names::REPLICA_STATE.name),
            )
            .size(8, 8),
        third("Age of reports", "How old what the gateway knows of each replica is.", Unit::Seconds).ask(
            "{{replica}}",
            format!("max by (replica) ({}{{{OF_REPLICA}}})", names::REPLICA_REPORT_AGE.name),
        ),
        third(
            "Connections to replicas",
            "Fresh, reused from the pool, or replaced because the pooled one was dead.",
            Unit::EventsPerSecond,
        )
        .ask("{{kind}}", rate(&names::UPSTREAM_CONNECTIONS, "kind", "")),
    ]
}
