//! `flotilla plan`: how many cards, in which layout, at what speed and cost.
//!
//! Pure but for [`read`], which reads headers, and the arguments here. Facts come from `replica-format` and the
//! sums from `replica-core`, the code that the replica itself runs, so plan and engine can't disagree.

pub mod cards;
mod known;
pub mod layout;
mod legal;
mod measured;
pub mod memory;
mod model;
mod money;
pub mod read;
mod report;
mod speed;
mod stack;
mod weights;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;

use cards::{Pile, parse};
use layout::{Demand, Verdict, lay_out};
use measured::Measured;
use memory::{Engine, KvPlan};
use report::{Report, Sizing};
use speed::{Load, forecast};
use stack::Uuids;
use weights::Weights;

use crate::machine;

/// Replicas over what the rate needs: bursts.
const HEADROOM: f64 = 1.4;

/// What to plan.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// GGUF file, Hugging Face folder, config.json, or a known name such as llama-3-70b.
    model: String,
    /// Cards: `4xH100`, `2xRTX4090,1xL4`, by hand `6x16G`, or `auto` for those of this machine.
    #[arg(long, default_value = "auto")]
    gpus: String,
    /// Longest sequence, prompt and answer, in tokens.
    #[arg(long, default_value_t = 4096)]
    context: u32,
    /// Sequences at once.
    #[arg(long, default_value_t = 8)]
    concurrency: u32,
    /// Tokens of an answer.
    #[arg(long, default_value_t = 256)]
    answer_tokens: u32,
    /// Requests a second.
    #[arg(long)]
    rate: Option<f64>,
    /// Requests a second that one replica was measured to serve within its SLO.
    #[arg(long, conflicts_with = "measured")]
    measured_rate: Option<f64>,
    /// What `flotilla-load capacity` wrote about this model on one kind of these cards: its rate replaces the
    /// forecast's, and its times correct it.
    #[arg(long, value_name = "FILE")]
    measured: Option<PathBuf>,
    /// Longest wait for the first token.
    #[arg(long)]
    ttft_ms: Option<f64>,
    /// Longest mean time of a later token.
    #[arg(long)]
    tpot_ms: Option<f64>,
    /// How weights are stored: stored, bf16, fp8, int8, int4, mxfp4.
    #[arg(long, default_value = "stored")]
    weights: String,
    /// How KV is stored.
    #[arg(long, value_enum, default_value = "bf16")]
    kv: KvKind,
    /// Whose replica runs.
    #[arg(long, value_enum, default_value = "flotilla")]
    engine: EngineKind,
    /// Money an hour and card.
    #[arg(long)]
    price: Option<f64>,
    /// Also write the layout as a topology file, for `flotilla compose --topology FILE`.
    #[arg(long, value_name = "FILE")]
    topology: Option<PathBuf>,
    /// Answer with JSON on standard output.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum KvKind {
    Bf16,
    Fp8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum EngineKind {
    Flotilla,
    Vllm,
}

/// Runs the subcommand. Exit code 2 where the model can't run on these cards.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    let report = plan(args)?;
    if args.json {
        println!("{:#}", report.json());
    } else {
        println!("{}", report.text());
    }
    Ok(if report.layout.verdict == Verdict::Impossible { ExitCode::from(2) } else { ExitCode::SUCCESS })
}

fn plan(args: &Args) -> Result<Report, String> {
    check(args)?;
    let model = read::read(&args.model)?.stored_as(Weights::parse(&args.weights)?);
    let engine = if args.engine == EngineKind::Flotilla { Engine::Flotilla } else { Engine::Vllm };
    if engine == Engine::Flotilla && model.facts.is_none() {
        return Err(format!(
            "our replica does not serve {} as it is stored; plan it with --engine vllm",
            model.name
        ));
    }
    let element_bytes = match args.kv {
        KvKind::Bf16 => 2,
        KvKind::Fp8 if engine == Engine::Flotilla => {
            return Err("our replica keeps KV in 16 bits on GPUs".to_owned());
        }
        KvKind::Fp8 => 1,
    };
    let kv = KvPlan { engine, element_bytes };
    let (piles, uuids) = cards(&args.gpus)?;
    let demand = Demand { context_tokens: args.context, concurrency: args.concurrency };
    let layout = lay_out(&model, kv, &piles, demand);
    if let Some(file) = &args.topology {
        if engine != Engine::Flotilla {
            return Err("--topology writes a stack of our replicas; leave out --engine".to_owned());
        }
        let topology = stack::topology(&model, place(args), &layout, args.context, &piles, &uuids)?;
        let text = serde_json::to_string_pretty(&topology).map_err(|error| error.to_string())?;
        std::fs::write(file, text).map_err(|error| format!("--topology {}: {error}", file.display()))?;
    }
    let measured = args.measured.as_deref().map(measurement).transpose()?;
    let sizing = size(args, &model, kv, &layout, measured.as_ref());
    Ok(Report { model, kv, demand, layout, sizing })
}

fn check(args: &Args) -> Result<(), String> {
    let positive = |name: &str, value: Option<f64>| match value {
        Some(value) if !(value.is_finite() && value > 0.0) => {
            Err(format!("{name} {value}: give a positive number"))
        }
        _ => Ok(()),
    };
    positive("--rate", args.rate)?;
    positive("--measured-rate", args.measured_rate)?;
    positive("--ttft-ms", args.ttft_ms)?;
    positive("--tpot-ms", args.tpot_ms)?;
    positive("--price", args.price)?;
    if args.context == 0 || args.concurrency == 0 || args.answer_tokens == 0 {
        return Err("--context, --concurrency and --answer-tokens begin at 1".to_owned());
    }
    Ok(())
}

/// Where the stack's machine has the model: the path that was given, else a folder of that name.
fn place(args: &Args) -> String {
    let path = std::fs::canonicalize(&args.model);
    path.map_or_else(|_| format!("/models/{}", args.model), |path| path.display().to_string())
}

/// The cards that were named, or those of this machine, alike ones together; and what each is called.
fn cards(named: &str) -> Result<(Vec<Pile>, Uuids), String> {
    if named != "auto" {
        let piles = parse(named)?;
        let uuids = stack::stand_ins(&piles);
        return Ok((piles, uuids));
    }
    let (mut piles, mut uuids): (Vec<Pile>, Uuids) = (Vec::new(), Vec::new());
    for found in machine::Machine::look().cards {
        let card = cards::found(&found.name, found.memory_bytes);
        let index = piles.iter().position(|pile| pile.card == card).unwrap_or_else(|| {
            piles.push(Pile { count: 0, card });
            uuids.push(Vec::new());
            piles.len() - 1
        });
        piles[index].count += 1;
        uuids[index].push(found.uuid);
    }
    if piles.is_empty() {
        Err("no GPU is found here; name some with --gpus, for example --gpus 4xH100".to_owned())
    } else {
        Ok((piles, uuids))
    }
}

fn measurement(path: &Path) -> Result<Measured, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string());
    let measured = text.and_then(|text| Measured::parse(&text));
    measured.map_err(|error| format!("--measured {}: {error}", path.display()))
}

/// Speed, replicas for the rate, and money, for the first kind of cards; `None` where neither the cards' speed is
/// known nor anything was measured.
fn size(
    args: &Args,
    model: &model::Model,
    kv: KvPlan,
    layout: &layout::Layout,
    measured: Option<&Measured>,
) -> Option<Sizing> {
    let group = layout.groups.first()?;
    let prompt_tokens = args.context.saturating_sub(args.answer_tokens).max(1);
    let sequences = args.concurrency.div_ceil(group.needed.max(1)).min(group.memory.sequences);
    let load = Load { sequences, context_tokens: prompt_tokens + args.answer_tokens / 2, prompt_tokens };
    let roofline = |load| forecast(model, kv, &group.card, group.ranks, load);
    let calibration = measured.and_then(|measured| Some(measured.calibration(&roofline(measured.load()?)?)));
    let forecast = roofline(load).map(|roofline| match calibration {
        Some(calibration) => calibration.applied(roofline),
        None => roofline,
    });
    let measured_rate = args.measured_rate.or_else(|| measured.map(Measured::rate_per_replica));
    let forecast_rate = forecast.map(|forecast| forecast.decode_tokens_per_s / f64::from(args.answer_tokens));
    let each = measured_rate.or(forecast_rate)?;
    let replicas = args.rate.map(|rate| money::replicas(rate, each, HEADROOM));
    let running = replicas.unwrap_or(group.needed).max(group.needed);
    let bill = args.price.map(|card_hour| money::Bill {
        card_hour,
        cards: running * group.ranks * group.stages,
        tokens_per_s: f64::from(running) * each * f64::from(args.answer_tokens),
        demand_tokens_per_s: args.rate.map(|rate| rate * f64::from(args.answer_tokens)),
    });
    Some(Sizing {
        load,
        forecast,
        calibration,
        doubt: measured.and_then(|measured| measured.doubt(prompt_tokens, args.answer_tokens)),
        is_measured: measured_rate.is_some(),
        requests_per_s: each,
        replicas_for_rate: replicas,
        ttft_ms: args.ttft_ms,
        tpot_ms: args.tpot_ms,
        bill,
    })
}
