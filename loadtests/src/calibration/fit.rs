//! How fast machines are, from requests of a real run that had their replica to themselves. Pure.

use std::fmt;

use crate::exchange::Exchange;
use crate::report::run::Report;
use crate::statistics::percentile;

/// Fewest requests that tell.
const ALONE_MIN: usize = 8;

/// A replica as requests find it, when as many replicas run as there are cores.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fit {
    /// Seconds of a first token that no prompt token explains.
    pub overhead_s: f64,
    /// Seconds a prompt token takes.
    pub row_s: f64,
    /// Seconds a later token takes.
    pub decode_s: f64,
    /// Requests that told.
    pub alone: usize,
}

impl Fit {
    /// From answered exchanges that name their replica; `cores` replicas run at full speed, more share them.
    pub fn of(exchanges: &[Exchange], cores: f64) -> Result<Self, String> {
        Self::from_alone(&Alone::all(exchanges, cores))
    }

    /// From several runs on the same machines.
    pub fn of_runs(runs: &[Report], cores: f64) -> Result<Self, String> {
        let alone: Vec<_> = runs.iter().flat_map(|run| Alone::all(&run.exchanges, cores)).collect();
        Self::from_alone(&alone)
    }

    fn from_alone(alone: &[Alone]) -> Result<Self, String> {
        if alone.len() < ALONE_MIN {
            return Err(format!(
                "{} requests had their replica to themselves and say which; {ALONE_MIN} are needed",
                alone.len()
            ));
        }
        let (overhead_s, row_s) = line(alone);
        let mut decode: Vec<_> = alone.iter().filter_map(|one| one.decode_s).collect();
        decode.sort_by(f64::total_cmp);
        Ok(Self { overhead_s, row_s, decode_s: percentile(&decode, 50.0), alone: alone.len() })
    }
}

impl fmt::Display for Fit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { overhead_s, row_s, decode_s, alone } = self;
        write!(
            f,
            "overhead {:.1} ms, prompt token {:.3} ms, later token {:.1} ms, from {alone} requests that were alone",
            overhead_s * 1e3,
            row_s * 1e3,
            decode_s * 1e3
        )
    }
}

/// What a request says that had its replica to itself.
struct Alone {
    /// Prompt tokens that were computed, times how much slower than with a core to itself.
    work: f64,
    ttft_s: f64,
    decode_s: Option<f64>,
}

impl Alone {
    fn all(exchanges: &[Exchange], cores: f64) -> Vec<Self> {
        exchanges.iter().filter_map(|one| Self::of(one, exchanges, cores)).collect()
    }

    fn of(one: &Exchange, all: &[Exchange], cores: f64) -> Option<Self> {
        let replica = one.replica.as_ref().filter(|_| one.is_answered())?;
        let first_s = one.first_token_s?;
        let others = all.iter().filter(|other| !std::ptr::eq(*other, one));
        let beside = |other: &Exchange| other.sent_s < one.end_s && one.sent_s < other.end_s;
        if others.clone().any(|other| other.replica.as_ref() == Some(replica) && beside(other)) {
            return None;
        }
        let slowness = |from: f64, to: f64| {
            let shared = |other: &Exchange| (other.end_s.min(to) - other.sent_s.max(from)).max(0.0);
            let busy = 1.0 + others.clone().map(shared).sum::<f64>() / (to - from).max(1e-9);
            (busy / cores).max(1.0)
        };
        let uncached = one.prompt_tokens - one.cached_tokens?.min(one.prompt_tokens);
        Some(Self {
            work: f64::from(uncached) * slowness(one.sent_s, first_s),
            ttft_s: first_s - one.sent_s,
            decode_s: one.tpot_ms().map(|ms| ms / 1e3 / slowness(first_s, one.end_s)),
        })
    }
}

/// The line of least squares: seconds without work, and seconds a token. Neither is less than nothing.
fn line(alone: &[Alone]) -> (f64, f64) {
    let count = alone.len() as f64;
    let mean = |of: fn(&Alone) -> f64| alone.iter().map(of).sum::<f64>() / count;
    let (work, ttft_s) = (mean(|one| one.work), mean(|one| one.ttft_s));
    let spread = alone.iter().map(|one| (one.work - work).powi(2)).sum::<f64>();
    let joint = alone.iter().map(|one| (one.work - work) * (one.ttft_s - ttft_s)).sum::<f64>();
    let row_s = if spread > 0.0 { (joint / spread).max(0.0) } else { 0.0 };
    let overhead_s = ttft_s - row_s * work;
    if overhead_s >= 0.0 { (overhead_s, row_s) } else { (0.0, ttft_s / work.max(1.0)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10 ms and 2 ms a computed token, 20 ms a later token; `slowness` times as long.
    fn exchange(sent_s: f64, replica: &str, uncached: u32, slowness: f64) -> Exchange {
        let first = sent_s + 0.01 + 0.002 * f64::from(uncached) * slowness;
        Exchange {
            intended_s: sent_s,
            sent_s,
            first_token_s: Some(first),
            end_s: first + 0.2 * slowness,
            prompt_tokens: uncached + 32,
            cached_tokens: Some(32),
            answer_tokens: 11,
            replica: Some(replica.to_owned()),
            ..Exchange::default()
        }
    }

    fn check(exchanges: &[Exchange], alone: usize) {
        let fit = Fit::of(exchanges, 1.0).unwrap();
        assert_eq!(fit.alone, alone);
        let close = |value: f64, wanted: f64| (value / wanted - 1.0).abs() < 1e-6;
        assert!(close(fit.overhead_s, 0.01) && close(fit.row_s, 0.002), "{fit:?}");
        assert!(close(fit.decode_s, 0.02), "{fit:?}");
    }

    #[test]
    fn requests_that_were_alone_tell_the_speed() {
        let mut exchanges: Vec<_> =
            (0..10).map(|place| exchange(10.0 * f64::from(place), "a", 50 + 10 * place, 1.0)).collect();
        check(&exchanges, 10);
        // Two that share a replica tell nothing.
        exchanges.push(Exchange { end_s: 107.0, ..exchange(105.0, "a", 50, 1.0) });
        exchanges.push(Exchange { end_s: 109.0, ..exchange(106.0, "a", 500, 1.0) });
        check(&exchanges, 10);
    }

    #[test]
    fn replicas_that_share_a_core_are_as_fast_as_without_the_others() {
        let mut exchanges: Vec<_> =
            (0..10).map(|place| exchange(10.0 * f64::from(place), "a", 50 + 10 * place, 2.0)).collect();
        let busy = exchange(0.0, "b", 50, 1.0);
        exchanges.push(Exchange { end_s: 200.0, cached_tokens: None, ..busy });
        check(&exchanges, 10);
    }

    #[test]
    fn too_few_tell_nothing() {
        let nameless = Exchange { replica: None, ..exchange(0.0, "a", 50, 1.0) };
        assert!(Fit::of(&vec![nameless; 20], 1.0).unwrap_err().contains("0 requests"));
    }
}
