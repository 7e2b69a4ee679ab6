//! A run, for people at a terminal.

use std::fmt::{self, Write};

use super::run::Report;
use crate::statistics::Spread;

/// The report as text.
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    write(report, &mut out).expect("a string takes all");
    out
}

fn write(report: &Report, out: &mut impl Write) -> fmt::Result {
    let about = &report.about;
    writeln!(out, "{}  {}  seed {}", about.target, about.workload, about.seed)?;
    writeln!(out)?;
    let failed = report.requests - report.answered;
    writeln!(out, "requests       {} in {:.1} s, {failed} failed", report.requests, report.window_s)?;
    for (failure, count) in &report.failures {
        writeln!(out, "  {:<13}{count}", failure.name())?;
    }
    writeln!(
        out,
        "rate           {:.2} offered, {:.2} answered, {:.1} at once on average",
        report.offered_per_s, report.answered_per_s, report.concurrency_mean
    )?;
    writeln!(
        out,
        "tokens         {:.0} a prompt, {:.0} an answer, {:.1} out a second",
        report.prompt_tokens_mean, report.output_tokens_mean, report.output_tokens_per_s
    )?;
    writeln!(
        out,
        "goodput        {:.2} requests/s; {:.1} % within TTFT {} ms, TPOT {} ms",
        report.goodput_per_s,
        report.attainment * 100.0,
        about.slo_ttft_ms,
        about.slo_tpot_ms
    )?;
    if let Some(rate) = report.hit_rate.or(report.hit_rate_metrics) {
        writeln!(out, "prefix hits    {:.1} % of prompt tokens", rate * 100.0)?;
    }
    if let Some(usage) = report.kv_usage_max {
        writeln!(out, "KV watermark   {:.0} %", usage * 100.0)?;
    }
    table(report, out)?;
    replicas(report, out)?;
    for warning in &report.warnings {
        writeln!(out, "warning: {warning}")?;
    }
    Ok(())
}

fn table(report: &Report, out: &mut impl Write) -> fmt::Result {
    writeln!(out)?;
    writeln!(
        out,
        "{:<12}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
        "ms", "mean", "P50", "P90", "P95", "P99", "max"
    )?;
    for (name, spread) in rows(report) {
        let Spread { mean, p50, p90, p95, p99, max, .. } = spread;
        writeln!(out, "{name:<12}{mean:>10.1}{p50:>10.1}{p90:>10.1}{p95:>10.1}{p99:>10.1}{max:>10.1}")?;
    }
    Ok(())
}

/// Times that were seen, each with its name.
pub fn rows(report: &Report) -> impl Iterator<Item = (&'static str, Spread)> {
    [
        ("TTFT", report.ttft_ms),
        ("TPOT", report.tpot_ms),
        ("ITL", report.itl_ms),
        ("end to end", report.e2e_ms),
        ("queue", report.queue_ms),
        ("client lag", report.lag_ms),
        ("cold TTFT", report.warmup_ttft_ms),
    ]
    .into_iter()
    .filter(|(_, spread)| spread.count > 0)
}

fn replicas(report: &Report, out: &mut impl Write) -> fmt::Result {
    if report.replicas.is_empty() {
        return Ok(());
    }
    let width = report.replicas.keys().map(String::len).max().unwrap_or(0).max(10) + 2;
    writeln!(out)?;
    writeln!(
        out,
        "{:<width$}{:>10}{:>10}{:>10}{:>12}{:>12}",
        "replica", "requests", "tokens", "hits %", "TTFT P50", "TTFT P99"
    )?;
    for (name, share) in &report.replicas {
        let hits = share.hit_rate.map_or("-".to_owned(), |rate| format!("{:.1}", rate * 100.0));
        writeln!(
            out,
            "{name:<width$}{:>10}{:>10}{hits:>10}{:>12.1}{:>12.1}",
            share.requests, share.output_tokens, share.ttft_ms.p50, share.ttft_ms.p99
        )?;
    }
    Ok(())
}
