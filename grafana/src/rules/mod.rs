//! Recording rules and alerts, and the tests that `promtool` runs on them.

pub mod alerts;
pub mod burn;
pub mod cases;
pub mod engines;
pub mod gpus;
pub mod symptoms;

use crate::yaml::Yaml;

/// One recorded series.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// `level:metric:operation`.
    pub name: String,
    /// Its expression.
    pub expr: String,
}

impl Record {
    /// A name and an expression.
    pub fn new(name: impl Into<String>, expr: impl Into<String>) -> Self {
        Self { name: name.into(), expr: expr.into() }
    }
}

/// How loud an alert is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    /// Somebody gets up.
    Page,
    /// Somebody looks at it on a working day.
    Ticket,
}

impl Severity {
    /// The label's value.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Page => "page",
            Self::Ticket => "ticket",
        }
    }
}

/// Series, a sample a minute in `promtool`'s notation, and when to look.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Case {
    /// A series and its samples.
    pub series: Vec<(String, String)>,
    /// Minutes after the first sample.
    pub minutes: u32,
}

impl Case {
    /// Looks after so many minutes.
    pub fn after(minutes: u32, series: &[(&str, &str)]) -> Self {
        let owned = |(name, samples): &(&str, &str)| ((*name).to_owned(), (*samples).to_owned());
        Self { series: series.iter().map(owned).collect(), minutes }
    }
}

/// One alert, with a case in which it fires and one in which it must not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Alert {
    /// Its name.
    pub name: String,
    /// True for as long as it should fire.
    pub expr: String,
    /// How long it must be true before.
    pub hold: &'static str,
    /// Its loudness.
    pub severity: Severity,
    /// What is wrong, with `{{ $labels.x }}` in it.
    pub summary: String,
    /// What to do about it.
    pub action: &'static str,
    /// It fires here.
    pub fires: Case,
    /// And not here.
    pub quiet: Case,
}

/// All recording rules, in the groups that Prometheus evaluates in order.
pub fn records() -> Vec<(&'static str, Vec<Record>)> {
    vec![
        ("flotilla-engines", engines::records()),
        ("flotilla-gpus", gpus::records()),
        ("flotilla-slo", burn::records()),
    ]
}

/// The recording rules as Prometheus reads them.
pub fn recording_file() -> String {
    let mut yaml = Yaml::new(
        "Written by `flotilla-boards write`. One name for what every engine and GPU exporter calls its own way.",
    );
    yaml.line(0, "groups:");
    for (group, records) in records() {
        yaml.line(1, &format!("- name: {group}"));
        yaml.line(2, "rules:");
        for record in records {
            yaml.line(3, &format!("- record: {}", record.name));
            yaml.text(4, "expr", &record.expr);
        }
    }
    yaml.finish()
}

/// The alerts as Prometheus reads them.
pub fn alert_file() -> String {
    let mut yaml = Yaml::new("Written by `flotilla-boards write`. Each alert says what to do.");
    yaml.line(0, "groups:");
    yaml.line(1, "- name: flotilla-alerts");
    yaml.line(2, "rules:");
    for alert in alerts::all() {
        yaml.line(3, &format!("- alert: {}", alert.name));
        yaml.text(4, "expr", &alert.expr);
        yaml.line(4, &format!("for: {}", alert.hold));
        yaml.line(4, "labels:");
        yaml.text(5, "severity", alert.severity.word());
        yaml.line(4, "annotations:");
        yaml.text(5, "summary", &alert.summary);
        yaml.text(5, "action", alert.action);
    }
    yaml.finish()
}

/// The tests of all alerts, for `promtool test rules`.
pub fn test_file() -> String {
    let mut yaml = Yaml::new("Written by `flotilla-boards write`. Each alert once firing and once not.");
    yaml.line(0, "rule_files: [recording.yml, alerts.yml]");
    yaml.line(0, "evaluation_interval: 1m");
    yaml.line(0, "tests:");
    for alert in alerts::all() {
        let firing = format!("ALERTS{{alertname=\"{}\",alertstate=\"firing\"}}", alert.name);
        case(&mut yaml, &alert.fires, &format!("count({firing}) > bool 0"), &[("{}", 1.0)]);
        let labels = firing.trim_start_matches("ALERTS");
        case(&mut yaml, &alert.quiet, &format!("absent({firing})"), &[(labels, 1.0)]);
    }
    for mapped in cases::ALL {
        case(&mut yaml, &Case::after(10, mapped.series), mapped.expr, mapped.samples);
    }
    yaml.finish()
}

fn case(yaml: &mut Yaml, case: &Case, expr: &str, samples: &[(&str, f64)]) {
    yaml.line(1, "- interval: 1m");
    yaml.line(2, "input_series:");
    for (series, values) in &case.series {
        yaml.text(3, "- series", series);
        yaml.text(4, "values", values);
    }
    yaml.line(2, "promql_expr_test:");
    yaml.text(3, "- expr", expr);
    yaml.line(4, &format!("eval_time: {}m", case.minutes));
    yaml.line(4, "exp_samples:");
    for (labels, value) in samples {
        yaml.text(5, "- labels", labels);
        yaml.line(6, &format!("value: {value}"));
    }
}
