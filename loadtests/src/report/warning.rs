//! What may make a run's figures worth less than they look. Pure.

use super::run::Report;

/// A hop that holds events back makes more of them come together.
const CLUMPED_MAX: f64 = 0.3;
/// A client that is this late measures itself,
const LAG_MS_MAX: f64 = 5.0;
/// when it is so more often than this: its 99th percentile says so.
const REQUESTS_MIN: usize = 100;

/// What to doubt, for people.
pub fn warnings(report: &Report) -> Vec<String> {
    let mut warnings = Vec::new();
    if report.clumped_share > CLUMPED_MAX {
        warnings.push(format!(
            "buffered hop: {:.0} % of events came within 1 ms in one read with the event before; something between \
             here and the model holds the stream back",
            report.clumped_share * 100.0
        ));
    }
    if report.lag_ms.p99 > LAG_MS_MAX {
        warnings.push(format!(
            "this client was late: 1 % of requests left {:.1} ms or more after their time; latencies count from the \
             intended time, so they hold, but the load was less even than asked",
            report.lag_ms.p99
        ));
    }
    if report.requests < REQUESTS_MIN {
        warnings.push(format!("{} requests say little about a 99th percentile", report.requests));
    }
    if report.answered > 0 && report.prompt_tokens_mean < 1.0 {
        warnings
            .push("the server sends no usage: tokens of answers are events, of prompts unknown".to_owned());
    }
    if report.offered_per_s > 1.1 * report.answered_per_s && report.failures.is_empty() {
        warnings.push(format!(
            "overloaded: {:.2} requests/s came and {:.2} were answered; latencies grow with the length of the run",
            report.offered_per_s, report.answered_per_s
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Spread;

    fn report() -> Report {
        Report {
            requests: 1000,
            answered: 1000,
            prompt_tokens_mean: 50.0,
            offered_per_s: 10.0,
            answered_per_s: 10.0,
            ..Report::default()
        }
    }

    fn check(report: &Report, part: &str) {
        let warnings = warnings(report);
        assert!(warnings.len() == 1 && warnings[0].contains(part), "{warnings:?}");
    }

    #[test]
    fn a_sound_run_is_not_doubted() {
        assert_eq!(warnings(&report()), Vec::<String>::new());
    }

    #[test]
    fn each_doubt_has_its_words() {
        check(&Report { clumped_share: 0.31, ..report() }, "buffered hop");
        check(&Report { lag_ms: Spread { p99: 6.0, ..Spread::default() }, ..report() }, "client was late");
        check(&Report { requests: 99, ..report() }, "say little");
        check(&Report { prompt_tokens_mean: 0.0, ..report() }, "no usage");
        check(&Report { answered_per_s: 5.0, ..report() }, "overloaded");
    }
}
