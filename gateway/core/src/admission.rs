//! May this tenant start another request now?
//!
//! Per tenant: requests a minute, tokens a minute, requests at once. Tokens are reserved by estimate and settled by
//! what the answer really took. It knows tenants by number and nothing of keys, replicas or queues.

use std::collections::BTreeMap;
use std::time::Duration;

use shared::time::Instant;

use crate::belief::Belief;

/// A tenant inside one gateway.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TenantId(pub u32);

/// How much a tenant may have; `None` is without limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Allowance {
    /// Requests a minute.
    pub requests_per_min: Option<u32>,
    /// Tokens a minute, prompt and answer.
    pub tokens_per_min: Option<u32>,
    /// Requests at once.
    pub requests_max: Option<u32>,
}

/// Which limit was met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// Requests a minute.
    Requests,
    /// Tokens a minute.
    Tokens,
    /// Requests at once.
    Concurrency,
}

/// Not now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Denied {
    /// The limit that was met.
    pub limit: Limit,
    /// When it may work.
    pub retry_after: Duration,
}

/// Leave for one request; it goes back by [`Admission::finish`].
#[must_use = "a permit that is not given back counts for ever"]
#[derive(Debug)]
pub struct Permit {
    tenant: TenantId,
    tokens: u32,
    began: Instant,
}

/// One limit as OpenAI's `x-ratelimit-*` headers tell it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    /// A minute's worth.
    pub limit: u32,
    /// Left now.
    pub remaining: u32,
    /// Time until all of it is there again.
    pub reset_after: Duration,
}

/// All tenants of one gateway.
#[derive(Clone, Debug, Default)]
pub struct Admission {
    tenants: BTreeMap<TenantId, Tenant>,
}

#[derive(Clone, Debug)]
struct Tenant {
    requests: Option<Bucket>,
    tokens: Option<Bucket>,
    requests_max: Option<u32>,
    running: u32,
    duration_s: Belief,
    /// Requests and tokens that other gateways have not heard of.
    untold: (i64, i64),
}

impl Admission {
    /// Adds a tenant or changes its allowance. What runs keeps running; a bucket that stays keeps its level.
    pub fn set(&mut self, tenant: TenantId, allowance: Allowance, now: Instant) {
        let known = self.tenants.get(&tenant);
        let bucket = |old: Option<Bucket>, per_min: Option<u32>| {
            per_min.map(|per_min| match old {
                Some(bucket) if bucket.per_min == per_min => bucket,
                _ => Bucket::full(per_min, now),
            })
        };
        let new = Tenant {
            requests: bucket(known.and_then(|tenant| tenant.requests), allowance.requests_per_min),
            tokens: bucket(known.and_then(|tenant| tenant.tokens), allowance.tokens_per_min),
            requests_max: allowance.requests_max,
            running: known.map_or(0, |tenant| tenant.running),
            duration_s: known.map(|tenant| tenant.duration_s).unwrap_or_default(),
            untold: known.map_or((0, 0), |tenant| tenant.untold),
        };
        self.tenants.insert(tenant, new);
    }

    /// Forgets tenants that are no longer there. Permits still out may come back later all the same.
    pub fn retain(&mut self, is_there: impl Fn(TenantId) -> bool) {
        self.tenants.retain(|id, _| is_there(*id));
    }

    /// Asks for leave to start a request of about so many tokens. Tenants without an entry have no limits.
    ///
    /// # Errors
    ///
    /// [`Denied`] names the limit and when to come back; nothing is taken then.
    pub fn admit(&mut self, tenant: TenantId, tokens: u32, now: Instant) -> Result<Permit, Denied> {
        let permit = Permit { tenant, tokens, began: now };
        let Some(tenant) = self.tenants.get_mut(&tenant) else { return Ok(permit) };
        if tenant.requests_max.is_some_and(|max| tenant.running >= max) {
            return Err(Denied { limit: Limit::Concurrency, retry_after: tenant.next_end() });
        }
        let wait = |bucket: Option<Bucket>, amount| bucket.map_or(Duration::ZERO, |b| b.wait(amount, now));
        let waits =
            [(Limit::Requests, wait(tenant.requests, 1)), (Limit::Tokens, wait(tenant.tokens, tokens))];
        if let Some(&(limit, retry_after)) = waits.iter().find(|(_, wait)| !wait.is_zero()) {
            return Err(Denied { limit, retry_after });
        }
        tenant.charge(1, i64::from(tokens), now);
        tenant.tell(1, i64::from(tokens));
        tenant.running += 1;
        Ok(permit)
    }

    /// A request is over; `tokens` is what it really took, `None` where nobody said.
    #[expect(clippy::needless_pass_by_value, reason = "a permit that is taken can't be given back twice")]
    pub fn finish(&mut self, permit: Permit, tokens: Option<u32>, now: Instant) {
        let Some(tenant) = self.tenants.get_mut(&permit.tenant) else { return };
        tenant.running = tenant.running.saturating_sub(1);
        tenant.duration_s.learn(now.since(permit.began).as_secs_f64(), now);
        let more = i64::from(tokens.unwrap_or(permit.tokens)) - i64::from(permit.tokens);
        tenant.charge(0, more, now);
        tenant.tell(0, more);
    }

    /// Other gateways let this much through meanwhile; settling takes back, so it may be negative.
    pub fn absorb(&mut self, tenant: TenantId, requests: i64, tokens: i64, now: Instant) {
        if let Some(tenant) = self.tenants.get_mut(&tenant) {
            tenant.charge(requests, tokens, now);
        }
    }

    /// Requests and tokens of each limited tenant since this was last asked, for the other gateways.
    pub fn take_untold(&mut self) -> Vec<(TenantId, i64, i64)> {
        let untold = self.tenants.iter_mut().filter(|(_, tenant)| tenant.untold != (0, 0));
        let take = |(id, tenant): (&TenantId, &mut Tenant)| {
            let (requests, tokens) = std::mem::take(&mut tenant.untold);
            (*id, requests, tokens)
        };
        untold.map(take).collect()
    }

    /// Where a tenant stands with requests and tokens a minute, where these are limited.
    pub fn standing(&self, tenant: TenantId, now: Instant) -> (Option<Standing>, Option<Standing>) {
        let Some(tenant) = self.tenants.get(&tenant) else { return (None, None) };
        let standing = |bucket: Option<Bucket>| bucket.map(|bucket| bucket.standing(now));
        (standing(tenant.requests), standing(tenant.tokens))
    }

    /// Requests of a tenant that are running.
    pub fn running(&self, tenant: TenantId) -> u32 {
        self.tenants.get(&tenant).map_or(0, |tenant| tenant.running)
    }
}

impl Tenant {
    fn charge(&mut self, requests: i64, tokens: i64, now: Instant) {
        for (bucket, amount) in [(&mut self.requests, requests), (&mut self.tokens, tokens)] {
            if let Some(bucket) = bucket {
                bucket.take(amount as f64, now);
            }
        }
    }

    fn tell(&mut self, requests: i64, tokens: i64) {
        if self.requests.is_some() || self.tokens.is_some() {
            self.untold = (self.untold.0 + requests, self.untold.1 + tokens);
        }
    }

    /// Its requests end one by one, spread over the time one takes.
    fn next_end(&self) -> Duration {
        let seconds = self.duration_s.value().unwrap_or(1.0) / f64::from(self.running.max(1));
        Duration::from_secs_f64(seconds.clamp(0.01, 60.0))
    }
}

/// A minute's worth of something, refilled evenly. It may be owed: then nothing starts until it is paid back.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Bucket {
    per_min: u32,
    level: f64,
    at: Instant,
}

impl Bucket {
    fn full(per_min: u32, now: Instant) -> Self {
        Self { per_min, level: f64::from(per_min), at: now }
    }

    fn level(&self, now: Instant) -> f64 {
        let refilled = now.since(self.at).as_secs_f64() * f64::from(self.per_min) / 60.0;
        (self.level + refilled).min(f64::from(self.per_min))
    }

    fn take(&mut self, amount: f64, now: Instant) {
        self.level = (self.level(now) - amount).min(f64::from(self.per_min));
        self.at = self.at.max(now);
    }

    /// Time until so much may be taken. More than a minute's worth may start from a full bucket, and leaves a debt.
    fn wait(&self, amount: u32, now: Instant) -> Duration {
        let lacking = f64::from(amount.min(self.per_min)) - self.level(now);
        self.time_for(lacking)
    }

    fn standing(&self, now: Instant) -> Standing {
        let level = self.level(now);
        Standing {
            limit: self.per_min,
            remaining: level.max(0.0) as u32,
            reset_after: self.time_for(f64::from(self.per_min) - level),
        }
    }

    fn time_for(&self, amount: f64) -> Duration {
        /// A limit of zero never refills; an hour says "not today" without overflowing a header.
        const LONGEST_S: f64 = 3600.0;
        if amount <= 1e-9 && self.per_min > 0 {
            return Duration::ZERO;
        }
        let seconds = amount * 60.0 / f64::from(self.per_min);
        Duration::from_secs_f64(if seconds.is_finite() { seconds.min(LONGEST_S) } else { LONGEST_S })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TENANT: TenantId = TenantId(1);

    fn admission(
        requests_per_min: Option<u32>,
        tokens_per_min: Option<u32>,
        requests_max: Option<u32>,
    ) -> Admission {
        let mut admission = Admission::default();
        let allowance = Allowance { requests_per_min, tokens_per_min, requests_max };
        admission.set(TENANT, allowance, Instant::ZERO);
        admission
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_tenant_without_limits_is_let_in() {
        assert!(Admission::default().admit(TENANT, u32::MAX, Instant::ZERO).is_ok());
    }

    #[test]
    fn over_the_requests_a_minute_it_says_when_to_come_back() {
        let mut admission = admission(Some(2), None, None);
        for _ in 0..2 {
            let _permit = admission.admit(TENANT, 1, at(0)).unwrap();
        }
        let denied = admission.admit(TENANT, 1, at(0)).unwrap_err();
        assert_eq!(denied, Denied { limit: Limit::Requests, retry_after: Duration::from_secs(30) });
        assert!(admission.admit(TENANT, 1, at(30)).is_ok());
    }

    #[test]
    fn tokens_not_used_come_back_and_tokens_overused_are_owed() {
        let mut admission = admission(None, Some(600), None);
        let permit = admission.admit(TENANT, 600, at(0)).unwrap();
        admission.finish(permit, Some(100), at(0));
        assert_eq!(admission.standing(TENANT, at(0)).1.unwrap().remaining, 500);
        let permit = admission.admit(TENANT, 500, at(0)).unwrap();
        admission.finish(permit, Some(800), at(0));
        let denied = admission.admit(TENANT, 1, at(0)).unwrap_err();
        assert_eq!(denied.limit, Limit::Tokens);
        assert!(denied.retry_after > Duration::from_secs(30));
    }

    #[test]
    fn a_request_larger_than_a_minutes_worth_starts_from_a_full_bucket() {
        let mut admission = admission(None, Some(100), None);
        let _permit = admission.admit(TENANT, 1000, at(0)).unwrap();
        assert!(admission.admit(TENANT, 1, at(60)).is_err());
        assert!(admission.admit(TENANT, 1, at(600)).is_ok());
    }

    #[test]
    fn requests_at_once_are_freed_by_an_end() {
        let mut admission = admission(None, None, Some(1));
        let permit = admission.admit(TENANT, 1, at(0)).unwrap();
        assert_eq!(admission.admit(TENANT, 1, at(0)).unwrap_err().limit, Limit::Concurrency);
        admission.finish(permit, None, at(1));
        assert!(admission.admit(TENANT, 1, at(1)).is_ok());
    }

    #[test]
    fn a_limit_of_zero_denies_everything_for_long() {
        let denied = admission(Some(0), None, None).admit(TENANT, 1, at(0)).unwrap_err();
        assert_eq!(denied.retry_after, Duration::from_hours(1));
    }

    #[test]
    fn what_other_gateways_let_through_counts() {
        let mut admission = admission(Some(10), None, None);
        admission.absorb(TENANT, 10, 0, at(0));
        assert!(admission.admit(TENANT, 1, at(0)).is_err());
    }

    #[test]
    fn what_was_let_through_here_is_told_once() {
        let mut admission = admission(Some(10), None, None);
        let permit = admission.admit(TENANT, 100, at(0)).unwrap();
        assert_eq!(admission.take_untold(), vec![(TENANT, 1, 100)]);
        admission.finish(permit, Some(30), at(0));
        assert_eq!(admission.take_untold(), vec![(TENANT, 0, -70)]);
        assert_eq!(admission.take_untold(), vec![]);
    }

    #[test]
    fn a_permit_of_a_forgotten_tenant_may_come_back() {
        let mut admission = admission(Some(1), None, None);
        let permit = admission.admit(TENANT, 1, at(0)).unwrap();
        admission.retain(|_| false);
        admission.finish(permit, None, at(0));
        assert_eq!(admission.running(TENANT), 0);
    }

    #[test]
    fn a_changed_allowance_keeps_what_runs() {
        let mut admission = admission(None, None, Some(5));
        let permit = admission.admit(TENANT, 1, at(0)).unwrap();
        admission.set(TENANT, Allowance { requests_max: Some(1), ..Allowance::default() }, at(0));
        assert!(admission.admit(TENANT, 1, at(0)).is_err());
        admission.finish(permit, None, at(0));
        assert_eq!(admission.running(TENANT), 0);
    }

    proptest! {
        #[test]
        fn no_minute_lets_more_through_than_two_minutes_worth(
            gaps_ms in prop::collection::vec(0u64..3000, 1..300), per_min in 1u32..100,
        ) {
            let mut admission = admission(Some(per_min), None, None);
            let (mut now, mut admitted) = (Instant::ZERO, Vec::new());
            for gap in gaps_ms {
                now = now + Duration::from_millis(gap);
                if let Ok(permit) = admission.admit(TENANT, 1, now) {
                    admitted.push(now);
                    admission.finish(permit, None, now);
                }
                let last_minute = admitted.iter().filter(|&&then| now.since(then) < Duration::from_mins(1)).count();
                prop_assert!(last_minute <= 2 * per_min as usize);
            }
            prop_assert_eq!(admission.running(TENANT), 0);
        }

        #[test]
        fn a_retry_after_is_honest(tokens in 1u32..1000, spent in 1u32..1000) {
            let mut admission = admission(None, Some(600), None);
            let _first = admission.admit(TENANT, spent, at(0)).unwrap();
            if let Err(denied) = admission.admit(TENANT, tokens, at(0)) {
                let then = at(0) + denied.retry_after + Duration::from_micros(1);
                prop_assert!(admission.admit(TENANT, tokens, then).is_ok());
            }
        }
    }
}
