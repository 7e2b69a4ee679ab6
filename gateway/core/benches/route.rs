//! The cost of one choice: look the prompt up, choose, count. By hand: `cargo bench -p gateway-core`.

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use gateway_core::fleet::{Event, Fleet, Readiness, Report, Source};
use gateway_core::health::{Outcome, Rules};
use gateway_core::load::Sample;
use gateway_core::prefix_index::{Matches, PrefixIndex, Settlement};
use gateway_core::replica::{Engine, Identity};
use gateway_core::route::{Demand, Router};
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use shared::id::ReplicaId;
use shared::prefix::PieceHash;
use shared::time::Instant;
use std::hint::black_box;

const NOW: Instant = Instant(100_000_000_000);
const COMPUTED: Settlement = Settlement { is_computed: true, predicted: 0, reported: None };

fn fleet(replicas: u32) -> Fleet {
    let mut fleet = Fleet::new(Rules::default());
    for number in 0..replicas {
        let endpoint = format!("10.0.{}.{}:8001", number / 256, number % 256);
        let joined = Event::Joined { endpoint, source: Source::Config, models: vec![], running_max: None };
        fleet.apply(joined, NOW);
        let sample = Sample {
            running: Some(number % 7),
            running_max: Some(256),
            waiting: Some(0),
            waiting_tokens: Some(u64::from(number % 13) * 100),
            kv_usage: Some(0.3),
            kv_tokens_max: Some(200_000),
            prefill_tokens_per_s: Some(8000.0 + f64::from(number % 5) * 100.0),
            ..Sample::default()
        };
        let identity = Identity {
            instance: number.to_string(),
            engine: Engine::Flotilla,
            models: vec!["m".to_owned()],
            ..Identity::default()
        };
        let report = Report { identity, readiness: Readiness::Ready, sample, at: NOW };
        fleet.apply(Event::Reported(ReplicaId(number), report), NOW);
    }
    fleet
}

/// A prompt of `length` pieces whose first half is shared by a group of prompts.
fn prompt(number: u64, length: u64) -> Vec<PieceHash> {
    let hash = |group: u64, at: u64| PieceHash::from(SmallRng::seed_from_u64(group << 20 | at).next_u64());
    (0..length).map(|at| hash(if at < length / 2 { number % 50 } else { 1000 + number }, at)).collect()
}

fn choose(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("choose");
    for (replicas, pieces) in [(8, 1), (8, 200), (1000, 1), (1000, 200)] {
        let (mut fleet, mut router) = (fleet(replicas), Router::default());
        let (mut index, mut matches) = (PrefixIndex::new(1 << 20), Matches::default());
        let mut rng = SmallRng::seed_from_u64(1);
        for number in 0..4000 {
            let replica = ReplicaId((number % u64::from(replicas)) as u32);
            index.guess(replica, &prompt(number, pieces));
            index.settle(replica, &prompt(number, pieces), COMPUTED);
        }
        let prompts: Vec<_> = (3000..4000).map(|number| prompt(number, pieces)).collect();
        let model = fleet.model("m").expect("every replica serves it");
        let mut next = 0;
        group.bench_function(
            BenchmarkId::new(format!("{replicas} replicas"), format!("{pieces} pieces")),
            |bencher| {
                bencher.iter(|| {
                    next = (next + 1) % prompts.len();
                    let demand = Demand {
                        model,
                        prompt_bytes: pieces as u32 * 512,
                        answer_tokens_max: Some(100),
                        is_batch: false,
                        session: None,
                        tried: &[],
                    };
                    index.lookup(&prompts[next], &mut matches);
                    let matched = |id| index.trusted(&matches, id);
                    let decision =
                        router.choose(&demand, &fleet, matched, NOW, &mut rng).expect("there is room");
                    let ticket = fleet.begin(&decision, NOW).expect("the chosen one is there");
                    fleet.end(black_box(ticket), Outcome::Neutral, NOW)
                });
            },
        );
    }
    group.finish();
}

fn remember(criterion: &mut Criterion) {
    let mut index = PrefixIndex::new(1 << 20);
    for number in 0..12_000 {
        index.guess(ReplicaId(number as u32 % 8), &prompt(number, 200));
    }
    let mut number = 12_000;
    criterion.bench_function("guess and settle 200 pieces when full", |bencher| {
        let new_prompt = || {
            number += 1;
            (ReplicaId(number as u32 % 8), prompt(number, 200))
        };
        let compute = |(replica, pieces): (ReplicaId, Vec<PieceHash>)| {
            index.guess(replica, &pieces);
            index.settle(replica, &pieces, COMPUTED);
        };
        bencher.iter_batched(new_prompt, compute, BatchSize::SmallInput);
    });
    println!("{} bytes for {} pieces", index.bytes(), index.pieces());
}

criterion_group!(benches, choose, remember);
criterion_main!(benches);
