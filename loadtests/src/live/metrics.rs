//! What replicas say of themselves in `/metrics` while a run goes on.

use std::time::Duration;

use bytes::Bytes;
use http::Method;

use super::target::Target;

/// Between two looks.
const PERIOD: Duration = Duration::from_secs(1);

/// Counters of prefix hits, summed over the replicas asked, and the KV watermark.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Seen {
    queries: f64,
    hits: f64,
    /// Highest share of a KV pool in use; none where nobody tells.
    pub kv_usage_max: Option<f64>,
}

impl Seen {
    /// One replica's page.
    fn add(&mut self, page: &str) {
        for line in page.lines().filter(|line| !line.starts_with('#')) {
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            let Ok(value) = value.parse::<f64>() else { continue };
            match series.split('{').next() {
                Some("vllm:prefix_cache_queries_total") => self.queries += value,
                Some("vllm:prefix_cache_hits_total") => self.hits += value,
                Some("vllm:kv_cache_usage_perc") => {
                    self.kv_usage_max = Some(self.kv_usage_max.unwrap_or(0.0).max(value));
                }
                _ => {}
            }
        }
    }

    /// Share of prompt tokens found in a cache between two looks. None where nobody counts.
    pub fn hit_rate_since(&self, before: &Self) -> Option<f64> {
        let queries = self.queries - before.queries;
        (queries > 0.0).then(|| (self.hits - before.hits) / queries)
    }
}

/// Looks once; who doesn't answer is left out, and named.
pub async fn look(target: &Target, addresses: &[String]) -> (Seen, Vec<String>) {
    let (mut seen, mut faults) = (Seen::default(), Vec::new());
    for address in addresses {
        let base = address.trim_end_matches('/');
        let uri = if base.ends_with("/metrics") { base.to_owned() } else { format!("{base}/metrics") };
        match target.call(Method::GET, &uri, Bytes::new()).await {
            Ok(page) => seen.add(&String::from_utf8_lossy(&page)),
            Err(fault) => faults.push(fault),
        }
    }
    (seen, faults)
}

/// Looks again and again until dropped; keeps the watermark.
pub async fn watch(target: &Target, addresses: &[String], kv_usage_max: &std::sync::Mutex<Option<f64>>) {
    loop {
        let (seen, _) = look(target, addresses).await;
        if let Some(usage) = seen.kv_usage_max {
            let mut highest = kv_usage_max.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            *highest = Some(highest.unwrap_or(0.0).max(usage));
        }
        tokio::time::sleep(PERIOD).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_summed_and_usage_is_the_highest() {
        let page = |queries: u32, hits: u32, usage: f64| {
            format!(
                "# TYPE x counter\nvllm:prefix_cache_queries_total{{engine=\"0\"}} {queries}\n\
                 vllm:prefix_cache_hits_total{{engine=\"0\"}} {hits}\nvllm:kv_cache_usage_perc {usage}\nother 3\n"
            )
        };
        let (mut before, mut after) = (Seen::default(), Seen::default());
        before.add(&page(100, 50, 0.1));
        after.add(&page(200, 110, 0.4));
        after.add(&page(100, 90, 0.2));
        assert_eq!(after.hit_rate_since(&before), Some(0.75));
        assert_eq!(after.kv_usage_max, Some(0.4));
        assert_eq!(before.hit_rate_since(&before), None);
    }
}
