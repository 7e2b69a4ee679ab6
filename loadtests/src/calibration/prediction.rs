//! What the simulation says a real run should have come to. Pure.

use super::fit::Fit;
use crate::exchange::Exchange;
use crate::report::run::{About, Report};
use crate::sim::fleet::{LEAD, Simulation};
use crate::sim::policy::Policy;
use crate::sim::scenario::Scenario;
use crate::sim::slo::prompts;
use crate::statistics::mean;
use crate::workload::{Segment, Session, Workload};

/// Names the text that a chat template puts around messages.
const TEMPLATE: u64 = u64::MAX;

/// The run of `workload` by the real run's seed, on a scenario's machines, as fast as `fit` says; broken laws.
pub fn predict(
    real: &Report,
    workload: &Workload,
    scenario: &Scenario,
    fit: &Fit,
    policy: Policy,
) -> (Report, Vec<String>) {
    let scenario = fitted(scenario, fit);
    let mut sessions = workload.sessions_apart(real.about.seed);
    add_template(&mut sessions, real.prompt_tokens_mean);
    let outcome = Simulation::replay(&scenario, sessions, policy, real.about.seed);
    let warmup_s = real.about.warmup_s + LEAD.as_secs_f64();
    let about = About { kind: "sim".to_owned(), warmup_s, ..real.about.clone() };
    (Report::of(about, outcome.records.iter().map(Exchange::from).collect()), outcome.broken)
}

fn fitted(scenario: &Scenario, fit: &Fit) -> Scenario {
    let mut scenario = scenario.clone();
    scenario.times.hop_ms = fit.overhead_s * 1e3;
    for machine in &mut scenario.machines {
        machine.step_ms = 0.0;
        machine.weights_ms = fit.decode_s * 1e3;
        machine.row_us = fit.row_s * 1e6;
        machine.context_token_ns = 0.0;
    }
    scenario
}

/// Every message grows by the same, so that prompts come to the mean that the server counted.
fn add_template(sessions: &mut [Session], prompt_tokens_mean: f64) {
    let sizes: Vec<_> = sessions.iter().flat_map(prompts).map(f64::from).collect();
    let turns: Vec<_> =
        sessions.iter().flat_map(|session| (1..=session.turns.len()).map(|turn| turn as f64)).collect();
    let lacking = (prompt_tokens_mean - mean(&sizes)) / mean(&turns).max(1.0);
    let tokens = lacking.round().max(0.0) as u32;
    for turn in sessions.iter_mut().flat_map(|session| &mut session.turns) {
        turn.text.insert(0, Segment { id: TEMPLATE, tokens });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Arrivals, Kind, Range, Shape};

    const SCENARIO: &str = include_str!("../../scenarios/cpu_four.toml");

    fn workload() -> Workload {
        let kind = Kind::Chat {
            systems: 6,
            zipf: 0.8,
            system_tokens: Range(100, 150),
            turns: Range(2, 4),
            user_tokens: Range(40, 80),
            answer_tokens: Range(8, 16),
            think_ms: Range(500, 2000),
        };
        Workload {
            sessions: 40,
            arrivals: Arrivals { per_s: 1.0, to_per_s: None, shape: Shape::Poisson },
            kind,
        }
    }

    const FIT: Fit = Fit { overhead_s: 0.012, row_s: 0.0015, decode_s: 0.018, alone: 20 };

    fn run(fit: &Fit, prompt_tokens_mean: f64) -> Report {
        let scenario = Scenario::parse(SCENARIO).unwrap();
        let about = About { seed: 3, slo_ttft_ms: 2000.0, slo_tpot_ms: 200.0, ..About::default() };
        let real = Report { about, prompt_tokens_mean, ..Report::default() };
        let policy = Policy::named("expected_ttft").unwrap();
        let (report, broken) = predict(&real, &workload(), &scenario, fit, policy);
        assert!(broken.is_empty(), "{broken:?}");
        report
    }

    /// The simulation in the place of the real run: what it measures gives its machines, and so itself.
    #[test]
    fn a_fleet_that_is_fitted_to_a_run_runs_like_it() {
        let real = run(&FIT, 300.0);
        assert!((real.prompt_tokens_mean / 300.0 - 1.0).abs() < 0.01, "{}", real.prompt_tokens_mean);
        let fit = Fit::of(&real.exchanges, 2.0).unwrap();
        let again = run(&fit, real.prompt_tokens_mean);
        let off = |of: fn(&Report) -> f64| (of(&again) / of(&real) - 1.0).abs();
        let hits = off(|report| report.hit_rate.unwrap());
        assert!(hits < 0.15, "{fit}: {:?} {:?}", again.hit_rate, real.hit_rate);
        assert!(off(|report| report.ttft_ms.p50) < 0.15, "{fit}: {:?} {:?}", again.ttft_ms, real.ttft_ms);
    }

    #[test]
    fn a_slower_machine_is_predicted_slower() {
        let slow = Fit { row_s: 0.003, ..FIT };
        assert!(run(&slow, 300.0).ttft_ms.p50 > 1.3 * run(&FIT, 300.0).ttft_ms.p50);
    }
}
