//! What to ask: a scenario file, a trace, recorded conversations, or a workload by its name.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use rustc_hash::FxHashMap;

use crate::sim::scenario::Scenario;
use crate::workload::{Arrivals, Kind, Range, Session, Workload, read_mooncake, read_sharegpt};

/// Workloads that have a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Name {
    /// Prompts that share nothing.
    Random,
    /// Questions after one of several long shared texts.
    SharedPrefix,
    /// Conversations of several turns under shared system prompts.
    MultiTurn,
    /// Loops that call tools: transcripts that grow fast.
    Agents,
}

/// What to ask.
#[derive(Args, Clone, Debug)]
pub struct Demand {
    /// A workload by its name.
    #[arg(long, value_enum, default_value = "random")]
    pub workload: Name,
    /// A scenario file of the simulation: its workload and SLO.
    #[arg(long, conflicts_with_all = ["trace", "sharegpt"])]
    pub scenario: Option<PathBuf>,
    /// A trace in Mooncake's format; its own times unless a rate is given.
    #[arg(long, conflicts_with = "sharegpt")]
    pub trace: Option<PathBuf>,
    /// Conversations in `ShareGPT`'s format.
    #[arg(long)]
    pub sharegpt: Option<PathBuf>,
    /// Sessions; one of a single turn is a request.
    #[arg(long, default_value_t = 200)]
    pub num_prompts: u32,
    /// Tokens of a request's new text: N, or FROM-TO.
    #[arg(long, default_value = "128", value_parser = range)]
    pub input_len: Range,
    /// Tokens of an answer: N, or FROM-TO.
    #[arg(long, default_value = "64", value_parser = range)]
    pub output_len: Range,
    /// Tokens of a shared text: N, or FROM-TO.
    #[arg(long, default_value = "512", value_parser = range)]
    pub prefix_len: Range,
    /// Distinct shared texts.
    #[arg(long, default_value_t = 10)]
    pub num_prefixes: u32,
    /// How unequal shared texts are used: 0 evenly, 1 as words in a language.
    #[arg(long, default_value_t = 0.0, value_parser = zipf)]
    pub zipf: f64,
    /// Requests of a session: N, or FROM-TO.
    #[arg(long, default_value = "4", value_parser = range)]
    pub turns: Range,
    /// Milliseconds before a session's next request: N, or FROM-TO.
    #[arg(long, default_value = "1000", value_parser = range)]
    pub think_ms: Range,
    /// Where all chance comes from.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Sessions with what belongs to them.
#[derive(Debug)]
pub struct Asked {
    /// In the order of their starts.
    pub sessions: Vec<Session>,
    /// Texts that are given whole.
    pub texts: FxHashMap<u64, String>,
    /// In words.
    pub about: String,
    /// The workload that, with the seed, gives them: where they come at a rate and not from a file of requests.
    pub workload: Option<Workload>,
}

impl Demand {
    /// The scenario, where one is named.
    pub fn scenario(&self) -> Result<Option<Scenario>, String> {
        let read = |path: &PathBuf| Scenario::read(path).map_err(|error| error.to_string());
        self.scenario.as_ref().map(read).transpose()
    }

    /// Its sessions. Without arrivals those of the file, or all at once.
    pub fn ask(&self, arrivals: Option<Arrivals>, count: u32) -> Result<Asked, String> {
        let text = |path: &PathBuf| {
            std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
        };
        if let Some(path) = &self.trace {
            let mut sessions = read_mooncake(&text(path)?).map_err(|e| format!("{}: {e}", path.display()))?;
            sessions.truncate(count as usize);
            return Ok(self.asked(sessions, FxHashMap::default(), arrivals, path.display().to_string()));
        }
        if let Some(path) = &self.sharegpt {
            let read = read_sharegpt(&text(path)?, count as usize);
            let (sessions, texts) = read.map_err(|error| format!("{}: {error}", path.display()))?;
            return Ok(self.asked(sessions, texts, arrivals, path.display().to_string()));
        }
        let (workload, about) = match self.scenario()? {
            Some(scenario) => (scenario.workload, scenario.about),
            None => (self.named(), format!("{:?}", self.workload)),
        };
        let workload = Workload { sessions: count, ..workload };
        let Some(arrivals) = arrivals else {
            let sessions = workload.sessions(self.seed);
            return Ok(Asked { sessions, texts: FxHashMap::default(), about, workload: None });
        };
        let workload = Workload { arrivals, ..workload };
        let sessions = workload.sessions_apart(self.seed);
        Ok(Asked { sessions, texts: FxHashMap::default(), about, workload: Some(workload) })
    }

    fn asked(
        &self,
        mut sessions: Vec<Session>,
        texts: FxHashMap<u64, String>,
        arrivals: Option<Arrivals>,
        about: String,
    ) -> Asked {
        if let Some(arrivals) = arrivals {
            let starts = arrivals.starts_of_seed(sessions.len() as u32, self.seed);
            for (session, start) in sessions.iter_mut().zip(starts) {
                session.start = start;
            }
        }
        Asked { sessions, texts, about, workload: None }
    }

    fn named(&self) -> Workload {
        let kind = match self.workload {
            Name::Random => Kind::Unrelated { prompt_tokens: self.input_len, answer_tokens: self.output_len },
            Name::SharedPrefix => Kind::Rag {
                documents: self.num_prefixes,
                zipf: self.zipf,
                document_tokens: self.prefix_len,
                question_tokens: self.input_len,
                answer_tokens: self.output_len,
            },
            Name::MultiTurn => Kind::Chat {
                systems: self.num_prefixes,
                zipf: self.zipf,
                system_tokens: self.prefix_len,
                turns: self.turns,
                user_tokens: self.input_len,
                answer_tokens: self.output_len,
                think_ms: self.think_ms,
            },
            Name::Agents => Kind::Agents {
                system_tokens: self.prefix_len,
                turns: self.turns,
                tool_tokens: self.input_len,
                answer_tokens: self.output_len,
                tool_ms: self.think_ms,
            },
        };
        Workload { sessions: self.num_prompts, arrivals: Arrivals::AT_ONCE, kind }
    }
}

fn range(text: &str) -> Result<Range, String> {
    let number = |text: &str| text.parse::<u32>().map_err(|_| "give N or FROM-TO".to_owned());
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let range = Range(number(from)?, number(to)?);
    if range.0 > range.1 || range.1 == 0 {
        Err("give N or FROM-TO, more than 0".to_owned())
    } else {
        Ok(range)
    }
}

fn zipf(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|value| (0.0..=10.0).contains(value));
    value.ok_or_else(|| "give a number from 0 to 10".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_one_number_or_two() {
        assert_eq!(range("7"), Ok(Range(7, 7)));
        assert_eq!(range("7-9"), Ok(Range(7, 9)));
        for wrong in ["", "9-7", "0", "-1", "4k", "1e9", "NaN", "7-"] {
            assert!(range(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_exponent_is_in_its_range() {
        assert_eq!(zipf("0.9"), Ok(0.9));
        for wrong in ["-1", "NaN", "inf", "x"] {
            assert!(zipf(wrong).is_err(), "{wrong}");
        }
    }
}
