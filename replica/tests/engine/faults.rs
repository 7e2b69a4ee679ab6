//! A fault in one sequence or one step never touches another.

use std::time::Duration;

use replica::engine::command::Mask;
use replica::engine::{Options, Source};
use replica::model::fake;
use replica_core::sequence::Finish;

use crate::support::{Rig, bytes, options};

// U043
#[test]
fn logits_that_are_no_numbers_end_that_sequence_alone() {
    let slow = fake::Delay { step: Duration::from_millis(2), row: Duration::ZERO };
    let rig = Rig::new(Options { source: Source::Fake(slow), ..options() });
    let well = rig.submit(rig.request(&bytes("[[say:all is well here]]"), 64));
    let ill = rig.submit(rig.request(&bytes("[[nan:3]]"), 64));
    let ill = ill.finish();
    assert_eq!(ill.sampled.len(), 3);
    assert!(
        matches!(&ill.finish, Finish::Failed(reason) if reason.contains("not a number")),
        "{:?}",
        ill.finish
    );
    let well = well.finish();
    assert_eq!((well.text().as_str(), well.finish), ("all is well here", Finish::Stop(fake::END)));
    rig.until_idle();
}

#[test]
fn a_panic_ends_the_sequences_of_its_step_and_the_engine_goes_on() {
    let rig = Rig::new(options());
    let ill = rig.submit(rig.request(&bytes("[[panic:2]]"), 64)).finish();
    assert_eq!(ill.sampled.len(), 2);
    assert!(matches!(&ill.finish, Finish::Failed(reason) if reason.contains("script")), "{:?}", ill.finish);
    let next = rig.submit(rig.request(&bytes("[[say:still here]]"), 64)).finish();
    assert_eq!(next.text(), "still here");
    rig.until_idle();
}

#[test]
fn a_rank_that_fails_ends_every_answer_with_its_number() {
    let mut rig = Rig::new(Options { ranks: 3, ..options() });
    let other = rig.submit(rig.request(&bytes("hello"), 2000));
    let ill = rig.submit(rig.request(&bytes("[[panic:2]]"), 64)).finish();
    for finish in [ill.finish, other.finish().finish] {
        assert!(matches!(&finish, Finish::Failed(reason) if reason.starts_with("rank ")), "{finish:?}");
    }
    let ended = rig.started.take().unwrap().thread.join().unwrap();
    assert!(ended.unwrap_err().reason.contains("script"));
    assert!(rig.handle.snapshot().ended);
}

#[test]
fn a_stall_is_seen_while_there_is_work() {
    let rig = Rig::new(options());
    let client = rig.submit(rig.request(&bytes("[[stall:300]]"), 4));
    let stalled = || rig.handle.stalled_for() > Duration::from_millis(50);
    rig.until("stalled", |_| stalled());
    client.finish();
    rig.until_idle();
    assert_eq!(rig.handle.stalled_for(), Duration::ZERO);
}

#[test]
fn a_mask_bounds_its_own_answer_and_fails_alone() {
    let rig = Rig::new(options());
    let ban = |banned: u32| {
        Mask(Box::new(move |_: &[u32], logits: &mut [f32]| {
            logits[banned as usize] = f32::NEG_INFINITY;
            Ok(())
        }))
    };
    let broken = Mask(Box::new(|answer: &[u32], _: &mut [f32]| match answer.len() {
        2 => Err("the grammar has no way on".to_owned()),
        _ => Ok(()),
    }));
    let prompt = bytes("a prompt");
    let free = rig.submit(rig.request(&prompt, 20)).finish().tokens();
    let ask = |mask| rig.try_submit_masked(rig.request(&prompt, 20), Some(mask)).unwrap();
    let (bound, broken) = (ask(ban(free[0])), ask(broken));
    assert_eq!(rig.submit(rig.request(&prompt, 20)).finish().tokens(), free);
    assert!(!bound.finish().tokens().contains(&free[0]));
    let broken = broken.finish();
    assert_eq!(
        (broken.sampled.len(), broken.finish),
        (2, Finish::Failed("the grammar has no way on".to_owned()))
    );
    rig.until_idle();
}
