//! A fault in one sequence or one step never touches another.

use replica::engine::{Options, Source};
use replica::model::fake;
use replica_core::sequence::Finish;
use std::time::Duration;

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
        matches!(&ill.finish, Finish::Failed(reason) if reason.contains("not numbers")),
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
