use proptest::prelude::*;

use super::*;

const MODEL: ModelKey = ModelKey(0);
const BOUNDS: Bounds = Bounds { requests_max: 1000, bytes_max: 1_000_000 };

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

fn waiting(id: u64, tenant: u32, class: Class) -> Waiting {
    Waiting {
        id: RequestId(id),
        tenant: TenantId(tenant),
        class,
        model: MODEL,
        bytes: 100,
        tokens: 100,
        since: at(id),
        deadline: at(3_600_000),
    }
}

/// Starts the first in line.
fn start(queue: &mut Queue, model: ModelKey, now: Instant) -> Option<Waiting> {
    let first = queue.first(model)?.id;
    queue.start(first, now)
}

fn drain(queue: &mut Queue) -> Vec<u64> {
    std::iter::from_fn(|| start(queue, MODEL, at(1000))).map(|waiting| waiting.id.0).collect()
}

fn queue_of(list: &[(u64, u32, Class)]) -> Queue {
    let mut queue = Queue::new(BOUNDS);
    for &(id, tenant, class) in list {
        queue.push(waiting(id, tenant, class), at(id)).unwrap();
    }
    queue.check_invariants();
    queue
}

/// U147: first in, first out per key, under 50 waiters.
#[test]
fn one_tenants_requests_keep_their_order() {
    let list: Vec<_> = (0..50).map(|id| (id, 1, Class::Normal)).collect();
    assert_eq!(drain(&mut queue_of(&list)), (0..50).collect::<Vec<_>>());
}

#[test]
fn a_tenant_with_many_waiting_delays_another_by_one() {
    let mut list: Vec<_> = (0..50).map(|id| (id, 1, Class::Normal)).collect();
    list.push((50, 2, Class::Normal));
    let order = drain(&mut queue_of(&list));
    assert!(order.iter().position(|&id| id == 50).unwrap() <= 1, "{order:?}");
}

#[test]
fn a_higher_class_gets_more_but_not_all() {
    let list: Vec<_> =
        (0..20).map(|id| (id, 1, Class::High)).chain((20..40).map(|id| (id, 2, Class::Low))).collect();
    let order = drain(&mut queue_of(&list));
    let low = order[..18].iter().filter(|&&id| id >= 20).count();
    assert!((1..=3).contains(&low), "{order:?}");
}

#[test]
fn batch_work_goes_last_whenever_it_came() {
    let mut queue = queue_of(&[(0, 1, Class::Batch), (1, 1, Class::Low), (2, 2, Class::Normal)]);
    assert!(queue.has_waiting(MODEL));
    assert_eq!((queue.waiting(MODEL), queue.waiting(ModelKey(9))), (3, 0));
    assert_eq!(drain(&mut queue), vec![2, 1, 0]);
    let queue = queue_of(&[(0, 1, Class::Batch)]);
    assert!(!queue.has_waiting(MODEL), "newcomers pass batch work");
}

#[test]
fn a_full_queue_refuses_with_a_wait_and_changes_nothing() {
    let mut queue = Queue::new(Bounds { requests_max: 2, bytes_max: 1000 });
    for id in 0..2 {
        queue.push(waiting(id, 1, Class::Normal), at(id)).unwrap();
    }
    let refusal = queue.push(waiting(9, 1, Class::Normal), at(9)).unwrap_err();
    assert!(matches!(refusal, Full::Bounds(wait) if !wait.is_zero()));
    assert_eq!(queue.len(), 2);
}

#[test]
fn the_bytes_of_bodies_are_bounded_too() {
    let mut queue = Queue::new(Bounds { requests_max: 100, bytes_max: 250 });
    for id in 0..2 {
        queue.push(waiting(id, 1, Class::Normal), at(id)).unwrap();
    }
    assert!(queue.push(waiting(2, 1, Class::Normal), at(2)).is_err());
    queue.check_invariants();
}

#[test]
fn a_full_queue_makes_room_for_a_tenant_that_has_none() {
    let mut queue = Queue::new(Bounds { requests_max: 4, bytes_max: 1000 });
    for id in 0..4 {
        queue.push(waiting(id, 1, Class::Normal), at(id)).unwrap();
    }
    let queued = queue.push(waiting(9, 2, Class::Normal), at(9)).unwrap();
    assert_eq!(queued.displaced, vec![RequestId(3)]);
    queue.check_invariants();
}

#[test]
fn batch_work_gives_way_when_the_queue_is_full() {
    let mut queue = Queue::new(Bounds { requests_max: 2, bytes_max: 1000 });
    queue.push(waiting(0, 1, Class::Batch), at(0)).unwrap();
    queue.push(waiting(1, 1, Class::Normal), at(1)).unwrap();
    let queued = queue.push(waiting(2, 1, Class::Normal), at(2)).unwrap();
    assert_eq!(queued.displaced, vec![RequestId(0)]);
}

#[test]
fn an_impossible_deadline_is_refused_at_once() {
    let list: Vec<_> = (0..10).map(|id| (id, 1, Class::Normal)).collect();
    let mut queue = queue_of(&list);
    start(&mut queue, MODEL, at(900)).unwrap();
    let hasty = Waiting { deadline: at(1001), ..waiting(99, 1, Class::Normal) };
    assert!(matches!(queue.push(hasty, at(1000)), Err(Full::Deadline(_))));
}

#[test]
fn the_expected_wait_follows_how_fast_it_goes() {
    let list: Vec<_> = (0..40).map(|id| (id, 1, Class::Normal)).collect();
    let mut queue = queue_of(&list);
    for second in 0..30 {
        start(&mut queue, MODEL, at(1000 + second * 2000)).unwrap();
    }
    let place = queue.place(RequestId(35)).unwrap();
    assert_eq!(place.ahead, 5);
    assert!((11..=13).contains(&place.wait.as_secs()), "{place:?}");
}

#[test]
fn what_cannot_start_in_time_expires() {
    let mut queue = Queue::new(BOUNDS);
    queue.push(Waiting { deadline: at(900), ..waiting(0, 1, Class::Normal) }, at(0)).unwrap();
    queue.push(waiting(1, 1, Class::Normal), at(0)).unwrap();
    let late = queue.expire(at(900));
    assert_eq!(late.iter().map(|waiting| waiting.id.0).collect::<Vec<_>>(), vec![0]);
    assert_eq!(queue.len(), 1);
}

proptest! {
    #[test]
    fn nobody_is_lost_and_bounds_hold(
        ops in prop::collection::vec((0u8..4, 0u32..5, 0u8..4, 0u32..3, 1u64..400), 1..200),
    ) {
        let mut queue = Queue::new(Bounds { requests_max: 12, bytes_max: 2000 });
        let mut inside = std::collections::BTreeSet::new();
        for (step, (op, tenant, class, model, size)) in ops.into_iter().enumerate() {
            let (id, now) = (step as u64, at(step as u64 * 100));
            let class = [Class::High, Class::Normal, Class::Low, Class::Batch][usize::from(class)];
            match op {
                0 | 1 => {
                    let one = Waiting { model: ModelKey(model), bytes: size, ..waiting(id, tenant, class) };
                    if let Ok(queued) = queue.push(one, now) {
                        inside.insert(RequestId(id));
                        for victim in queued.displaced {
                            prop_assert!(inside.remove(&victim));
                        }
                    }
                }
                2 => {
                    let next = start(&mut queue, ModelKey(model), now);
                    prop_assert!(next.is_none_or(|waiting| inside.remove(&waiting.id)));
                }
                _ => {
                    let id = RequestId(size);
                    prop_assert_eq!(queue.remove(id).is_some(), inside.remove(&id));
                }
            }
            queue.check_invariants();
            prop_assert_eq!(queue.len(), inside.len());
        }
    }

    #[test]
    fn every_tenant_gets_its_share_while_it_waits(tenants in 2u32..6, each in 5u64..20) {
        let mut queue = Queue::new(BOUNDS);
        for id in 0..u64::from(tenants) * each {
            // Tenants arrive one after the other, each with all it has.
            queue.push(waiting(id, (id / each) as u32, Class::Normal), at(0)).unwrap();
        }
        let order = drain(&mut queue);
        let round = tenants as usize;
        for (at, served) in order.chunks(round).enumerate() {
            let mut seen: Vec<_> = served.iter().map(|id| id / each).collect();
            seen.sort_unstable();
            seen.dedup();
            prop_assert_eq!(seen.len(), served.len(), "round {}", at);
        }
    }
}
