use super::*;

#[test]
fn one_prompt_is_answered() {
    let mut bench = Bench::new(limits());
    bench.add(request(1, &prompt(1, 50), 7));
    bench.run();
    assert_eq!(bench.answer(1), expected(&prompt(1, 50), 7));
    assert_eq!(bench.ends[&SequenceId(1)], Finish::Length);
    assert_eq!(bench.steps, 2 + 6, "two chunks, the second of which gives the first token");
}

#[test]
fn waiting_requests_share_their_steps() {
    let mut bench = Bench::new(limits());
    for id in 1..=3 {
        bench.add(request(id, &prompt(id as u32, 5), 4));
    }
    bench.run();
    assert_eq!(bench.steps, 4);
}

#[test]
fn running_sequences_come_before_prompts() {
    let mut bench = Bench::new(limits());
    bench.add(request(1, &prompt(1, 5), 10));
    bench.step();
    bench.add(request(2, &prompt(2, 100), 1));
    bench.step();
    assert_eq!(bench.batch.shares[0].sequence, SequenceId(1));
    assert_eq!(bench.batch.rows(), 1 + 28, "whole blocks of the prompt in what is left of 32");
}

#[test]
fn a_stop_token_ends_the_answer_and_is_not_part_of_it() {
    let answer = expected(&prompt(1, 9), 6);
    let mut bench = Bench::new(limits());
    bench.add(Request { stop_tokens: vec![answer[3]], ..request(1, &prompt(1, 9), 6) });
    bench.run();
    assert_eq!(bench.answer(1), &answer[..3]);
    assert_eq!(bench.ends[&SequenceId(1)], Finish::Stop(answer[3]));
}

#[test]
fn an_answer_ends_with_the_context() {
    let mut bench = Bench::new(Limits { context_tokens_max: 12, ..limits() });
    bench.add(request(1, &prompt(1, 9), 1000));
    bench.run();
    assert_eq!(bench.answer(1), expected(&prompt(1, 9), 3));
    let refusal = Refusal::NeverFits { pool_tokens: 12 };
    assert_eq!(bench.scheduler.add(request(2, &prompt(2, 12), 1)), Err(refusal));
}

// U050
#[test]
fn what_the_pool_can_never_hold_is_refused_at_once() {
    let mut bench = Bench::new(Limits { blocks: 5, ..limits() });
    let refusal = Refusal::NeverFits { pool_tokens: 20 };
    assert_eq!(bench.scheduler.add(request(1, &prompt(1, 20), 1)), Err(refusal));
    bench.add(request(2, &prompt(2, 19), 100));
    bench.run();
    assert_eq!(bench.answer(2), expected(&prompt(2, 19), 1), "it ends where the pool does");
}

// U055
#[test]
fn the_queue_is_bounded() {
    let mut bench = Bench::new(Limits { running_max: 1, waiting_max: 2, ..limits() });
    for id in 1..=3 {
        bench.add(request(id, &prompt(id as u32, 5), 4));
    }
    let refused = bench.scheduler.add(request(4, &prompt(4, 5), 4));
    assert_eq!(refused, Err(Refusal::Full { waiting: 3 }));
    bench.step();
    let refused = bench.scheduler.add(request(5, &prompt(5, 5), 4));
    assert_eq!(refused, Err(Refusal::Full { waiting: 2 }), "one runs, two wait");
    bench.scheduler.abort(SequenceId(2));
    bench.add(request(6, &prompt(6, 5), 4));
    bench.run();
    assert!(!bench.ends.contains_key(&SequenceId(2)), "who left while waiting is never prefilled");
    assert_eq!(bench.answer(6), expected(&prompt(6, 5), 4));
}

#[test]
fn a_deadline_that_passes_in_the_queue_drops_the_request() {
    let mut bench = Bench::new(Limits { running_max: 1, ..limits() });
    bench.add(request(1, &prompt(1, 5), 20));
    let deadline = Some(Instant::ZERO + Duration::from_millis(50));
    bench.add(Request { deadline, ..request(2, &prompt(2, 5), 4) });
    bench.run();
    assert_eq!(bench.ends[&SequenceId(2)], Finish::Expired);
    assert_eq!(bench.answer(2), [0; 0]);
}

#[test]
fn a_deadline_does_not_end_who_runs() {
    let mut bench = Bench::new(limits());
    let deadline = Some(Instant::ZERO + Duration::from_millis(50));
    bench.add(Request { deadline, ..request(1, &prompt(1, 5), 20) });
    bench.run();
    assert_eq!(bench.ends[&SequenceId(1)], Finish::Length);
}

#[test]
fn a_prompt_that_came_before_is_found_but_for_its_last_token() {
    for (tokens, cached) in [(41, 40), (40, 36), (42, 40)] {
        let mut bench = Bench::new(limits());
        bench.add(request(1, &prompt(1, tokens), 1));
        bench.run();
        bench.add(request(2, &prompt(1, tokens), 3));
        bench.run();
        assert_eq!(bench.answer(2), expected(&prompt(1, tokens), 3));
        assert_eq!(bench.scheduler.load().cache_hit_tokens, cached, "of {tokens}");
    }
}

#[test]
fn an_answer_is_found_by_the_next_turn() {
    let mut bench = Bench::new(limits());
    bench.add(request(1, &prompt(1, 20), 21));
    bench.run();
    let mut turn = prompt(1, 20);
    turn.extend(bench.answer(1));
    turn.extend(prompt(2, 5));
    bench.add(request(2, &turn, 2));
    bench.run();
    assert_eq!(bench.scheduler.load().cache_hit_tokens, 40);
    assert_eq!(bench.answer(2), expected(&turn, 2));
}

#[test]
fn salts_share_nothing() {
    let mut bench = Bench::new(limits());
    for id in 1..=2 {
        bench.add(Request { chain_seed: BlockHash(u128::from(id)), ..request(id, &prompt(1, 40), 1) });
        bench.run();
    }
    assert_eq!(bench.scheduler.load().cache_hit_tokens, 0);
}

#[test]
fn a_prefix_that_is_being_computed_is_waited_for() {
    let mut bench = Bench::new(Limits { step_tokens_max: 200, ..limits() });
    for id in 1..=3 {
        let mut tokens = prompt(1, 40);
        tokens.extend(prompt(id as u32 + 1, 4));
        bench.add(request(id, &tokens, 2));
    }
    bench.step();
    assert_eq!(bench.batch.rows(), 44, "only the first computes it");
    bench.step();
    assert_eq!(bench.batch.rows(), 1 + 4 + 4, "the others add their own ends");
    bench.run();
}

#[test]
fn who_waits_for_a_prefix_lets_others_pass() {
    let mut bench = Bench::new(limits());
    bench.add(request(1, &prompt(1, 60), 2));
    bench.add(request(2, &prompt(1, 60), 2));
    bench.add(request(3, &prompt(3, 4), 2));
    bench.step();
    let ran: Vec<_> = bench.batch.shares.iter().map(|share| share.sequence.0).collect();
    assert_eq!(ran, [1, 3]);
    bench.run();
}

#[test]
fn the_youngest_is_preempted_and_answers_the_same() {
    let mut bench = Bench::new(Limits { blocks: 12, reserve_blocks: 0, ..limits() });
    for id in 1..=3 {
        bench.add(request(id, &prompt(id as u32, 12), 20));
    }
    bench.run();
    assert!(bench.scheduler.load().preemptions > 0);
    for id in 1..=3 {
        assert_eq!(bench.answer(id), expected(&prompt(id as u32, 12), 20));
    }
    let order: Vec<_> = bench.ends.keys().map(|id| id.0).collect();
    assert_eq!(order, [1, 2, 3]);
}

// U054
#[test]
fn each_of_four_may_use_the_whole_context() {
    let mut bench = Bench::new(Limits { blocks: 25, context_tokens_max: 100, ..limits() });
    for id in 1..=4 {
        bench.add(request(id, &prompt(id as u32, 40), 1000));
    }
    bench.run();
    for id in 1..=4 {
        assert_eq!(bench.answer(id).len(), 60, "nobody ends because of a neighbour");
    }
}

#[test]
fn admission_looks_at_the_whole_prompt_and_a_reserve() {
    let mut bench = Bench::new(Limits { blocks: 24, ..limits() });
    bench.add(request(1, &prompt(1, 40), 4));
    bench.step();
    bench.add(request(2, &prompt(2, 52), 4));
    bench.step();
    let load = bench.scheduler.load();
    assert_eq!((load.running, load.waiting), (1, 1), "13 of 14 free blocks, but two are the reserve");
    bench.run();
}

#[test]
fn priority_goes_first_where_it_counts() {
    for (policy, order) in [(Policy::Fcfs, [1, 2]), (Policy::Priority, [2, 1])] {
        let mut bench = Bench::new(Limits { running_max: 1, policy, ..limits() });
        bench.add(Request { priority: 5, ..request(1, &prompt(1, 5), 2) });
        bench.add(Request { priority: -5, ..request(2, &prompt(2, 5), 2) });
        bench.step();
        assert_eq!(bench.batch.shares[0].sequence.0, order[0]);
        bench.run();
    }
}

#[test]
fn a_failure_ends_one_sequence_and_its_blocks_are_not_found_again() {
    let mut bench = Bench::new(limits());
    bench.add(request(1, &prompt(1, 40), 4));
    bench.add(request(2, &prompt(2, 8), 4));
    bench.poisoned.push(SequenceId(1));
    bench.run();
    assert_eq!(bench.ends[&SequenceId(1)], Finish::Failed("poisoned".into()));
    assert_eq!(bench.answer(2), expected(&prompt(2, 8), 4));
    bench.add(request(3, &prompt(1, 40), 4));
    bench.run();
    assert_eq!(bench.scheduler.load().cache_hit_tokens, 0);
}

#[test]
fn a_continued_answer_goes_on_where_it_was() {
    let whole = expected(&prompt(1, 10), 8);
    let mut tokens = prompt(1, 10);
    tokens.extend(&whole[..3]);
    let mut bench = Bench::new(limits());
    bench.add(Request { answered: 3, ..request(1, &tokens, 8) });
    bench.step();
    let sequence = bench.scheduler.sequence(SequenceId(1)).unwrap();
    assert_eq!((sequence.answer_tokens(), sequence.answer()), (4, &whole[..4]));
    bench.run();
    assert_eq!(bench.answer(1), &whole[3..]);
}

#[test]
fn hidden_states_need_no_token_and_no_cache() {
    let mut bench = Bench::new(limits());
    for id in 1..=2 {
        bench.add(Request { wants: Wants::Hidden, ..request(id, &prompt(1, 40), 1) });
        let mut rows = 0;
        while bench.step() {
            assert!(bench.batch.shares.iter().all(|share| share.output == Output::Hidden));
            rows += bench.batch.rows();
        }
        assert_eq!((rows, bench.answer(id).len()), (40, 0));
        assert_eq!(bench.ends[&SequenceId(id)], Finish::Length);
    }
}

#[test]
fn prompt_logprobs_are_told_once_whatever_is_preempted() {
    let mut bench = Bench::new(Limits { blocks: 10, reserve_blocks: 0, step_tokens_max: 12, ..limits() });
    bench.add(request(1, &prompt(1, 8), 25));
    bench.step();
    bench.add(Request { wants: Wants::PromptLogprobs(0), ..request(2, &prompt(2, 22), 4) });
    let mut told: Vec<u32> = Vec::new();
    while !bench.scheduler.is_idle() {
        bench.step();
        for share in bench.batch.shares.iter().filter(|share| share.output == Output::Every) {
            told.extend(&bench.batch.positions[share.rows.clone()]);
        }
    }
    assert!(bench.scheduler.load().preemptions > 0);
    assert_eq!(told, (0..22).collect::<Vec<_>>());
    assert_eq!(bench.answer(2), expected(&prompt(2, 22), 4));
}

#[test]
fn a_mass_abort_leaves_nothing_behind() {
    let mut bench = Bench::new(limits());
    for id in 1..=20 {
        bench.add(request(id, &prompt(id as u32 % 3, 30), 50));
    }
    bench.step();
    bench.step();
    for id in 1..=20 {
        assert!(bench.scheduler.abort(SequenceId(id)));
        bench.scheduler.check_invariants();
    }
    assert!(bench.scheduler.is_idle());
    assert_eq!(bench.scheduler.load().blocks_free, 64);
    assert!(!bench.step());
}
