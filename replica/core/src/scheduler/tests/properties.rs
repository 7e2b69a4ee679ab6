use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Operation {
    Add { kind: u32, shared: u32, own: u32, answer: u32, wants: u8, priority: i32, deadline: bool },
    Abort(u64),
    Poison(u64),
    Plan,
    Step,
}

fn operation() -> impl Strategy<Value = Operation> {
    let add = (0u32..3, 0u32..40, 1u32..30, 1u32..20, 0u8..8, -1i32..2, any::<bool>());
    prop_oneof![
        3 => add.prop_map(|(kind, shared, own, answer, wants, priority, deadline)| Operation::Add {
            kind, shared, own, answer, wants, priority, deadline
        }),
        1 => (0u64..30).prop_map(Operation::Abort),
        1 => (0u64..60).prop_map(Operation::Poison),
        1 => Just(Operation::Plan),
        6 => Just(Operation::Step),
    ]
}

fn tight() -> impl Strategy<Value = Limits> {
    (6u32..40, 1u32..6, 5u32..40, any::<bool>(), any::<bool>(), 0u32..3, any::<bool>()).prop_map(
        |(blocks, running_max, step_tokens_max, by_priority, prefix_caching, reserve_blocks, timed)| Limits {
            blocks,
            running_max,
            step_tokens_max,
            policy: if by_priority { Policy::Priority } else { Policy::Fcfs },
            prefix_caching,
            reserve_blocks,
            waiting_max: 6,
            step_target: timed.then_some(Duration::from_millis(15)),
            ..limits()
        },
    )
}

fn apply(bench: &mut Bench, prompts: &mut BTreeMap<SequenceId, (Vec<u32>, u32)>, operation: Operation) {
    match operation {
        Operation::Add { kind, shared, own, answer, wants, priority, deadline } => {
            let id = prompts.len() as u64;
            let mut tokens = prompt(kind, shared);
            tokens.extend(prompt(100 + id as u32, own));
            let wants = match wants {
                0 => Wants::Hidden,
                1 => Wants::PromptLogprobs(2),
                _ => Wants::Tokens,
            };
            let deadline = deadline.then(|| bench.now + Duration::from_millis(80));
            let request = Request { priority, deadline, wants, ..request(id, &tokens, answer) };
            if bench.scheduler.add(request).is_ok() {
                prompts.insert(SequenceId(id), (tokens, answer));
            }
            bench.scheduler.check_invariants();
        }
        Operation::Abort(id) => {
            bench.scheduler.abort(SequenceId(id));
            bench.scheduler.check_invariants();
        }
        Operation::Poison(id) => bench.poisoned.push(SequenceId(id)),
        Operation::Plan => {
            bench.scheduler.schedule(bench.now, &mut bench.batch, &mut bench.events);
            bench.scheduler.check_invariants();
        }
        Operation::Step => {
            bench.step();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Cold equals warm, alone equals batched, preempted equals not: whatever is added, aborted and poisoned
    /// in a pool that is far too small, every answer is a part of the one computed alone, and ends once.
    #[test]
    fn answers_depend_on_their_prompts_alone(
        limits in tight(),
        operations in prop::collection::vec(operation(), 1..120),
    ) {
        let mut bench = Bench::new(limits);
        let mut prompts = BTreeMap::new();
        for operation in operations {
            apply(&mut bench, &mut prompts, operation);
        }
        bench.run();
        for (id, (tokens, answer_tokens)) in prompts {
            let whole = expected(&tokens, answer_tokens as usize);
            let answer = bench.answer(id.0);
            prop_assert!(whole.starts_with(answer), "{:?} answers {:?}, not {:?}", id, answer, whole);
            let room = bench.scheduler.limits().context_tokens_max as usize - tokens.len();
            if bench.ends.get(&id) == Some(&Finish::Length) && !answer.is_empty() {
                prop_assert_eq!(answer.len(), whole.len().min(room));
            }
        }
    }

    /// Two schedulers that are told the same decide the same.
    #[test]
    fn the_same_history_gives_the_same_plans(
        limits in tight(),
        operations in prop::collection::vec(operation(), 1..60),
    ) {
        let mut benches = [Bench::new(limits), Bench::new(limits)];
        let mut prompts = [BTreeMap::new(), BTreeMap::new()];
        for operation in operations {
            for (bench, prompts) in benches.iter_mut().zip(&mut prompts) {
                apply(bench, prompts, operation);
            }
            prop_assert_eq!(&benches[0].batch, &benches[1].batch);
        }
    }
}
