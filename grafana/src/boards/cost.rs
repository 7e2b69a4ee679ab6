//! Promises and money: what is left of the error budgets, and what a million tokens costs.

use shared::metric::gateway as names;

use super::{OF_MODEL, half, number, rate, third};
use crate::board::{Board, MODEL, PRICE};
use crate::panel::{Panel, Shape, Unit};
use crate::rules::burn::{OBJECTIVES, series};

/// The board.
pub fn board() -> Board {
    Board {
        uid: "flotilla-slo",
        title: "Flotilla / SLO and cost",
        description: "Goodput against the SLO, how fast error budgets burn, and the price of tokens ($price: one replica, one hour).",
        variables: vec![MODEL, PRICE],
        groups: vec![("Promises", promises()), ("Cost", cost())],
    }
}

fn promises() -> Vec<Panel> {
    let goodput = rate(&names::GOODPUT, "model", OF_MODEL);
    let served =
        rate(&names::REQUESTS, "model", &format!("{OF_MODEL},outcome!~\"client_error|client_closed\""));
    let targets = Panel::new("Targets", "What goodput is counted against.", Shape::Number, Unit::Seconds)
        .ask("{{target}}", format!("max by (target) ({})", names::SLO_SECONDS.name))
        .size(8, 4);
    let budget = |panel: Panel, window: &str| {
        OBJECTIVES.iter().fold(panel, |panel, objective| {
            let share = format!("{:.4}", 1.0 - objective.target);
            let errors = series(objective.name, window);
            panel.ask(objective_legend(objective.name), format!("{errors}{{{OF_MODEL}}} / {share}"))
        })
    };
    vec![
        targets,
        number("Goodput", "Answers within the SLO, a second.", Unit::RequestsPerSecond)
            .ask("good", format!("sum({goodput})"))
            .size(8, 4),
        number("Part within the SLO", "Of served requests.", Unit::Ratio)
            .ask("good", format!("sum({goodput}) / (sum({served}) > 0)"))
            .limits(0.95, 0.8)
            .size(8, 4),
        budget(
            half(
                "Burn rate, 5 minutes",
                "How fast each error budget burns: 1 is just within the promise, 14.4 pages.",
                Unit::Count,
            )
            .limits(1.0, 14.4),
            "5m",
        ),
        budget(
            half("Burn rate, 6 hours", "The same over six hours: 6 pages.", Unit::Count).limits(1.0, 6.0),
            "6h",
        ),
        half("Goodput and load", "Requests served, and those within the SLO.", Unit::RequestsPerSecond)
            .ask("{{model}} served", served)
            .ask("{{model}} good", goodput),
        half("Errors by objective, 30 minutes", "Part of requests that missed each promise.", Unit::Ratio)
            .ask("{{model}} availability", format!("{}{{{OF_MODEL}}}", series("availability", "30m")))
            .ask("{{model}} first token", format!("{}{{{OF_MODEL}}}", series("ttft", "30m")))
            .ask("{{model}} pace", format!("{}{{{OF_MODEL}}}", series("tpot", "30m"))),
    ]
}

const fn objective_legend(name: &str) -> &'static str {
    match name.as_bytes() {
        b"availability" => "{{model}} availability",
        b"ttft" => "{{model}} first token",
        _ => "{{model}} pace",
    }
}

fn cost() -> Vec<Panel> {
    let ready = format!("sum by (model) ({}{{{OF_MODEL}}})", names::READY_REPLICAS.name);
    let answer = rate(&names::COMPLETION_TOKENS, "model", OF_MODEL);
    let prompt = rate(&names::PROMPT_TOKENS, "model", OF_MODEL);
    let good = rate(&names::GOODPUT, "model", OF_MODEL);
    vec![
        third("Price of a million answer tokens", "Replicas times their hourly price, divided by the answer tokens of an hour. Adding cards is right when this falls.", Unit::Dollars)
            .ask("{{model}}", format!("{ready} * $price / 3600 * 1000000 / ({answer} > 0)")),
        third("Price of a thousand good answers", "The same by answers within the SLO.", Unit::Dollars)
            .ask("{{model}}", format!("{ready} * $price / 3600 * 1000 / ({good} > 0)")),
        third("Tokens by model", "What the money buys.", Unit::TokensPerSecond)
            .ask("{{model}} prompt", prompt)
            .ask("{{model}} answer", answer),
    ]
}
