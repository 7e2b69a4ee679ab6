//! A plan for people and for programs. Pure.

use std::fmt::Write;

use serde_json::{Value, json};

use super::layout::{Demand, Group, Layout, Verdict, gib};
use super::measured::Calibration;
use super::memory::{Engine, KvPlan, weight_bytes};
use super::model::Model;
use super::money::Bill;
use super::speed::{Forecast, Load};
use super::weights::Weights;

/// Everything a plan says.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// What is planned.
    pub model: Model,
    /// How its KV is kept.
    pub kv: KvPlan,
    /// What is asked of it.
    pub demand: Demand,
    /// The answer.
    pub layout: Layout,
    /// Speed and cost, where the cards' speed is known.
    pub sizing: Option<Sizing>,
}

/// Speed and cost.
#[derive(Clone, PartialEq, Debug)]
pub struct Sizing {
    /// The load that speed is for.
    pub load: Load,
    /// The roofline, as corrected; absent where nobody knows the cards' speed.
    pub forecast: Option<Forecast>,
    /// How a measurement corrected it.
    pub calibration: Option<Calibration>,
    /// Why the measurement may not be of this demand.
    pub doubt: Option<String>,
    /// Whether `requests_per_s` was measured.
    pub is_measured: bool,
    /// Requests a second of one replica.
    pub requests_per_s: f64,
    /// Replicas for the rate that was asked for.
    pub replicas_for_rate: Option<u32>,
    /// The SLO.
    pub ttft_ms: Option<f64>,
    /// The SLO.
    pub tpot_ms: Option<f64>,
    /// What it costs.
    pub bill: Option<Bill>,
}

impl Report {
    /// For people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        self.model_lines(&mut text);
        let _ = writeln!(text, "verdict   {}", self.verdict());
        let _ = writeln!(text, "rule      {}", self.layout.rule);
        for group in &self.layout.groups {
            let _ = writeln!(text, "layout    {}", group_line(group));
        }
        if let Some(sizing) = &self.sizing {
            sizing.lines(&mut text);
        }
        for line in &self.layout.rejected {
            let _ = writeln!(text, "rejected  {line}");
        }
        for line in &self.layout.advice {
            let _ = writeln!(text, "advice    {line}");
        }
        text.trim_end().to_owned()
    }

    fn model_lines(&self, text: &mut String) {
        let model = &self.model;
        let _ = writeln!(
            text,
            "model     {}: {:.2} B parameters ({:.2} B a token), {} of weights, {} bytes of KV a token",
            model.name,
            model.parameters as f64 / 1e9,
            model.active_parameters as f64 / 1e9,
            gib(model.weight_bytes),
            self.kv.token_bytes(model, 1),
        );
        if model.has_windows() && self.kv.engine == Engine::Flotilla {
            let _ = writeln!(text, "          our replica keeps all tokens in window layers too");
        }
        // KV tokens by weight format show what quantising buys (U130).
        for group in self.layout.groups.iter().take(1) {
            let formats = [Weights::Bf16, Weights::Int8, Weights::Int4].map(|weights| {
                let other = model.clone().stored_as(weights);
                let free = group
                    .memory
                    .usable
                    .saturating_sub(weight_bytes(&other, group.ranks) + group.memory.overhead);
                let tokens = free / self.kv.token_bytes(model, group.ranks).max(1);
                format!("{} {tokens}", weights.word())
            });
            let _ = writeln!(text, "          KV tokens a replica by weights: {}", formats.join(", "));
        }
    }

    fn verdict(&self) -> String {
        let held: u32 = self.layout.groups.iter().map(|group| group.replicas * group.memory.sequences).sum();
        let replicas: u32 = self.layout.groups.iter().map(|group| group.replicas).sum();
        let needed: u32 = self.layout.groups.iter().map(|group| group.needed).sum();
        let ranks = self.layout.groups.first().map_or(0, |group| group.ranks);
        match self.layout.verdict {
            Verdict::NeedsNoMore => {
                format!("needs no more cards: {needed} of {replicas} possible replicas hold the demand")
            }
            Verdict::Fits => format!("fits: {needed} replicas, one a card"),
            Verdict::Split => {
                format!("doesn't fit one card: TP={ranks}, {needed} of {replicas} groups hold the demand")
            }
            Verdict::SplitBadly => format!(
                "doesn't fit one card, and these have no fast link: {needed} of {replicas} groups hold the demand"
            ),
            Verdict::Short => {
                format!("short: all {replicas} replicas hold {held} of {} sequences", self.demand.concurrency)
            }
            Verdict::Impossible => "doesn't run on these cards".to_owned(),
        }
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let model = &self.model;
        json!({
            "model": {
                "name": model.name, "architecture": model.architecture(), "parameters": model.parameters,
                "active_parameters": model.active_parameters, "weight_bytes": model.weight_bytes,
                "kv_token_bytes": self.kv.token_bytes(model, 1), "context_tokens": model.context_tokens,
            },
            "demand": {"context_tokens": self.demand.context_tokens, "concurrency": self.demand.concurrency},
            "verdict": word(self.layout.verdict),
            "says": self.verdict(),
            "rule": self.layout.rule,
            "groups": self.layout.groups.iter().map(group_json).collect::<Vec<_>>(),
            "speed": self.sizing.as_ref().map(Sizing::json),
            "rejected": self.layout.rejected,
            "advice": self.layout.advice,
        })
    }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::NeedsNoMore => "needs_no_more",
        Verdict::Fits => "fits",
        Verdict::Split => "split",
        Verdict::SplitBadly => "split_badly",
        Verdict::Short => "short",
        Verdict::Impossible => "impossible",
    }
}

fn group_line(group: &Group) -> String {
    let shape = match (group.ranks, group.stages) {
        (1, 1) => "one card each".to_owned(),
        (ranks, 1) => format!("TP={ranks}"),
        (ranks, stages) => format!("TP={ranks} × PP={stages}"),
    };
    let left = group.cards - group.replicas * group.ranks * group.stages;
    let memory = &group.memory;
    format!(
        "{} replicas of {shape} on {} {} ({left} left over); each holds {} KV tokens, {} sequences of full length",
        group.replicas, group.cards, group.card.name, memory.kv_tokens, memory.sequences
    )
}

fn group_json(group: &Group) -> Value {
    let memory = &group.memory;
    json!({
        "card": group.card.name, "cards": group.cards, "tensor_parallel_size": group.ranks,
        "pipeline_parallel_size": group.stages, "replicas": group.replicas, "replicas_needed": group.needed,
        "rank": {
            "usable_bytes": memory.usable, "weight_bytes": memory.weights, "overhead_bytes": memory.overhead,
            "kv_bytes": memory.kv,
        },
        "kv_tokens": memory.kv_tokens, "sequences": memory.sequences,
    })
}

impl Sizing {
    fn lines(&self, text: &mut String) {
        if let Some(forecast) = &self.forecast {
            self.forecast_lines(forecast, text);
        }
        if let Some(calibration) = &self.calibration {
            let _ = writeln!(
                text,
                "measured  a token takes {:.2} of the roofline's time, a first one {:.2}; the forecast is corrected by that",
                calibration.tpot, calibration.ttft
            );
        }
        if let Some(doubt) = &self.doubt {
            let _ = writeln!(text, "measured  {doubt}");
        }
        if let Some(replicas) = self.replicas_for_rate {
            let how = if self.is_measured { "measured" } else { "forecast" };
            let _ = writeln!(
                text,
                "rate      {replicas} replicas at {:.2} requests/s each ({how}) with headroom; one more survives the loss of one",
                self.requests_per_s
            );
        }
        if let Some(bill) = &self.bill {
            let cost = bill.cost();
            let at_demand =
                cost.million_at_demand.map_or_else(String::new, |cost| format!(", {cost:.2} at the demand"));
            let _ = writeln!(
                text,
                "cost      {:.2} an hour for {} cards; {:.2} a million answer tokens when busy{at_demand}; {}",
                cost.hour,
                bill.cards,
                cost.million_busy,
                bill.of_more_cards()
            );
        }
    }

    fn forecast_lines(&self, forecast: &Forecast, text: &mut String) {
        let _ = writeln!(
            text,
            "forecast  {} sequences: {:.1} ms a token, {:.0} tokens/s a replica; alone {:.1} ms a token; \
             a prompt of {} waits {:.0} ms{}",
            self.load.sequences,
            forecast.tpot_ms,
            forecast.decode_tokens_per_s,
            forecast.tpot_alone_ms,
            self.load.prompt_tokens,
            forecast.ttft_ms,
            talk(forecast.talk),
        );
        for (name, target, found) in
            [("TTFT", self.ttft_ms, forecast.ttft_ms), ("TPOT", self.tpot_ms, forecast.tpot_ms)]
        {
            if let Some(target) = target {
                let word = if found <= target { "within" } else { "over" };
                let _ = writeln!(text, "slo       {name} {found:.0} ms is {word} {target:.0} ms");
            }
        }
    }

    fn json(&self) -> Value {
        let of = |value: fn(&Forecast) -> f64| self.forecast.as_ref().map(value);
        json!({
            "sequences": self.load.sequences, "prompt_tokens": self.load.prompt_tokens,
            "tpot_ms": of(|forecast| forecast.tpot_ms), "tpot_alone_ms": of(|forecast| forecast.tpot_alone_ms),
            "ttft_ms": of(|forecast| forecast.ttft_ms),
            "decode_tokens_per_s": of(|forecast| forecast.decode_tokens_per_s),
            "prefill_tokens_per_s": of(|forecast| forecast.prefill_tokens_per_s),
            "calibration": self.calibration.map(|by| json!({"tpot": by.tpot, "ttft": by.ttft})),
            "doubt": self.doubt,
            "requests_per_s": self.requests_per_s, "is_measured": self.is_measured,
            "replicas_for_rate": self.replicas_for_rate,
            "cost": self.bill.map(|bill| {
                let cost = bill.cost();
                json!({"cards": bill.cards, "per_hour": cost.hour, "per_million_busy": cost.million_busy,
                    "per_million_at_demand": cost.million_at_demand, "of_more_cards": bill.of_more_cards()})
            }),
        })
    }
}

fn talk(part: f64) -> String {
    if part < 0.01 { String::new() } else { format!("; ranks talk {:.0} % of a step", part * 100.0) }
}
