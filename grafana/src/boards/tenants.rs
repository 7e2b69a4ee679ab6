//! Who sends how much, and how they fare.

use shared::metric::gateway as names;

use super::{half, rate, third};
use crate::board::{Board, TENANT};
use crate::panel::{Panel, Shape, Unit};

const OF_TENANT: &str = "tenant=~\"$tenant\"";

/// The board.
pub fn board() -> Board {
    let tokens = |kind: &str| rate(&names::TENANT_TOKENS, "tenant", &format!("{OF_TENANT},kind=\"{kind}\""));
    let bad = rate(&names::TENANT_REQUESTS, "tenant", &format!("{OF_TENANT},outcome=\"shed\""));
    Board {
        uid: "flotilla-tenants",
        title: "Flotilla / Tenants",
        description: "Who sends how much, and how they fare. Without keys everybody is `-`.",
        variables: vec![TENANT],
        groups: vec![
            (
                "Requests",
                vec![
                    Panel::new("Requests by tenant", "Requests that ended.", Shape::Stack, Unit::RequestsPerSecond)
                        .ask("{{tenant}}", rate(&names::TENANT_REQUESTS, "tenant", OF_TENANT))
                        .size(12, 8),
                    half("Requests by outcome", "How each tenant's requests end.", Unit::RequestsPerSecond).ask(
                        "{{tenant}} {{outcome}}",
                        rate(&names::TENANT_REQUESTS, "tenant, outcome", OF_TENANT),
                    ),
                ],
            ),
            (
                "Tokens and limits",
                vec![
                    third("Prompt tokens", "What each tenant sends.", Unit::TokensPerSecond)
                        .ask("{{tenant}}", tokens("prompt")),
                    third("Answer tokens", "What each tenant gets.", Unit::TokensPerSecond)
                        .ask("{{tenant}}", tokens("completion")),
                    third("Cached part of prompts", "What each tenant's prompts share with earlier ones.", Unit::Ratio)
                        .ask("{{tenant}}", format!("{} / ({} > 0)", tokens("cached"), tokens("prompt"))),
                    third("Refused for limits or room", "Part of each tenant's requests.", Unit::Ratio).ask(
                        "{{tenant}}",
                        format!("{bad} / ({} > 0)", rate(&names::TENANT_REQUESTS, "tenant", OF_TENANT)),
                    ),
                    Panel::new("Share of all tokens", "Who uses the fleet now.", Shape::Bars, Unit::Ratio)
                        .ask(
                            "{{tenant}}",
                            format!(
                                "{} / ignoring (tenant) group_left () (sum(rate({}{{kind!=\"cached\"}}[$__rate_interval])) > 0)",
                                rate(&names::TENANT_TOKENS, "tenant", &format!("{OF_TENANT},kind!=\"cached\"")),
                                names::TENANT_TOKENS.name
                            ),
                        )
                        .size(16, 8),
                ],
            ),
        ],
    }
}
