//! What requests go through, counted as it happens: one atomic a token.

use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder,
};
use replica_core::sequence::Timing;
use shared::metric::{Metric, replica as names};

/// Outcomes of a generation request; all are there from the start, as 0.
pub const OUTCOMES: [&str; 4] = ["completed", "aborted", "failed", "refused"];
/// Reasons a choice ends for.
pub const REASONS: [&str; 4] = ["stop", "length", "tool_calls", "abort"];

/// Status codes by their first digit.
const CLASSES: [&str; 6] = ["0xx", "1xx", "2xx", "3xx", "4xx", "5xx"];

/// Every counter of the server.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    responses: IntCounterVec,
    refusals: IntCounterVec,
    requests: IntCounterVec,
    success: Vec<IntCounter>,
    /// See [`names::IN_FLIGHT`].
    pub in_flight: IntGauge,
    /// See [`names::CONNECTIONS`].
    pub connections: IntGauge,
    /// See [`names::PROMPT_TOKENS`].
    pub prompt_tokens: IntCounter,
    /// See [`names::GENERATION_TOKENS`].
    pub generation_tokens: IntCounter,
    ttft: Histogram,
    inter_token: [Histogram; 2],
    request_tpot: Histogram,
    e2e: Histogram,
    queue: Histogram,
    prefill: Histogram,
    decode: Histogram,
    inference: Histogram,
    request_prompt: Histogram,
    request_generation: Histogram,
    params_n: Histogram,
    params_max_tokens: Histogram,
}

/// What one choice went through, told when it ends.
#[derive(Clone, Copy, Debug)]
pub struct ChoiceRecord {
    /// One of [`REASONS`].
    pub reason: &'static str,
    /// When it ran; absent when it never did.
    pub timing: Option<Timing>,
    /// From arrival to its end.
    pub e2e: Duration,
    /// From its first token to its last.
    pub decode: Duration,
    /// Tokens in.
    pub prompt_tokens: u32,
    /// Tokens out.
    pub answer_tokens: u32,
}

impl Metrics {
    /// All series of one model and of the server's routes, at 0.
    pub fn new(model: &str, routes: &[&str]) -> Self {
        let catalogue = Catalogue { registry: Registry::new(), model };
        let success = catalogue.counters(&names::SUCCESS);
        let requests = catalogue.counters(&names::REQUESTS);
        for outcome in OUTCOMES {
            requests.with_label_values(&[outcome]);
        }
        let histogram = |metric| catalogue.histogram(metric);
        let refusals = catalogue.counters(&names::REFUSALS);
        for reason in crate::error::REASONS {
            refusals.with_label_values(&[reason]);
        }
        let responses = catalogue.counters(&names::RESPONSES);
        for route in routes {
            responses.with_label_values(&[route, CLASSES[2]]);
        }
        Self {
            responses,
            refusals,
            requests,
            success: REASONS.iter().map(|reason| success.with_label_values(&[model, "0", reason])).collect(),
            in_flight: catalogue.gauge(&names::IN_FLIGHT),
            connections: catalogue.gauge(&names::CONNECTIONS),
            prompt_tokens: catalogue.counters(&names::PROMPT_TOKENS).with_label_values(&[model, "0"]),
            generation_tokens: catalogue.counters(&names::GENERATION_TOKENS).with_label_values(&[model, "0"]),
            ttft: histogram(&names::TTFT),
            inter_token: [histogram(&names::INTER_TOKEN), histogram(&names::TPOT)],
            request_tpot: histogram(&names::REQUEST_TPOT),
            e2e: histogram(&names::E2E),
            queue: histogram(&names::QUEUE_TIME),
            prefill: histogram(&names::PREFILL_TIME),
            decode: histogram(&names::DECODE_TIME),
            inference: histogram(&names::INFERENCE_TIME),
            request_prompt: histogram(&names::REQUEST_PROMPT),
            request_generation: histogram(&names::REQUEST_GENERATION),
            params_n: histogram(&names::PARAMS_N),
            params_max_tokens: histogram(&names::PARAMS_MAX_TOKENS),
            registry: catalogue.registry,
        }
    }

    /// A request was understood: what it asks for.
    pub fn count_params(&self, choices: usize, answer_tokens_max: u32) {
        self.params_n.observe(choices as f64);
        self.params_max_tokens.observe(f64::from(answer_tokens_max));
    }

    /// The first token of a choice came.
    pub fn count_first_token(&self, timing: Timing, waited: Duration) {
        self.ttft.observe(waited.as_secs_f64());
        self.queue.observe(timing.queue.as_secs_f64());
        self.prefill.observe(timing.prefill.as_secs_f64());
    }

    /// A later token of a choice came.
    pub fn count_gap(&self, gap: Duration) {
        for histogram in &self.inter_token {
            histogram.observe(gap.as_secs_f64());
        }
    }

    /// A choice ended.
    pub fn count_choice(&self, record: ChoiceRecord) {
        if let Some(at) = REASONS.iter().position(|reason| *reason == record.reason) {
            self.success[at].inc();
        }
        self.request_prompt.observe(f64::from(record.prompt_tokens));
        self.request_generation.observe(f64::from(record.answer_tokens));
        self.e2e.observe(record.e2e.as_secs_f64());
        let Some(timing) = record.timing else { return };
        let decode = record.decode.as_secs_f64();
        self.decode.observe(decode);
        self.inference.observe(timing.prefill.as_secs_f64() + decode);
        if record.answer_tokens > 1 {
            self.request_tpot.observe(decode / f64::from(record.answer_tokens - 1));
        }
    }

    /// A generation request ended, with one of [`OUTCOMES`].
    pub fn count_request(&self, outcome: &'static str) {
        self.requests.with_label_values(&[outcome]).inc();
    }

    /// An answer's head went out.
    pub fn count_response(&self, route: &'static str, status: http::StatusCode) {
        let class = CLASSES[usize::from(status.as_u16() / 100).min(CLASSES.len() - 1)];
        self.responses.with_label_values(&[route, class]).inc();
    }

    /// A request got an error body.
    pub fn count_refusal(&self, reason: &'static str) {
        self.refusals.with_label_values(&[reason]).inc();
    }

    /// The page in Prometheus' text form.
    pub fn page(&self) -> String {
        TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap_or_default()
    }
}

/// Makes and registers series from the catalogue of names.
struct Catalogue<'a> {
    registry: Registry,
    model: &'a str,
}

impl Catalogue<'_> {
    fn register<C: Collector + Clone + 'static>(&self, made: prometheus::Result<C>) -> C {
        let made = made.expect("names and labels of the catalogue are well formed: a test makes them all");
        self.registry.register(Box::new(made.clone())).expect("each name of the catalogue is made once");
        made
    }

    fn counters(&self, metric: &Metric) -> IntCounterVec {
        self.register(IntCounterVec::new(Opts::new(metric.name, metric.help), metric.labels))
    }

    fn gauge(&self, metric: &Metric) -> IntGauge {
        self.register(IntGaugeVec::new(Opts::new(metric.name, metric.help), metric.labels))
            .with_label_values::<&str>(&[])
    }

    fn histogram(&self, metric: &Metric) -> Histogram {
        let bounds = if metric.name.ends_with("_seconds") {
            names::TIME_BOUNDS
        } else if metric.name == names::PARAMS_N.name {
            names::CHOICE_BOUNDS
        } else {
            names::TOKEN_BOUNDS
        };
        let options = HistogramOpts::new(metric.name, metric.help).buckets(bounds.to_vec());
        self.register(HistogramVec::new(options, metric.labels)).with_label_values(&[self.model, "0"])
    }
}
