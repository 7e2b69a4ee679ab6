//! The laws of the simulated fleet, for many seeds with faults.
//!
//! A seed that breaks one prints itself; `flotilla-load sim loadtests/scenarios/faults.toml --seed N` shows it.

use loadtests::report::Ended;
use loadtests::sim::fleet::{Outcome, Simulation};
use loadtests::sim::policy::{NAMES, Policy};
use loadtests::sim::scenario::Scenario;

const SEEDS: u64 = 200;

fn scenario(name: &str) -> Scenario {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios").join(name);
    Scenario::read(&path).unwrap_or_else(|error| panic!("{error}"))
}

fn run(scenario: &Scenario, policy: &str, seed: u64) -> Outcome {
    let policy = Policy::named(policy).expect("a policy of that name");
    let outcome = Simulation::run(scenario, policy, seed);
    assert!(outcome.broken.is_empty(), "seed {seed}:\n{}", outcome.broken.join("\n"));
    outcome
}

#[test]
fn the_laws_hold_for_any_seed_whatever_fails() {
    let scenario = scenario("faults.toml");
    let mut ends = std::collections::BTreeMap::<Ended, u32>::new();
    for seed in 0..SEEDS {
        for record in run(&scenario, "expected_ttft", seed).records {
            *ends.entry(record.ended).or_default() += 1;
        }
    }
    // Otherwise the faults spare everybody, or spare nobody, and the laws were not tried.
    let share =
        |ended| f64::from(ends.get(&ended).copied().unwrap_or(0)) / f64::from(ends.values().sum::<u32>());
    assert!(share(Ended::Answered) > 0.8, "{ends:?}");
    assert!(ends.len() > 2, "{ends:?}");
}

#[test]
fn the_laws_hold_for_every_policy() {
    let scenario = scenario("faults.toml");
    for name in NAMES {
        for seed in 0..5 {
            run(&scenario, name, seed);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let scenario = scenario("faults.toml");
    for seed in 0..10 {
        let [first, second] = [(); 2].map(|()| run(&scenario, "expected_ttft", seed));
        assert_eq!(first.trace, second.trace, "seed {seed}");
        assert_eq!(first, second, "seed {seed}");
    }
}

#[test]
fn a_pool_too_small_preempts_and_answers_all_the_same() {
    let scenario = scenario("tight.toml");
    let mut preemptions = 0;
    for seed in 0..20 {
        let outcome = run(&scenario, "expected_ttft", seed);
        assert!(outcome.records.iter().all(|record| record.ended == Ended::Answered), "seed {seed}");
        preemptions += outcome.preemptions;
    }
    assert!(preemptions > 0, "nothing was tight");
}

#[test]
fn every_scenario_file_is_read() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let files: Vec<_> = std::fs::read_dir(folder).expect("the scenarios").flatten().collect();
    assert!(files.len() > 5);
    for file in files {
        Scenario::read(&file.path()).unwrap_or_else(|error| panic!("{error}"));
    }
}
