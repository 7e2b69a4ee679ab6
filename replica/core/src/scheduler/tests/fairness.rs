use super::*;

fn steps_to_end(bench: &mut Bench, id: u64) -> usize {
    let before = bench.steps;
    while !bench.ends.contains_key(&SequenceId(id)) {
        assert!(bench.step());
    }
    bench.steps - before
}

fn long_context() -> Limits {
    Limits { blocks: 4096, context_tokens_max: 16_000, ..limits() }
}

// U025
#[test]
fn a_short_request_behind_an_over_long_prompt_takes_at_most_twice_as_long() {
    for short_tokens in [4, 30, 100, 400] {
        let mut idle = Bench::new(long_context());
        idle.add(request(1, &prompt(1, short_tokens), 4));
        let alone = steps_to_end(&mut idle, 1);
        let mut busy = Bench::new(long_context());
        busy.add(request(9, &prompt(9, 10_000), 4));
        busy.step();
        busy.add(request(1, &prompt(1, short_tokens), 4));
        let behind = steps_to_end(&mut busy, 1);
        assert!(behind <= 2 * alone + 1, "{short_tokens}: {behind} steps instead of {alone}");
    }
}

#[test]
fn a_long_prompt_gets_half_however_many_short_ones_come() {
    let mut bench = Bench::new(long_context());
    bench.add(request(1, &prompt(1, 1_600), 1));
    let mut id = 1;
    while !bench.ends.contains_key(&SequenceId(1)) {
        id += 1;
        bench.add(request(id, &prompt(id as u32, 40), 1));
        bench.step();
        assert!(bench.steps <= 2 * (1_600 / 32) + 2, "the long one starves");
    }
}

#[test]
fn equal_prompts_are_served_in_the_order_they_came() {
    let mut bench = Bench::new(long_context());
    for id in 1..=4 {
        bench.add(request(id, &prompt(id as u32, 96), 1));
    }
    let ends = (1..=4).map(|id| {
        steps_to_end(&mut bench, id);
        bench.steps
    });
    assert_eq!(ends.collect::<Vec<_>>(), [3, 6, 9, 12]);
}

#[test]
fn a_big_request_that_lacks_blocks_is_passed_a_few_times_only() {
    let mut bench = Bench::new(Limits { blocks: 50, reserve_blocks: 0, running_max: 4, ..limits() });
    bench.add(request(1, &prompt(1, 40), 30));
    bench.step();
    bench.add(request(2, &prompt(2, 160), 1));
    let mut id = 2;
    while !bench.ends.contains_key(&SequenceId(2)) {
        while bench.scheduler.load().waiting < 4 {
            id += 1;
            bench.add(request(id, &prompt(id as u32, 8), 4));
        }
        assert!(bench.step());
        assert!(bench.steps < 60, "the big one starves");
    }
    assert!(bench.ends.len() > 8, "small ones used the time");
}

#[test]
fn steps_come_to_take_the_target_time() {
    let target = Duration::from_millis(100);
    let mut scheduler =
        Scheduler::new(Limits { step_target: Some(target), step_tokens_max: 4096, ..long_context() });
    scheduler.add(request(1, &prompt(1, 15_000), 1)).unwrap();
    let (mut batch, mut events, mut drawn) = (Batch::default(), vec![], vec![]);
    let mut rows = 0;
    for _ in 0..10 {
        scheduler.schedule(Instant::ZERO, &mut batch, &mut events);
        rows = batch.rows() as u32;
        scheduler.commit(Instant::ZERO, Duration::from_micros(500) * rows, &mut drawn, &mut events);
    }
    assert!((180..=200).contains(&rows), "{rows} rows of half a millisecond");
}
