//! Virtual time: what is due next.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use shared::time::Instant;

/// Things that are to happen, in the order of their times, equals in the order they were put down.
#[derive(Debug)]
pub struct Agenda<E> {
    heap: BinaryHeap<Reverse<Due<E>>>,
    now: Instant,
    count: u64,
}

#[derive(Debug)]
struct Due<E> {
    at: Instant,
    order: u64,
    event: E,
}

impl<E> PartialEq for Due<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<E> Eq for Due<E> {}

impl<E> PartialOrd for Due<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Due<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl<E> Default for Agenda<E> {
    /// Nothing to do, at the origin of time.
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), now: Instant::ZERO, count: 0 }
    }
}

impl<E> Agenda<E> {
    /// The time of what happened last.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Puts something down for a time that is not past.
    pub fn at(&mut self, at: Instant, event: E) {
        assert!(at >= self.now, "nothing can be put down for the past");
        self.count += 1;
        self.heap.push(Reverse(Due { at, order: self.count, event }));
    }

    /// Puts something down for later.
    pub fn after(&mut self, wait: Duration, event: E) {
        self.at(self.now + wait, event);
    }

    /// What is due next; time moves there.
    pub fn pop(&mut self) -> Option<E> {
        let Reverse(due) = self.heap.pop()?;
        self.now = due.at;
        Some(due.event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_equals_by_order() {
        let mut agenda = Agenda::default();
        for (ms, name) in [(5, "b"), (1, "a"), (5, "c")] {
            agenda.after(Duration::from_millis(ms), name);
        }
        let order: Vec<_> = std::iter::from_fn(|| agenda.pop()).collect();
        assert_eq!(order, ["a", "b", "c"]);
        assert_eq!(agenda.now(), Instant::ZERO + Duration::from_millis(5));
    }
}
