//! The engine's numbers as Prometheus text: a copy of one snapshot, made at each scrape.

use std::fmt::{Display, Write};

use shared::metric::{Kind, Metric, replica as names};
use shared::wire::{ReplicaReport, ReplicaState};

use crate::engine::{STEP_ROWS_BOUNDS, Snapshot};

/// What the engine's part of the page is made from.
#[derive(Debug)]
pub struct EnginePage<'a> {
    /// The engine's numbers; all zero before there is an engine.
    pub snapshot: &'a Snapshot,
    /// Identity, state and ranks.
    pub report: &'a ReplicaReport,
    /// Whether prompts look for cached blocks.
    pub prefix_caching: bool,
}

impl EnginePage<'_> {
    /// Its lines.
    pub fn render(&self) -> String {
        let mut page = Page(String::with_capacity(8 << 10));
        self.model_series(&mut page);
        self.own_series(&mut page);
        self.identity(&mut page);
        page.0
    }

    fn model_series(&self, page: &mut Page) {
        let Snapshot { blocks_free, blocks_total, .. } = *self.snapshot;
        let used = f64::from(blocks_total - blocks_free.min(blocks_total)) / f64::from(blocks_total.max(1));
        let model = [self.model(), "0"];
        page.single(&names::RUNNING, &model, self.snapshot.running);
        page.single(&names::WAITING, &model, self.snapshot.waiting);
        page.single(&names::KV_USAGE, &model, used);
        page.single(&names::PREFIX_QUERIES, &model, self.snapshot.prefix_queries);
        page.single(&names::PREFIX_HITS, &model, self.snapshot.prefix_hits);
        page.single(&names::PREEMPTIONS, &model, self.snapshot.preemptions);
        let (block, blocks) = (self.report.block_size.to_string(), blocks_total.to_string());
        let caching = if self.prefix_caching { "True" } else { "False" };
        page.single(&names::CACHE_CONFIG, &[self.model(), "0", &block, &blocks, caching], 1);
        self.step_rows(page);
    }

    fn step_rows(&self, page: &mut Page) {
        let metric = &names::ITERATION_TOKENS;
        page.head(metric);
        let bounds = STEP_ROWS_BOUNDS.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(self.snapshot.step_rows) {
            let labels = [("model_name", self.model()), ("engine", "0"), ("le", &bound)];
            page.sample(metric.name, "_bucket", labels, count);
        }
        let labels = [("model_name", self.model()), ("engine", "0")];
        page.sample(metric.name, "_sum", labels, self.snapshot.step_rows_sum);
        page.sample(metric.name, "_count", labels, self.snapshot.step_rows[STEP_ROWS_BOUNDS.len()]);
    }

    fn own_series(&self, page: &mut Page) {
        page.single(&names::BLOCKS_FREE, &[], self.snapshot.blocks_free);
        page.single(&names::BLOCKS_TOTAL, &[], self.snapshot.blocks_total);
        page.single(&names::WAITING_TOKENS, &[], self.snapshot.waiting_tokens);
        page.single(&names::PREFILL_RATE, &[], self.snapshot.prefill_tokens_per_s.unwrap_or(0.0));
        page.single(&names::DECODE_RATE, &[], self.snapshot.decode_tokens_per_s.unwrap_or(0.0));
        page.single(&names::STEPS, &[], self.snapshot.steps);
        page.single(&names::STEP_SECONDS, &[], self.snapshot.step_time.as_secs_f64());
    }

    fn identity(&self, page: &mut Page) {
        page.head(&names::STATE);
        for (name, state) in [
            ("loading", ReplicaState::Loading),
            ("ready", ReplicaState::Ready),
            ("draining", ReplicaState::Draining),
            ("stalled", ReplicaState::Stalled),
        ] {
            page.sample(names::STATE.name, "", [("state", name)], u8::from(self.report.state == state));
        }
        for (metric, bytes) in [
            (
                &names::RANK_WEIGHT_BYTES,
                self.report.ranks.iter().map(|rank| rank.weight_bytes).collect::<Vec<_>>(),
            ),
            (&names::RANK_KV_BYTES, self.report.ranks.iter().map(|rank| rank.kv_bytes).collect()),
        ] {
            page.head(metric);
            for (rank, bytes) in self.report.ranks.iter().zip(bytes) {
                let labels = [("rank", rank.rank.to_string()), ("device", rank.device.clone())];
                page.sample(
                    metric.name,
                    "",
                    labels.each_ref().map(|(name, value)| (*name, value.as_str())),
                    bytes,
                );
            }
        }
        let ReplicaReport { version, instance, revision, dtype, .. } = self.report;
        page.single(&names::BUILD, &[version, instance, revision, dtype], 1);
    }

    fn model(&self) -> &str {
        self.report.models.first().map_or("", String::as_str)
    }
}

/// Text in the making.
#[derive(Default)]
pub(super) struct Page(String);

impl Page {
    pub(super) fn head(&mut self, metric: &Metric) {
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        self.line(format_args!("# HELP {0} {1}\n# TYPE {0} {kind}", metric.name, metric.help));
    }

    fn single(&mut self, metric: &Metric, values: &[&str], value: impl Display) {
        self.head(metric);
        self.sample(metric.name, "", metric.labels.iter().copied().zip(values.iter().copied()), value);
    }

    pub(super) fn sample<'a>(
        &mut self,
        name: &str,
        suffix: &str,
        labels: impl IntoIterator<Item = (&'a str, &'a str)>,
        value: impl Display,
    ) {
        let labels = labels.into_iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value)));
        let labels = labels.collect::<Vec<_>>().join(",");
        if labels.is_empty() {
            self.line(format_args!("{name}{suffix} {value}"));
        } else {
            self.line(format_args!("{name}{suffix}{{{labels}}} {value}"));
        }
    }

    pub(super) fn finish(self) -> String {
        self.0
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.0, "{line}").expect("writing to a string does not fail");
    }
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::telemetry::metrics::Metrics;

    /// Every name of the catalogue is on the page of a fresh replica, each once.
    #[test]
    fn the_page_has_every_name_from_the_start() {
        let report =
            ReplicaReport { models: vec!["m".to_owned()], ranks: vec![<_>::default()], ..<_>::default() };
        let snapshot = Snapshot::default();
        let engine = EnginePage { snapshot: &snapshot, report: &report, prefix_caching: true }.render();
        let page = engine + &Metrics::new("m", &["chat"]).page();
        let told: Vec<_> =
            page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
        let unique: BTreeSet<_> = told.iter().copied().collect();
        let known: BTreeSet<_> = names::ALL.iter().map(|metric| metric.name).collect();
        assert_eq!((unique.len(), unique), (told.len(), known));
    }
}
