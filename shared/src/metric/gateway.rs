//! What the gateway exports. Every label's values are bounded: models and replicas are those of the fleet,
//! the rest are words of this program.

use super::{Kind, Metric};

const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, help, kind: Kind::Counter, labels }
}

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, help, kind: Kind::Gauge, labels }
}

const fn histogram(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, help, kind: Kind::Histogram, labels }
}

/// Requests by how they ended.
pub const REQUESTS: Metric = counter(
    "flotilla_gateway_requests_total",
    &["model", "outcome"],
    "Requests by outcome: ok, failed_over, continued, client_error, client_closed, shed, no_replica, failed, broken.",
);
/// Requests that are being answered or wait.
pub const IN_FLIGHT: Metric = gauge(
    "flotilla_gateway_requests_in_flight",
    &[],
    "Requests that are being answered or wait for a replica.",
);
/// Requests that wait in the gateway.
pub const QUEUED: Metric =
    gauge("flotilla_gateway_requests_queued", &[], "Requests that wait in the gateway's queue.");
/// Whether the store can be reached.
pub const STORE_UP: Metric = gauge(
    "flotilla_gateway_store_up",
    &[],
    "1 while the store that gateways share can be reached, or none is configured; 0 while this one goes on alone.",
);
/// Body bytes of the requests that wait.
pub const QUEUED_BYTES: Metric =
    gauge("flotilla_gateway_queued_bytes", &[], "Bytes of request bodies that wait in the gateway's queue.");
/// Requests refused at the door.
pub const REFUSED: Metric = counter(
    "flotilla_gateway_refused_total",
    &["reason"],
    "Requests the gateway itself refused, by the error's code.",
);
/// Time to first token.
pub const TTFT: Metric = histogram(
    "flotilla_gateway_ttft_seconds",
    &["model"],
    "From the request's last byte in to the first token out.",
);
/// Time per later token.
pub const TPOT: Metric = histogram(
    "flotilla_gateway_tpot_seconds",
    &["model"],
    "Mean time per token after the first, of each stream.",
);
/// Between two tokens.
pub const ITL: Metric = histogram(
    "flotilla_gateway_itl_seconds",
    &["model"],
    "From one token of a stream to the next, as they go out to the client.",
);
/// Whole time of a request.
pub const DURATION: Metric = histogram(
    "flotilla_gateway_request_duration_seconds",
    &["model"],
    "From the request's head in to its last byte out.",
);
/// Wait in the gateway.
pub const QUEUE_TIME: Metric =
    histogram("flotilla_gateway_queue_seconds", &["model"], "Wait in the gateway for a replica with room.");
/// Cost of choosing.
pub const ROUTE_TIME: Metric = histogram(
    "flotilla_gateway_route_seconds",
    &[],
    "Time to read a request for routing and to choose its replica.",
);
/// The gateway's own share of the wait.
pub const OVERHEAD: Metric = histogram(
    "flotilla_gateway_overhead_seconds",
    &[],
    "Time to the answer's head that neither the queue, the connection nor the replica took; requests of one attempt.",
);
/// Why replicas were chosen.
pub const DECISIONS: Metric = counter(
    "flotilla_gateway_route_decisions_total",
    &["reason"],
    "Routing decisions by what decided: soonest, prefix, session, policy, probe, panic.",
);
/// Answers within the SLO.
pub const GOODPUT: Metric = counter(
    "flotilla_gateway_goodput_total",
    &["model"],
    "Answers whose time to first token and time per token were both within the SLO.",
);
/// The SLO itself.
pub const SLO_SECONDS: Metric =
    gauge("flotilla_gateway_slo_seconds", &["target"], "What goodput is counted against: ttft and tpot.");
/// Spread of the load.
pub const IMBALANCE: Metric = gauge(
    "flotilla_gateway_imbalance_ratio",
    &["model"],
    "Standard deviation of requests in flight over a model's ready replicas, divided by their mean; 0 when idle.",
);
/// Requests of a tenant.
pub const TENANT_REQUESTS: Metric = counter(
    "flotilla_gateway_tenant_requests_total",
    &["tenant", "outcome"],
    "Requests by tenant and outcome; the words are those of flotilla_gateway_requests_total.",
);
/// Tokens of a tenant.
pub const TENANT_TOKENS: Metric = counter(
    "flotilla_gateway_tenant_tokens_total",
    &["tenant", "kind"],
    "Tokens by tenant and kind: prompt, cached (a part of prompt) and completion.",
);
/// Error of the estimate.
pub const TTFT_ERROR: Metric = histogram(
    "flotilla_gateway_ttft_estimate_error_seconds",
    &[],
    "Distance between the estimated and the seen time to first token.",
);
/// Prompt tokens.
pub const PROMPT_TOKENS: Metric =
    counter("flotilla_gateway_prompt_tokens_total", &["model"], "Prompt tokens, as answers' usage tells.");
/// Answer tokens.
pub const COMPLETION_TOKENS: Metric = counter(
    "flotilla_gateway_completion_tokens_total",
    &["model"],
    "Answer tokens, as answers' usage tells.",
);
/// Cached prompt tokens the index promised.
pub const CACHED_PREDICTED: Metric = counter(
    "flotilla_gateway_cached_tokens_predicted_total",
    &["model"],
    "Prompt tokens the prefix index expected to be cached at the chosen replica.",
);
/// Cached prompt tokens replicas reported.
pub const CACHED_REPORTED: Metric = counter(
    "flotilla_gateway_cached_tokens_reported_total",
    &["model"],
    "Prompt tokens that replicas reported as cached.",
);
/// Requests sent to a replica.
pub const REPLICA_REQUESTS: Metric = counter(
    "flotilla_gateway_replica_requests_total",
    &["replica", "outcome"],
    "Attempts by replica and outcome: ok, client_error, refused, failed, client_closed.",
);
/// Tokens of a replica.
pub const REPLICA_TOKENS: Metric = counter(
    "flotilla_gateway_replica_tokens_total",
    &["replica", "kind"],
    "Tokens by replica and kind, as answers' usage tells: prompt, cached (a part of prompt) and completion.",
);
/// Failures of a replica.
pub const REPLICA_FAILURES: Metric = counter(
    "flotilla_gateway_replica_failures_total",
    &["replica", "what"],
    "Failed attempts by replica and kind: connect, reset, server_error, first_byte_timeout, idle_timeout, broken_stream, bad_answer.",
);
/// Requests at a replica.
pub const REPLICA_IN_FLIGHT: Metric = gauge(
    "flotilla_gateway_replica_in_flight",
    &["replica"],
    "Requests this gateway has at the replica now.",
);
/// State of a replica.
pub const REPLICA_STATE: Metric = gauge(
    "flotilla_gateway_replica_state",
    &["replica", "state"],
    "1 for the state the replica is in: joining, warming, ready, draining, ejected or down.",
);
/// Sequences a replica runs.
pub const REPLICA_RUNNING: Metric =
    gauge("flotilla_gateway_replica_running", &["replica"], "Sequences the replica says it runs.");
/// Sequences that wait at a replica.
pub const REPLICA_WAITING: Metric =
    gauge("flotilla_gateway_replica_waiting", &["replica"], "Sequences the replica says wait there.");
/// KV usage of a replica.
pub const REPLICA_KV_USAGE: Metric = gauge(
    "flotilla_gateway_replica_kv_usage_ratio",
    &["replica"],
    "Part of the replica's KV pool in use, 0 to 1.",
);
/// Age of what is known.
pub const REPLICA_REPORT_AGE: Metric =
    gauge("flotilla_gateway_replica_report_age_seconds", &["replica"], "Age of the replica's last report.");
/// Times a replica was left alone.
pub const EJECTIONS: Metric = counter(
    "flotilla_gateway_ejections_total",
    &["replica"],
    "Times the replica's circuit opened because of its failures.",
);
/// Probes that failed.
pub const PROBE_FAILURES: Metric =
    counter("flotilla_gateway_probe_failures_total", &["replica"], "Probes without a good answer in time.");
/// Attempts after the first.
pub const RETRIES: Metric = counter(
    "flotilla_gateway_retries_total",
    &["reason"],
    "Attempts after a request's first, by what went wrong before.",
);
/// Streams that went on elsewhere.
pub const CONTINUATIONS: Metric = counter(
    "flotilla_gateway_continuations_total",
    &["outcome"],
    "Streams broken after their first byte: resumed elsewhere, or failed.",
);
/// Copies of requests.
pub const SHADOWS: Metric = counter(
    "flotilla_gateway_shadows_total",
    &["outcome"],
    "Copies of requests for a model's shadow: answered, failed, or skipped since nobody was idle.",
);
/// Connections to replicas.
pub const UPSTREAM_CONNECTIONS: Metric = counter(
    "flotilla_gateway_upstream_connections_total",
    &["kind"],
    "Connections used for attempts: fresh, reused, or replaced because a reused one was closed.",
);
/// Replicas ready for a model.
pub const READY_REPLICAS: Metric =
    gauge("flotilla_gateway_ready_replicas", &["model"], "Replicas ready for the model.");
/// Log lines lost.
pub const LOG_LINES_DROPPED: Metric = counter(
    "flotilla_gateway_access_log_dropped_total",
    &[],
    "Access log lines dropped because the writer could not keep up.",
);
/// Configuration loads.
pub const CONFIG_RELOADS: Metric = counter(
    "flotilla_gateway_config_reloads_total",
    &["outcome"],
    "Reloads of the configuration file: ok or failed.",
);

/// Who this is.
pub const INFO: Metric =
    gauge("flotilla_gateway_info", &["version"], "Identity of this gateway; the value is always 1.");

/// All of them.
pub const ALL: &[Metric] = &[
    REQUESTS,
    IN_FLIGHT,
    QUEUED,
    QUEUED_BYTES,
    STORE_UP,
    REFUSED,
    TTFT,
    TPOT,
    ITL,
    DURATION,
    QUEUE_TIME,
    ROUTE_TIME,
    OVERHEAD,
    DECISIONS,
    GOODPUT,
    SLO_SECONDS,
    IMBALANCE,
    TENANT_REQUESTS,
    TENANT_TOKENS,
    TTFT_ERROR,
    PROMPT_TOKENS,
    COMPLETION_TOKENS,
    CACHED_PREDICTED,
    CACHED_REPORTED,
    REPLICA_REQUESTS,
    REPLICA_TOKENS,
    REPLICA_FAILURES,
    REPLICA_IN_FLIGHT,
    REPLICA_STATE,
    REPLICA_RUNNING,
    REPLICA_WAITING,
    REPLICA_KV_USAGE,
    REPLICA_REPORT_AGE,
    EJECTIONS,
    PROBE_FAILURES,
    RETRIES,
    CONTINUATIONS,
    SHADOWS,
    UPSTREAM_CONNECTIONS,
    READY_REPLICAS,
    LOG_LINES_DROPPED,
    CONFIG_RELOADS,
    INFO,
];

/// Upper bounds of times to first token. Usual SLO targets are bounds, so that "within" can be counted exactly.
pub const TTFT_BOUNDS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0,
    7.5, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 120.0, 300.0,
];

/// Upper bounds of times per token: fine enough for fast GPUs.
pub const TOKEN_BOUNDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.06, 0.075, 0.1, 0.125, 0.15,
    0.2, 0.3, 0.5, 0.75, 1.0, 2.0,
];

/// Upper bounds of whole requests.
pub const DURATION_BOUNDS: &[f64] = &[
    0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0,
    180.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0,
];

/// Upper bounds of waits in a queue.
pub const QUEUE_BOUNDS: &[f64] = &[
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0,
    300.0,
];

/// Upper bounds of the gateway's own work.
pub const OVERHEAD_BOUNDS: &[f64] =
    &[0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_end_in_their_unit() {
        let mut seen = std::collections::BTreeSet::new();
        for metric in ALL {
            assert!(seen.insert(metric.name), "{} is there twice", metric.name);
            assert!(metric.name.starts_with("flotilla_gateway_"), "{}", metric.name);
            assert_eq!(metric.kind == Kind::Counter, metric.name.ends_with("_total"), "{}", metric.name);
            if metric.kind == Kind::Histogram {
                assert!(metric.name.ends_with("_seconds"), "{}", metric.name);
            }
        }
    }
}
