//! What every engine calls its own way, under one name: by replica (its address) and model.

use super::Record;

/// How far rates look back: four scrapes of 15 seconds.
pub const WINDOW: &str = "1m";

/// A name of ours, and what engines call it: aggregation and metric.
struct Mapping {
    name: &'static str,
    sources: &'static [(&'static str, &'static str)],
}

/// Numbers of now. `SGLang` may tell one for each rank: the largest counts.
const GAUGES: &[Mapping] = &[
    Mapping {
        name: "replica:requests_running:sum",
        sources: &[
            ("sum", "vllm:num_requests_running"),
            ("max", "sglang:num_running_reqs"),
            ("sum", "llamacpp:requests_processing"),
        ],
    },
    Mapping {
        name: "replica:requests_waiting:sum",
        sources: &[
            ("sum", "vllm:num_requests_waiting"),
            ("max", "sglang:num_queue_reqs"),
            ("sum", "llamacpp:requests_deferred"),
        ],
    },
    Mapping {
        name: "replica:kv_usage:ratio",
        sources: &[
            ("max", "vllm:kv_cache_usage_perc"),
            ("max", "vllm:gpu_cache_usage_perc"),
            ("max", "sglang:token_usage"),
            ("max", "llamacpp:kv_cache_usage_ratio"),
        ],
    },
];

/// Counters, recorded as rates.
const RATES: &[Mapping] = &[
    Mapping {
        name: "replica:prompt_tokens:rate1m",
        sources: &[
            ("sum", "vllm:prompt_tokens_total"),
            ("sum", "sglang:prompt_tokens_total"),
            ("sum", "llamacpp:prompt_tokens_total"),
        ],
    },
    Mapping {
        name: "replica:generation_tokens:rate1m",
        sources: &[
            ("sum", "vllm:generation_tokens_total"),
            ("sum", "sglang:generation_tokens_total"),
            ("sum", "llamacpp:tokens_predicted_total"),
        ],
    },
    Mapping {
        name: "replica:prefix_queries:rate1m",
        sources: &[("sum", "vllm:prefix_cache_queries_total"), ("sum", "sglang:prompt_tokens_total")],
    },
    Mapping {
        name: "replica:prefix_hits:rate1m",
        sources: &[("sum", "vllm:prefix_cache_hits_total"), ("sum", "sglang:cached_tokens_total")],
    },
    Mapping { name: "replica:preemptions:rate1m", sources: &[("sum", "vllm:num_preemptions_total")] },
    Mapping {
        name: "replica:requests:rate1m",
        sources: &[("sum", "vllm:request_success_total"), ("sum", "sglang:num_requests_total")],
    },
];

/// Histograms, recorded as rates of their buckets, so that quantiles can be taken over any group of replicas.
const HISTOGRAMS: &[Mapping] = &[
    Mapping {
        name: "replica:ttft_seconds:bucket_rate1m",
        sources: &[
            ("sum", "vllm:time_to_first_token_seconds_bucket"),
            ("sum", "sglang:time_to_first_token_seconds_bucket"),
        ],
    },
    Mapping {
        name: "replica:itl_seconds:bucket_rate1m",
        sources: &[
            ("sum", "vllm:inter_token_latency_seconds_bucket"),
            ("sum", "sglang:inter_token_latency_seconds_bucket"),
        ],
    },
    Mapping {
        name: "replica:e2e_seconds:bucket_rate1m",
        sources: &[
            ("sum", "vllm:e2e_request_latency_seconds_bucket"),
            ("sum", "sglang:e2e_request_latency_seconds_bucket"),
        ],
    },
    Mapping {
        name: "replica:queue_seconds:bucket_rate1m",
        sources: &[("sum", "vllm:request_queue_time_seconds_bucket")],
    },
    Mapping {
        name: "replica:prefill_seconds:bucket_rate1m",
        sources: &[("sum", "vllm:request_prefill_time_seconds_bucket")],
    },
    Mapping {
        name: "replica:decode_seconds:bucket_rate1m",
        sources: &[("sum", "vllm:request_decode_time_seconds_bucket")],
    },
];

/// All of them.
pub fn records() -> Vec<Record> {
    let gauges = GAUGES.iter().map(|mapping| record(mapping, "replica, model", ToOwned::to_owned));
    let rates = RATES.iter().map(|mapping| record(mapping, "replica, model", rate));
    let histograms = HISTOGRAMS.iter().map(|mapping| record(mapping, "replica, model, le", rate));
    let mut records: Vec<_> = gauges.chain(rates).chain(histograms).collect();
    records.push(Record::new(
        "replica:prefix_hit:ratio",
        "replica:prefix_hits:rate1m / (replica:prefix_queries:rate1m > 0)",
    ));
    records
}

/// Names that engines use, for those who check that they exist.
pub fn sources() -> impl Iterator<Item = &'static str> {
    let mappings = GAUGES.iter().chain(RATES).chain(HISTOGRAMS);
    mappings.flat_map(|mapping| mapping.sources.iter().map(|(_, name)| *name))
}

fn rate(name: &str) -> String {
    format!("rate({name}[{WINDOW}])")
}

fn record(mapping: &Mapping, labels: &str, value: impl Fn(&str) -> String) -> Record {
    let source = |(aggregation, name): &(&str, &str)| {
        let model = format!("label_replace({}, \"model\", \"$1\", \"model_name\", \"(.*)\")", value(name));
        let replica = format!("label_replace({model}, \"replica\", \"$1\", \"instance\", \"(.*)\")");
        format!("{aggregation} by ({labels}) ({replica})")
    };
    let sources: Vec<_> = mapping.sources.iter().map(source).collect();
    Record::new(mapping.name, sources.join(" or "))
}
