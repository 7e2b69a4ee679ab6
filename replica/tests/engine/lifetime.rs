//! From submission to the end: bounds, clients that leave, drain.

use std::collections::BTreeSet;
use std::time::Duration;

use replica::engine::{Cached, Options, Refusal, Source, clock};
use replica::model::fake;
use replica_core::prefix_cache::Change;
use replica_core::sequence::{Finish, Request};

use crate::support::{Rig, bytes, options};

fn slow() -> Options {
    let delay = fake::Delay { step: Duration::from_millis(5), row: Duration::ZERO };
    Options { source: Source::Fake(delay), ..options() }
}

// U001
#[test]
fn a_client_that_leaves_frees_its_blocks_within_a_step_or_two() {
    let rig = Rig::new(slow());
    let mut client = rig.submit(rig.request(&bytes("a long answer"), 2000));
    (0..4).for_each(|_| drop(client.next()));
    drop(client);
    let left = rig.handle.snapshot().steps;
    let idle = rig.until_idle();
    assert!(idle.steps <= left + 2, "{} steps ran for nobody", idle.steps - left);
}

#[test]
fn an_abort_ends_without_further_events() {
    let rig = Rig::new(slow());
    let mut client = rig.submit(rig.request(&bytes("a long answer"), 2000));
    (0..4).for_each(|_| drop(client.next()));
    rig.handle.abort(client.id);
    rig.until_idle();
    while let Ok(event) = client.events.try_recv() {
        assert!(!matches!(event, replica::engine::command::Event::Finished(_)));
    }
}

#[test]
fn a_mass_abort_leaves_nothing_behind() {
    let rig = Rig::new(Options { kv_bytes: 46_080 * 32 * 20, ..slow() });
    for _ in 0..3 {
        let clients: Vec<_> = (0..60u32)
            .map(|index| rig.submit(rig.request(&vec![index % 7; 100 + index as usize], 500)))
            .collect();
        rig.until("busy", |seen| seen.running > 0);
        drop(clients);
        rig.until_idle();
    }
    assert_eq!(rig.submit(rig.request(&bytes("[[say:ok]]"), 9)).finish().text(), "ok");
}

// U055
#[test]
fn one_more_than_may_wait_is_refused_at_once() {
    let rig = Rig::new(Options { running_max: 1, waiting_max: 2, ..slow() });
    let ask = || rig.try_submit(rig.request(&bytes("hello"), 200));
    let three: Vec<_> = (0..3).map(|_| ask().unwrap()).collect();
    assert!(matches!(ask(), Err(Refusal::Full)));
    drop(three);
    rig.until_idle();
    ask().unwrap();
}

// U055
#[test]
fn what_waits_past_its_deadline_is_never_prefilled() {
    let rig = Rig::new(Options { running_max: 1, ..slow() });
    let first = rig.submit(rig.request(&bytes("hello"), 100));
    rig.until("running", |seen| seen.running == 1);
    let deadline = Some(clock::now() + Duration::from_millis(20));
    let late = rig.submit(Request { deadline, ..rig.request(&bytes("too late"), 100) }).finish();
    assert_eq!((late.finish, late.timing), (Finish::Expired, None));
    assert_eq!(first.finish().sampled.len(), 100);
}

#[test]
fn a_drained_engine_finishes_what_it_has_and_ends() {
    let mut rig = Rig::new(slow());
    let clients: Vec<_> = (0..5).map(|_| rig.submit(rig.request(&bytes("hello"), 30))).collect();
    rig.handle.drain();
    assert!(matches!(rig.try_submit(rig.request(&bytes("hello"), 1)), Err(Refusal::Draining)));
    for client in clients {
        assert_eq!(client.finish().sampled.len(), 30);
    }
    rig.started.take().unwrap().thread.join().unwrap().unwrap();
    assert!(rig.handle.snapshot().ended);
}

#[test]
fn an_idle_engine_drains_at_once() {
    let mut rig = Rig::new(options());
    rig.handle.drain();
    rig.started.take().unwrap().thread.join().unwrap().unwrap();
}

#[test]
fn the_warm_up_counts_nowhere() {
    let rig = Rig::new(options());
    let seen = rig.handle.snapshot();
    assert_eq!((seen.steps, seen.prompt_tokens, seen.generation_tokens, seen.prefix_queries), (0, 0, 0, 0));
    assert_eq!(seen.blocks_free, seen.blocks_total);
}

#[test]
fn a_follower_learns_what_the_prefix_cache_stores_and_evicts() {
    let mut rig = Rig::new(Options { kv_bytes: 46_080 * 32 * 8, ..options() });
    let ask = |rig: &Rig, first: u32| {
        let prompt: Vec<_> = (0..100).map(|place| first + place % 2).collect();
        rig.submit(rig.request(&prompt, 2)).finish();
        rig.until_idle();
    };
    let mut held = BTreeSet::new();
    let mut follow = |rig: &mut Rig| {
        while let Ok(message) = rig.started.as_mut().unwrap().cached.try_recv() {
            match message {
                Cached::Whole(all) => held = all.into_iter().collect(),
                Cached::Changed(changes) => changes.into_iter().for_each(|change| match change {
                    Change::Stored(hash) => assert!(held.insert(hash), "{hash:?} was there"),
                    Change::Evicted(hash) => assert!(held.remove(&hash), "{hash:?} was not there"),
                }),
            }
        }
        held.len()
    };
    ask(&rig, 10);
    assert!(follow(&mut rig) >= 3, "three blocks are full");
    (0..10).for_each(|index| ask(&rig, 20 + 10 * index));
    let held = follow(&mut rig);
    assert!((3..=8).contains(&held), "{held} of 8 blocks are held");
    // A follower that sleeps too long gets the whole.
    (0..400).for_each(|index| ask(&rig, index % 200));
    let held = follow(&mut rig);
    assert!((3..=8).contains(&held), "{held} of 8 blocks are held");
}
