//! A run as one page that needs nothing else: tables and plots. Pure.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::plot::{Mark, Series, chart};
use super::run::Report;
use super::text;
use crate::exchange::Exchange;
use crate::statistics::{Spread, percentile};

/// Points of one series; more only make a page slow.
const POINTS_MAX: usize = 4000;
/// Parts into which a run is cut.
const SLICES: usize = 40;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222}\
    table{border-collapse:collapse}td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid #ddd}\
    td:first-child,th:first-child{text-align:left}.warning{background:#fff3cd;padding:.5em 1em}\
    svg{max-width:100%;height:auto}pre{overflow-x:auto}";

/// The page.
pub fn page(report: &Report) -> String {
    let about = &report.about;
    let title = format!("{}: {}", about.target, about.workload);
    let mut body = String::new();
    for warning in &report.warnings {
        section(&mut body, "", &format!("<p class=\"warning\">{}</p>", escaped(warning)));
    }
    section(&mut body, "Summary", &format!("<pre>{}</pre>", escaped(&text::text(report))));
    section(&mut body, "Times", &times(report));
    section(&mut body, "Latency over time", &over_time(report));
    section(&mut body, "Percentiles", &percentiles(report));
    section(&mut body, "Latency against throughput", &against_throughput(report));
    section(&mut body, "Requests at once, by replica", &by_replica(report));
    document(&title, &body)
}

/// A whole document.
pub fn document(title: &str, body: &str) -> String {
    let title = escaped(title);
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title><style>{STYLE}</style>\
         </head><body><h1>{title}</h1>{body}</body></html>\n"
    )
}

/// A heading and what is under it; nothing where there is nothing.
pub fn section(out: &mut String, heading: &str, body: &str) {
    if !body.is_empty() {
        let heading = if heading.is_empty() { String::new() } else { format!("<h2>{heading}</h2>") };
        writeln!(out, "{heading}{body}").expect("a string takes all");
    }
}

/// Text that is no markup.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn times(report: &Report) -> String {
    let mut rows = String::new();
    for (name, Spread { mean, p50, p90, p95, p99, max, .. }) in text::rows(report) {
        write!(rows, "<tr><td>{name}</td>").expect("a string takes all");
        for value in [mean, p50, p90, p95, p99, max] {
            write!(rows, "<td>{value:.1}</td>").expect("a string takes all");
        }
        rows.push_str("</tr>");
    }
    format!(
        "<table><tr><th>ms</th><th>mean</th><th>P50</th><th>P90</th><th>P95</th><th>P99</th><th>max</th></tr>{rows}</table>"
    )
}

fn answered(report: &Report) -> Vec<&Exchange> {
    report.exchanges.iter().filter(|exchange| exchange.is_answered()).collect()
}

/// At most so many, evenly from all.
fn thinned<T: Copy>(all: &[T]) -> Vec<T> {
    all.iter().copied().step_by(all.len().div_ceil(POINTS_MAX).max(1)).collect()
}

fn over_time(report: &Report) -> String {
    let answered = thinned(&answered(report));
    let points = |of: fn(&Exchange) -> Option<f64>| {
        answered.iter().filter_map(|exchange| Some((exchange.intended_s, of(exchange)?))).collect()
    };
    let series = |name: &str, points| Series { name: name.to_owned(), points, mark: Mark::Points };
    let first = chart("s", "TTFT, ms", &[series("TTFT", points(Exchange::ttft_ms))]);
    let whole = chart("s", "end to end, ms", &[series("end to end", points(|one| Some(one.e2e_ms())))]);
    first + &whole
}

fn percentiles(report: &Report) -> String {
    let answered = answered(report);
    let curve = |name: &str, of: fn(&Exchange) -> Option<f64>| {
        let mut values: Vec<_> = answered.iter().filter_map(|exchange| of(exchange)).collect();
        values.sort_unstable_by(f64::total_cmp);
        let step = |index: u32| f64::from(index) / 2.0;
        let points = (0..=200).map(|index| (step(index), percentile(&values, step(index))));
        let points = if values.is_empty() { Vec::new() } else { points.collect() };
        Series { name: name.to_owned(), points, mark: Mark::Line }
    };
    let first =
        chart("percentile", "ms", &[curve("TTFT", Exchange::ttft_ms), curve("TPOT", Exchange::tpot_ms)]);
    first + &chart("percentile", "ms", &[curve("end to end", |exchange| Some(exchange.e2e_ms()))])
}

/// Each slice of the run is a point: what was answered in it, and how late it was.
fn against_throughput(report: &Report) -> String {
    let mut slices = vec![Vec::new(); SLICES];
    let answered = answered(report);
    let last = answered.iter().map(|exchange| exchange.end_s).fold(1e-9, f64::max);
    for exchange in answered {
        let slice = (exchange.end_s / last * SLICES as f64) as usize;
        slices[slice.min(SLICES - 1)].push(exchange);
    }
    let points = |of: fn(&Exchange) -> Option<f64>, percent: f64| {
        let point = |slice: &Vec<&Exchange>| {
            let mut values: Vec<_> = slice.iter().filter_map(|exchange| of(exchange)).collect();
            values.sort_unstable_by(f64::total_cmp);
            (slice.len() as f64 * SLICES as f64 / last, percentile(&values, percent))
        };
        slices.iter().filter(|slice| !slice.is_empty()).map(point).collect()
    };
    let series = |name: &str, points| Series { name: name.to_owned(), points, mark: Mark::Points };
    let ttft = [
        series("TTFT P50", points(Exchange::ttft_ms, 50.0)),
        series("TTFT P99", points(Exchange::ttft_ms, 99.0)),
    ];
    chart("answers/s, each point a fortieth of the run", "ms", &ttft)
}

/// How many requests each replica had at each moment.
fn by_replica(report: &Report) -> String {
    let mut changes = BTreeMap::<&str, Vec<(f64, f64)>>::new();
    for exchange in &report.exchanges {
        let Some(replica) = &exchange.replica else { continue };
        changes.entry(replica).or_default().extend([(exchange.sent_s, 1.0), (exchange.end_s, -1.0)]);
    }
    let series = |(name, mut changes): (&str, Vec<(f64, f64)>)| {
        changes.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let mut at_once = 0.0;
        let points: Vec<_> = changes
            .into_iter()
            .map(|(time, change)| {
                at_once += change;
                (time, at_once)
            })
            .collect();
        Series { name: name.to_owned(), points: thinned(&points), mark: Mark::Line }
    };
    chart("s", "requests at once", &changes.into_iter().map(series).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::run::About;

    fn exchange(intended_s: f64) -> Exchange {
        Exchange {
            intended_s,
            sent_s: intended_s,
            first_token_s: Some(intended_s + 0.1),
            end_s: intended_s + 0.5,
            answer_tokens: 5,
            replica: Some("http://a".to_owned()),
            ..Exchange::default()
        }
    }

    #[test]
    fn a_page_holds_all_plots_and_asks_for_nothing() {
        let about = About { target: "<b>".to_owned(), workload: "w".to_owned(), ..About::default() };
        let report = Report::of(about, (0..50).map(|place| exchange(f64::from(place))).collect());
        let page = page(&report);
        assert_eq!(page.matches("<svg").count(), 6);
        assert!(page.contains("&lt;b&gt;") && !page.contains("<b>"));
        assert!(!page.contains("src=") && !page.contains("href="));
    }

    #[test]
    fn a_run_of_nothing_is_a_page_too() {
        assert!(page(&Report::of(About::default(), Vec::new())).contains("Summary"));
    }
}
