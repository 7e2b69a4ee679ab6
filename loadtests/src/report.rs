//! What users felt: one record a request, and what all records say together.

pub mod compare;
pub mod html;
pub mod plot;
pub mod run;
pub mod text;
pub mod vllm;
pub mod warning;

use std::fmt;
use std::time::Duration;

use shared::slo::Slo;
use shared::time::Instant;

use crate::exchange::{Exchange, Failure};

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Ended {
    /// Its answer is whole.
    Answered,
    /// Told to come back later.
    Refused,
    /// Nobody was there.
    NoReplica,
    /// An error before the first token.
    Failed,
    /// An error after the first token.
    Cut,
    /// The client's patience ended.
    TimedOut,
}

/// One request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// When it was meant to be sent.
    pub intended: Instant,
    /// When its first token came.
    pub first_token: Option<Instant>,
    /// When it ended.
    pub end: Instant,
    /// How.
    pub ended: Ended,
    /// Tokens of its prompt.
    pub prompt_tokens: u32,
    /// Of these, found in a cache.
    pub cached_tokens: u32,
    /// Tokens of its answer.
    pub answer_tokens: u32,
    /// Who answered.
    pub replica: Option<u32>,
}

impl Record {
    /// A request that has just been sent.
    pub fn new(intended: Instant) -> Self {
        Self {
            intended,
            first_token: None,
            end: intended,
            ended: Ended::TimedOut,
            prompt_tokens: 0,
            cached_tokens: 0,
            answer_tokens: 0,
            replica: None,
        }
    }

    /// Time to the first token.
    pub fn ttft(&self) -> Option<Duration> {
        self.first_token.map(|first| first.since(self.intended))
    }

    /// Mean time per later token; zero where there are none.
    pub fn tpot(&self) -> Option<Duration> {
        let first = self.first_token?;
        let later = self.answer_tokens.saturating_sub(1);
        Some(if later == 0 { Duration::ZERO } else { self.end.since(first) / later })
    }

    /// Whether it was answered within the SLO.
    pub fn is_good(&self, slo: Slo) -> bool {
        let times = self.ttft().zip(self.tpot()).filter(|_| self.ended == Ended::Answered);
        times.is_some_and(|(ttft, tpot)| slo.is_met(ttft, tpot))
    }
}

/// Times count from virtual zero.
impl From<&Record> for Exchange {
    fn from(record: &Record) -> Self {
        let seconds = |at: Instant| at.since(Instant::ZERO).as_secs_f64();
        let failure = match record.ended {
            Ended::Answered => None,
            Ended::Refused => Some(Failure::Refused),
            Ended::NoReplica | Ended::Failed => Some(Failure::Status),
            Ended::Cut => Some(Failure::InStream),
            Ended::TimedOut => Some(Failure::TimedOut),
        };
        Self {
            intended_s: seconds(record.intended),
            sent_s: seconds(record.intended),
            first_chunk_s: record.first_token.map(seconds),
            first_token_s: record.first_token.map(seconds),
            end_s: seconds(record.end),
            prompt_tokens: record.prompt_tokens,
            cached_tokens: Some(record.cached_tokens),
            answer_tokens: record.answer_tokens,
            replica: record.replica.map(|replica| format!("replica-{replica}")),
            failure,
            ..Self::default()
        }
    }
}

/// All records together.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Summary {
    /// Requests sent.
    pub requests: usize,
    /// Of these, by how they ended: answered, refused, nobody there, failed, cut, timed out.
    pub ends: [usize; 6],
    /// Share of prompt tokens found in a cache, of requests that were answered.
    pub hit_rate: f64,
    /// Time to the first token: median, 99th percentile.
    pub ttft: (Duration, Duration),
    /// Time per later token: median, 99th percentile.
    pub tpot: (Duration, Duration),
    /// Answers within the SLO, a second.
    pub goodput_per_s: f64,
}

impl Summary {
    /// Of a run that took `span`.
    pub fn of(records: &[Record], slo: Slo, span: Duration) -> Self {
        let mut ends = [0; 6];
        for record in records {
            ends[record.ended as usize] += 1;
        }
        let answered = || records.iter().filter(|record| record.ended == Ended::Answered);
        let sum = |of: fn(&Record) -> u32| answered().map(|record| u64::from(of(record))).sum::<u64>();
        let good = records.iter().filter(|record| record.is_good(slo)).count();
        Self {
            requests: records.len(),
            ends,
            hit_rate: sum(|record| record.cached_tokens) as f64
                / sum(|record| record.prompt_tokens).max(1) as f64,
            ttft: percentiles(answered().filter_map(Record::ttft)),
            tpot: percentiles(answered().filter(|record| record.answer_tokens > 1).filter_map(Record::tpot)),
            goodput_per_s: good as f64 / span.as_secs_f64().max(1e-9),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [answered, refused, nobody, failed, cut, late] = self.ends;
        writeln!(f, "requests       {}", self.requests)?;
        writeln!(f, "answered       {answered}")?;
        writeln!(
            f,
            "not answered   {refused} refused, {nobody} no replica, {failed} failed, {cut} cut, {late} timed out"
        )?;
        writeln!(f, "prefix hits    {:.1} % of prompt tokens", self.hit_rate * 100.0)?;
        writeln!(f, "TTFT           P50 {}  P99 {}", ms(self.ttft.0), ms(self.ttft.1))?;
        writeln!(f, "TPOT           P50 {}  P99 {}", ms(self.tpot.0), ms(self.tpot.1))?;
        write!(f, "goodput        {:.2} requests/s", self.goodput_per_s)
    }
}

/// Milliseconds, for people.
pub fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

/// Median and 99th percentile, by nearest rank.
fn percentiles(times: impl Iterator<Item = Duration>) -> (Duration, Duration) {
    let mut times: Vec<_> = times.collect();
    times.sort_unstable();
    let at = |percent: usize| {
        let rank = (times.len() * percent).div_ceil(100).max(1) - 1;
        times.get(rank).copied().unwrap_or_default()
    };
    (at(50), at(99))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(ttft_ms: u64, answer_tokens: u32, end_ms: u64, ended: Ended) -> Record {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        Record {
            first_token: Some(at(ttft_ms)),
            end: at(end_ms),
            ended,
            prompt_tokens: 100,
            cached_tokens: 40,
            answer_tokens,
            ..Record::new(Instant::ZERO)
        }
    }

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let times = |count: u64| percentiles((1..=count).map(Duration::from_millis));
        assert_eq!(times(100), (Duration::from_millis(50), Duration::from_millis(99)));
        assert_eq!(times(1), (Duration::from_millis(1), Duration::from_millis(1)));
        assert_eq!(times(0), (Duration::ZERO, Duration::ZERO));
    }

    #[test]
    fn goodput_counts_whole_answers_in_time() {
        let slo = Slo { ttft: Duration::from_millis(100), tpot: Duration::from_millis(10) };
        let records = [
            record(100, 11, 200, Ended::Answered),
            record(101, 11, 200, Ended::Answered),
            record(100, 11, 201, Ended::Answered),
            record(50, 11, 100, Ended::Cut),
            record(50, 1, 50, Ended::Answered),
        ];
        let summary = Summary::of(&records, slo, Duration::from_secs(2));
        assert!((summary.goodput_per_s - 1.0).abs() < 1e-9);
        assert!((summary.hit_rate - 0.4).abs() < 1e-9);
        assert_eq!(summary.ends, [4, 0, 0, 0, 1, 0]);
    }
}
