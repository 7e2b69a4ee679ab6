//! One measured run: counters before, the load, counters after, and what it all says.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::load::{self, Load, Tally};
use super::metrics;
use super::progress::Progress;
use super::target::Target;
use crate::report::run::{About, Report};
use crate::report::warning::warnings;

/// Runs a load and reports. `progress` is told how it goes.
pub async fn measure(
    load: Load,
    target: &Target,
    replicas: &[String],
    mut about: About,
    progress: &Progress,
) -> Report {
    let (before, faults) = metrics::look(target, replicas).await;
    let watermark = Mutex::new(before.kv_usage_max);
    let tally = Arc::new(Tally::default());
    about.began_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    about.warmup_s = load.warmup.as_secs_f64();
    // A moment later than now, so that the first request isn't late already.
    let target = target.starting_in(Duration::from_millis(20));
    let run = load::run(Arc::new(load), target.clone(), Arc::clone(&tally));
    tokio::select! {
        () = run => {}
        () = metrics::watch(&target, replicas, &watermark) => {}
        () = progress.follow(&tally) => {}
    }
    let (after, _) = metrics::look(&target, replicas).await;
    progress.finish();
    let mut report = Report::of(about, tally.take());
    report.hit_rate_metrics = after.hit_rate_since(&before);
    report.kv_usage_max = *watermark.lock().unwrap_or_else(PoisonError::into_inner);
    report.kv_usage_max = report.kv_usage_max.into_iter().chain(after.kv_usage_max).reduce(f64::max);
    report.warnings = warnings(&report);
    report.warnings.extend(faults.into_iter().map(|fault| format!("no metrics: {fault}")));
    let unfinished = tally.sent.load(Ordering::Relaxed) - tally.ended.load(Ordering::Relaxed);
    if unfinished > 0 {
        report.warnings.push(format!("stopped with {unfinished} requests under way, which count nowhere"));
    }
    report
}
