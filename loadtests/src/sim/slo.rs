//! What counts as good in a scenario, by one rule for all: the first token may take twice as long as a prompt of the
//! scenario's 95th percentile takes alone and uncached on its slowest machine. So no scenario has a target that suits a
//! policy. Pure; the time of later tokens is the scenario's own.

use std::time::Duration;

use replica_core::capacity::StepShape;

use super::replica::Machine;
use crate::workload::{Session, Workload};

/// How many times as long as alone.
const TIMES_ALONE: u32 = 2;

/// Share of prompts that are no longer than the one that counts, in percent.
const PERCENT: usize = 95;

/// Sessions that tell of prompts, and their seed: the same whatever the rate and the seed of a run.
const SAMPLE: (u32, u64) = (2000, 0);

/// Longest wait for the first token.
pub fn ttft(workload: &Workload, machines: &[Machine]) -> Duration {
    let (sessions, seed) = SAMPLE;
    let mut prompts: Vec<_> =
        Workload { sessions, ..workload.clone() }.sessions(seed).iter().flat_map(prompts).collect();
    prompts.sort_unstable();
    let rank = (prompts.len() * PERCENT).div_ceil(100).max(1) - 1;
    let tokens = prompts.get(rank).copied().unwrap_or(0);
    TIMES_ALONE * machines.iter().map(|machine| alone(machine, tokens)).max().unwrap_or_default()
}

/// Tokens of each prompt of a session: all that was said before, and what is new.
pub fn prompts(session: &Session) -> Vec<u32> {
    let mut said = 0;
    let prompt = |turn: &crate::workload::Turn| {
        said += turn.text.iter().map(|segment| segment.tokens).sum::<u32>();
        let prompt = said;
        said += turn.answer_tokens;
        prompt
    };
    session.turns.iter().map(prompt).collect()
}

/// How long an idle machine takes for a prompt of which it knows nothing: step after step.
fn alone(machine: &Machine, prompt_tokens: u32) -> Duration {
    let time = machine.time();
    let step_tokens = machine.step_tokens_max.max(1);
    let step = |from: u32| {
        let rows = step_tokens.min(prompt_tokens - from);
        time.step(StepShape { rows, context_tokens: u64::from(from + rows) })
    };
    (0..prompt_tokens).step_by(step_tokens as usize).map(step).sum()
}

#[cfg(test)]
mod tests {
    use crate::sim::fleet::Simulation;
    use crate::sim::policy::Policy;
    use crate::sim::scenario::Scenario;

    fn scenario(kind: &str, machines: &[(f64, u32)]) -> Scenario {
        let machine = |(row_us, step_tokens_max): &(f64, u32)| {
            format!(
                "[[machines]]\ncount = 1\nblocks = 4000\nrunning_max = 8\nwaiting_max = 8\n\
                 step_tokens_max = {step_tokens_max}\nstep_ms = 2.0\nweights_ms = 8.0\nrow_us = {row_us}\n\
                 context_token_ns = 100.0\n"
            )
        };
        let machines: String = machines.iter().map(machine).collect();
        let text = format!(
            "about = \"\"\n[workload]\nsessions = 1\narrivals = {{ per_s = 1.0 }}\n{kind}\n{machines}\n\
             [slo]\ntpot_ms = 50\n[times]\nhop_ms = 0.0\n"
        );
        Scenario::parse(&text).expect("a scenario")
    }

    const LONG: &str = "[workload.kind.unrelated]\nprompt_tokens = [5000, 5000]\nanswer_tokens = [2, 2]";

    #[test]
    fn a_prompt_alone_takes_half_of_it() {
        let scenario = scenario(LONG, &[(40.0, 2048)]);
        let outcome = Simulation::run(&scenario, Policy::named("round_robin").unwrap(), 1);
        assert_eq!(outcome.records[0].ttft().unwrap() * 2, scenario.slo().ttft);
    }

    #[test]
    fn the_slowest_machine_counts() {
        let both = scenario(LONG, &[(40.0, 2048), (100.0, 512)]).slo();
        assert_eq!(both, scenario(LONG, &[(100.0, 512)]).slo());
        assert!(both.ttft > scenario(LONG, &[(40.0, 2048)]).slo().ttft);
    }

    #[test]
    fn a_later_turn_counts_with_all_that_was_said() {
        let turns = |turns: u32| {
            format!(
                "[workload.kind.agents]\nsystem_tokens = [100, 100]\nturns = [{turns}, {turns}]\n\
                 tool_tokens = [400, 400]\nanswer_tokens = [50, 50]\ntool_ms = [10, 10]"
            )
        };
        // One step of 500 tokens; with the first turn's answer and the second's text, one of 950.
        let ms = |turns_of: &str| scenario(turns_of, &[(40.0, 2048)]).slo().ttft.as_secs_f64() * 1e3;
        assert!((ms(&turns(1)) - 2.0 * (2.0 + 20.0 + 0.05)).abs() < 1e-6);
        assert!((ms(&turns(2)) - 2.0 * (2.0 + 38.0 + 0.095)).abs() < 1e-6);
    }
}
