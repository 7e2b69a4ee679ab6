//! The store of gateways in one process: of a single one, or of several in a test.

use super::{Computed, Cursor, Outage, Spent, Store};
use async_trait::async_trait;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// News kept for gateways that are late.
const NEWS_MAX: usize = 10_000;

/// Everything, behind one lock.
#[derive(Debug, Default)]
pub struct Memory {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    spent: BTreeMap<String, Spent>,
    keys: Option<Vec<u8>>,
    members: BTreeMap<String, Instant>,
    news: VecDeque<Computed>,
    /// News ever published.
    published: u64,
}

impl Memory {
    /// Puts the file of API keys there, as the operator's command does in Redis.
    pub fn set_keys(&self, text: &[u8]) {
        self.with(|inner| inner.keys = Some(text.to_vec()));
    }

    fn with<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        act(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl Store for Memory {
    async fn spend(&self, spent: &[Spent]) -> Result<Vec<Spent>, Outage> {
        Ok(self.with(|inner| {
            let add = |one: &Spent| {
                let total = inner.spent.entry(one.tenant.clone()).or_default();
                total.tenant.clone_from(&one.tenant);
                total.requests += one.requests;
                total.tokens += one.tokens;
                total.clone()
            };
            spent.iter().map(add).collect()
        }))
    }

    async fn keys(&self) -> Result<Option<Vec<u8>>, Outage> {
        Ok(self.with(|inner| inner.keys.clone()))
    }

    async fn announce(&self, url: &str, lease: Duration) -> Result<(), Outage> {
        self.with(|inner| inner.members.insert(url.to_owned(), Instant::now() + lease));
        Ok(())
    }

    async fn withdraw(&self, url: &str) -> Result<(), Outage> {
        self.with(|inner| inner.members.remove(url));
        Ok(())
    }

    async fn members(&self) -> Result<Vec<String>, Outage> {
        let now = Instant::now();
        Ok(self.with(|inner| {
            inner.members.retain(|_, until| *until > now);
            inner.members.keys().cloned().collect()
        }))
    }

    async fn publish(&self, news: &[Computed]) -> Result<(), Outage> {
        self.with(|inner| {
            inner.news.extend(news.iter().cloned());
            inner.published += news.len() as u64;
            let excess = inner.news.len().saturating_sub(NEWS_MAX);
            inner.news.drain(..excess);
        });
        Ok(())
    }

    async fn news(&self, after: &Cursor) -> Result<(Vec<Computed>, Cursor), Outage> {
        Ok(self.with(|inner| {
            let seen = after.0.parse().unwrap_or(inner.published);
            let unseen = inner.published.saturating_sub(seen) as usize;
            let skip = inner.news.len().saturating_sub(unseen);
            (inner.news.iter().skip(skip).cloned().collect(), Cursor(inner.published.to_string()))
        }))
    }
}
