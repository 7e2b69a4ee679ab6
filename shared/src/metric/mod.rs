//! Every metric name of ours with its help text and labels: one source for exporters, dashboards and tests.

pub mod gateway;
pub mod gpu;
pub mod replica;

/// What a scrape calls its kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Only goes up.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Buckets, a sum and a count.
    Histogram,
}

/// One metric family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metric {
    /// Full name; the unit is its suffix.
    pub name: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// Label names, each with a bounded set of values.
    pub labels: &'static [&'static str],
}
