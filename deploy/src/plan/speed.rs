//! How fast a replica would be: a roofline over bandwidth, arithmetic and links. Pure, and a forecast: a measured
//! capacity replaces it.

use replica_core::capacity::{StepShape, TimeModel};

use super::cards::{Card, Link};
use super::memory::{KvPlan, weight_bytes};
use super::model::Model;

/// Part of the bandwidth on the sheet that decoding reaches.
const BANDWIDTH_REACHED: f64 = 0.8;
/// Part of the arithmetic on the sheet that prefill reaches.
const ARITHMETIC_REACHED: f64 = 0.5;
/// Bytes a second of a PCIe 4 x16 link, one way.
const PCIE: f64 = 21e9;
/// The same through the host's memory.
const PCIE_HOST: f64 = 10e9;

/// What one replica of so many ranks would do.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Forecast {
    /// Time of a token when `sequences` decode together.
    pub tpot_ms: f64,
    /// Time of a token when one sequence decodes alone.
    pub tpot_alone_ms: f64,
    /// Wait for the first token when nothing else runs.
    pub ttft_ms: f64,
    /// Answer tokens a second over all sequences.
    pub decode_tokens_per_s: f64,
    /// Prompt tokens a second when nothing else runs.
    pub prefill_tokens_per_s: f64,
    /// Part of a decode step that ranks spend talking to each other.
    pub talk: f64,
}

/// The load a forecast is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// Sequences that decode together.
    pub sequences: u32,
    /// Tokens each of them looks back over.
    pub context_tokens: u32,
    /// Tokens of a prompt.
    pub prompt_tokens: u32,
}

/// Seconds that `ranks` spend on the two all-reduces of every layer for so many rows.
fn talk_seconds(model: &Model, link: Link, ranks: u32, rows: u32) -> f64 {
    if ranks <= 1 {
        return 0.0;
    }
    let (bytes_per_s, start_s) = match link {
        Link::Nvlink { cards, bytes_per_s } if ranks <= cards => (bytes_per_s, 8e-6),
        Link::Nvlink { .. } | Link::Pcie => (PCIE, 30e-6),
        Link::PcieHost => (PCIE_HOST, 45e-6),
    };
    let message = f64::from(rows) * f64::from(model.hidden) * 2.0;
    let ring = 2.0 * f64::from(ranks - 1) / f64::from(ranks) * message / bytes_per_s;
    2.0 * model.layers.len() as f64 * (ring + start_s)
}

/// Forecasts a replica; `None` for a card whose speed nobody knows.
pub fn forecast(model: &Model, kv: KvPlan, card: &Card, ranks: u32, load: Load) -> Option<Forecast> {
    let speed = card.speed?;
    let share = f64::from(ranks);
    let active = model.active_parameters as f64 / model.parameters as f64;
    let time = |sequences: u32| {
        // A mixture reads only the experts that some row chose.
        let read = if model.is_mixture { 1.0 - (1.0 - active).powi(sequences.max(1) as i32) } else { 1.0 };
        TimeModel::of_machine(
            (weight_bytes(model, ranks) as f64 * read) as u64,
            (model.active_parameters as f64 / share) as u64,
            kv.token_bytes(model, ranks),
            speed.bytes_per_s * BANDWIDTH_REACHED,
            speed.flop_per_s * ARITHMETIC_REACHED,
        )
    };
    let step = |sequences: u32| {
        let context_tokens = u64::from(sequences) * u64::from(load.context_tokens);
        let compute = time(sequences).step(StepShape { rows: sequences, context_tokens }).as_secs_f64();
        (compute, talk_seconds(model, card.link, ranks, sequences))
    };
    let sequences = load.sequences.max(1);
    let ((compute, talk), (alone, talk_alone)) = (step(sequences), step(1));
    let prompt = load.prompt_tokens.max(1);
    let prefill = time(prompt).step(StepShape { rows: prompt, context_tokens: 0 }).as_secs_f64();
    let prefill = prefill + talk_seconds(model, card.link, ranks, prompt);
    Some(Forecast {
        tpot_ms: (compute + talk) * 1e3,
        tpot_alone_ms: (alone + talk_alone) * 1e3,
        ttft_ms: (prefill + alone + talk_alone) * 1e3,
        decode_tokens_per_s: f64::from(sequences) / (compute + talk),
        prefill_tokens_per_s: f64::from(prompt) / prefill,
        talk: talk / (compute + talk),
    })
}

#[cfg(test)]
mod tests {
    use super::super::cards::named;
    use super::super::known::known;
    use super::super::memory::Engine;
    use super::*;

    fn of(model: &str, card: &str, ranks: u32, sequences: u32) -> Forecast {
        let kv = KvPlan { engine: Engine::Flotilla, element_bytes: 2 };
        let load = Load { sequences, context_tokens: 1, prompt_tokens: 2048 };
        forecast(&known(model).unwrap(), kv, &named(card).unwrap(), ranks, load).unwrap()
    }

    /// Bandwidth over weight bytes is the ceiling of one sequence.
    #[test]
    fn one_sequence_decodes_at_the_bandwidth() {
        let check = |card: &str, tokens_per_s: f64| {
            let found = of("llama-3-8b", card, 1, 1).decode_tokens_per_s;
            assert!((found / tokens_per_s - 1.0).abs() < 0.05, "{card}: {found}");
        };
        check("RTX4090", 50.0);
        check("H100", 165.0);
        check("H200", 240.0);
    }

    /// 70B over four cards: 1.7 ms of talk a step on NVLink; through the host it eats the gain.
    #[test]
    fn links_decide_what_tensor_parallelism_is_worth() {
        let model = known("llama-3-70b").unwrap();
        let link = named("H100").unwrap().link;
        let nvlink = talk_seconds(&model, link, 4, 32) * 1e3;
        assert!((1.3..2.2).contains(&nvlink), "{nvlink}");
        let host = talk_seconds(&model, Link::PcieHost, 4, 32) * 1e3;
        assert!((10.0..25.0).contains(&host), "{host}");
        let prefill = talk_seconds(&model, Link::PcieHost, 4, 2048) / talk_seconds(&model, link, 4, 2048);
        assert!(prefill > 10.0, "{prefill}");
    }

    /// 13B, 800 ms to 450 ms with two cards: more cards shorten a lone prompt's wait on good links.
    #[test]
    fn tensor_parallelism_shortens_the_wait_for_the_first_token() {
        let (one, two) = (of("llama-2-13b", "A100-80G", 1, 1), of("llama-2-13b", "A100-80G", 2, 1));
        let gain = one.ttft_ms / two.ttft_ms;
        assert!((1.5..2.0).contains(&gain), "{gain}");
    }
}
