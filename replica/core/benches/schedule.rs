//! One step of a scheduler with a thousand running sequences, and one draw over real vocabularies.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use replica_core::batch::Batch;
use replica_core::sampler::{Draw, History, Sampled, Sampler, Sampling};
use replica_core::scheduler::{Drawn, Limits, Policy, Scheduler};
use replica_core::sequence::{Request, Wants};
use shared::id::{BlockHash, SequenceId};
use shared::time::Instant;

const SEQUENCES: u32 = 1_000;

fn request(id: u32, prompt_tokens: u32) -> Request {
    Request {
        id: SequenceId(u64::from(id)),
        tokens: (0..prompt_tokens).map(|token| id * 100_000 + token).collect(),
        answered: 0,
        answer_tokens_max: u32::MAX,
        answer_tokens_min: 0,
        stop_tokens: vec![u32::MAX],
        sampling: Sampling::default(),
        chain_seed: BlockHash(0),
        priority: 0,
        arrival: Instant::ZERO,
        deadline: None,
        wants: Wants::Tokens,
    }
}

struct Loop {
    scheduler: Scheduler,
    batch: Batch,
    drawn: Vec<Drawn>,
    events: Vec<(SequenceId, replica_core::scheduler::Event)>,
}

impl Loop {
    fn step(&mut self) {
        self.events.clear();
        self.scheduler.schedule(Instant::ZERO, &mut self.batch, &mut self.events);
        for share in &self.batch.shares {
            if self.scheduler.draws(share) {
                let sampled = Sampled::unscored(7);
                self.drawn.push((share.sequence, Ok(sampled)));
            }
        }
        let took = Duration::from_millis(20);
        self.scheduler.commit(Instant::ZERO, took, &mut self.drawn, &mut self.events);
    }
}

fn schedule(criterion: &mut Criterion) {
    let limits = Limits {
        blocks: 2_000_000,
        block_tokens: 32,
        running_max: SEQUENCES,
        waiting_max: SEQUENCES,
        context_tokens_max: u32::MAX,
        step_tokens_max: 8_192,
        step_target: None,
        policy: Policy::Fcfs,
        prefix_caching: true,
        reserve_blocks: 1,
    };
    let (batch, drawn, events) = Default::default();
    let mut engine = Loop { scheduler: Scheduler::new(limits), batch, drawn, events };
    for id in 0..SEQUENCES {
        engine.scheduler.add(request(id, 500)).expect("the queue is empty");
    }
    while engine.batch.rows() as u32 != SEQUENCES {
        engine.step();
    }
    criterion.bench_function("a decode step of 1000 sequences", |bencher| bencher.iter(|| engine.step()));
}

fn sample(criterion: &mut Criterion) {
    for vocabulary in [49_152_u32, 262_144] {
        let noise = |token: u32| (token.wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 24) as f32;
        let logits: Vec<f32> = (0..vocabulary).map(|token| noise(token).powi(4) * 25.0).collect();
        let plain = Sampling::default();
        let cases = [
            ("greedy", Sampling { temperature: 0.0, ..plain.clone() }),
            ("plain", plain.clone()),
            ("top-p", Sampling { top_p: 0.9, ..plain.clone() }),
            ("top-k and top-p", Sampling { top_k: 50, top_p: 0.9, ..plain }),
        ];
        let (mut sampler, history, mut scratch) = (Sampler::default(), History::default(), logits.clone());
        for (name, sampling) in cases {
            let draw = Draw { sampling: &sampling, history: &history, answer: &[], suppressed: &[] };
            criterion.bench_function(&format!("{name} draw of {vocabulary}"), |bencher| {
                bencher.iter(|| {
                    scratch.copy_from_slice(&logits);
                    sampler.sample(black_box(&mut scratch), draw)
                });
            });
        }
    }
}

criterion_group!(benches, schedule, sample);
criterion_main!(benches);
