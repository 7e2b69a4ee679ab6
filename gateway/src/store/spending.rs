//! What a tenant spent here and elsewhere, from totals that all gateways add to.

use super::Spent;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// After so long without a request here a tenant's totals are no longer followed: its buckets are full by then.
const FOLLOWED: Duration = Duration::from_mins(2);

/// One gateway's view.
#[derive(Clone, Debug, Default)]
pub struct Spending {
    untold: BTreeMap<String, Spent>,
    seen: BTreeMap<String, Seen>,
}

#[derive(Clone, Debug)]
struct Seen {
    total: Spent,
    spent_here_at: Instant,
}

impl Spending {
    /// Something was spent here.
    pub fn add(&mut self, spent: Vec<Spent>) {
        for one in spent {
            let sum = self.untold.entry(one.tenant.clone()).or_default();
            sum.tenant = one.tenant;
            sum.requests += one.requests;
            sum.tokens += one.tokens;
        }
    }

    /// What to tell: what was spent here; and nothing, to hear the total, for those who spent here a while ago.
    pub fn to_tell(&self) -> Vec<Spent> {
        let silent = self.seen.keys().filter(|name| !self.untold.contains_key(*name));
        let silent = silent.map(|name| Spent { tenant: name.clone(), ..Spent::default() });
        self.untold.values().cloned().chain(silent).collect()
    }

    /// It was told, and these are the totals: what others spent since the last time.
    pub fn told(&mut self, told: &[Spent], totals: Vec<Spent>, now: Instant) -> Vec<Spent> {
        let mut others = Vec::new();
        for (own, total) in told.iter().zip(totals) {
            let was_here = self.untold.remove(&own.tenant).is_some();
            let expected = match self.seen.get(&own.tenant).map(|seen| &seen.total) {
                Some(before) if before.requests <= total.requests => sum(before, own),
                // The store forgot it and began again.
                Some(_) => own.clone(),
                // What was spent before this gateway knew the tenant says nothing about the last minute.
                None => total.clone(),
            };
            let (requests, tokens) = (total.requests - expected.requests, total.tokens - expected.tokens);
            if (requests, tokens) != (0, 0) {
                others.push(Spent { tenant: own.tenant.clone(), requests, tokens });
            }
            let before = self.seen.get(&own.tenant).map(|seen| seen.spent_here_at);
            let spent_here_at = before.filter(|_| !was_here).unwrap_or(now);
            self.seen.insert(own.tenant.clone(), Seen { total, spent_here_at });
        }
        self.seen.retain(|_, seen| now.duration_since(seen.spent_here_at) < FOLLOWED);
        others
    }
}

fn sum(a: &Spent, b: &Spent) -> Spent {
    Spent { tenant: a.tenant.clone(), requests: a.requests + b.requests, tokens: a.tokens + b.tokens }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spent(requests: i64, tokens: i64) -> Spent {
        Spent { tenant: "t".to_owned(), requests, tokens }
    }

    /// A store that only adds.
    fn round(spending: &mut Spending, store: &mut Spent, now: Instant) -> Vec<Spent> {
        let told = spending.to_tell();
        let totals = told.iter().map(|own| {
            *store = sum(store, own);
            store.clone()
        });
        let totals: Vec<_> = totals.collect();
        spending.told(&told, totals, now)
    }

    #[test]
    fn what_another_spent_is_heard_once() {
        let (mut a, mut b, mut store) = (Spending::default(), Spending::default(), spent(0, 0));
        let now = Instant::now();
        for gateway in [&mut a, &mut b] {
            gateway.add(vec![spent(1, 10)]);
            assert_eq!(round(gateway, &mut store, now), vec![]);
        }
        b.add(vec![spent(2, -5)]);
        assert_eq!(round(&mut b, &mut store, now), vec![]);
        assert_eq!(round(&mut a, &mut store, now), vec![spent(3, 5)]);
        assert_eq!(round(&mut a, &mut store, now), vec![]);
    }

    #[test]
    fn a_store_that_forgot_is_no_refund() {
        let (mut a, mut store) = (Spending::default(), spent(0, 0));
        let now = Instant::now();
        a.add(vec![spent(5, 50)]);
        round(&mut a, &mut store, now);
        store = spent(1, 7);
        a.add(vec![spent(1, 10)]);
        assert_eq!(round(&mut a, &mut store, now), vec![spent(1, 7)]);
    }

    #[test]
    fn an_outage_keeps_what_was_not_told() {
        let (mut a, mut store) = (Spending::default(), spent(0, 0));
        a.add(vec![spent(1, 10)]);
        let _lost = a.to_tell();
        a.add(vec![spent(1, 10)]);
        round(&mut a, &mut store, Instant::now());
        assert_eq!(store, spent(2, 20));
    }

    #[test]
    fn a_tenant_that_went_away_is_no_longer_followed() {
        let (mut a, mut store) = (Spending::default(), spent(0, 0));
        let now = Instant::now();
        a.add(vec![spent(1, 10)]);
        round(&mut a, &mut store, now);
        assert_eq!(a.to_tell().len(), 1);
        round(&mut a, &mut store, now + FOLLOWED);
        assert_eq!(a.to_tell().len(), 0);
    }

    proptest! {
        #[test]
        fn two_gateways_hear_all_of_each_other(ops in prop::collection::vec((0usize..2, 1i64..5, -9i64..9), 1..60)) {
            let (mut both, mut store) = ([Spending::default(), Spending::default()], spent(0, 0));
            let now = Instant::now();
            // Both know the tenant.
            for gateway in &mut both {
                gateway.add(vec![spent(1, 0)]);
                round(gateway, &mut store, now);
            }
            let (mut own, mut heard) = ([spent(0, 0), spent(0, 0)], [spent(0, 0), spent(0, 0)]);
            let mut listen = |both: &mut [Spending; 2], heard: &mut [Spent; 2], at: usize| {
                for other in round(&mut both[at], &mut store, now) {
                    heard[at] = sum(&heard[at], &other);
                }
            };
            for (at, requests, tokens) in ops {
                both[at].add(vec![spent(requests, tokens)]);
                own[at] = sum(&own[at], &spent(requests, tokens));
                listen(&mut both, &mut heard, at);
            }
            for at in [0, 1] {
                listen(&mut both, &mut heard, at);
            }
            // The second one's first request came after the first had looked.
            prop_assert_eq!(&heard[0], &sum(&own[1], &spent(1, 0)));
            prop_assert_eq!(&heard[1], &own[0]);
        }
    }
}
