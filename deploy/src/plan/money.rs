//! What a million tokens cost, and whether more cards make them cheaper. Pure.

/// Cost of a fleet at a demand.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cost {
    /// Money an hour, for all cards.
    pub hour: f64,
    /// Money a million answer tokens when every replica is busy.
    pub million_busy: f64,
    /// The same at the demand; absent where none was given.
    pub million_at_demand: Option<f64>,
}

/// What is paid and what comes out.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bill {
    /// Money an hour and card.
    pub card_hour: f64,
    /// Cards of all replicas.
    pub cards: u32,
    /// Answer tokens a second that all replicas can give.
    pub tokens_per_s: f64,
    /// Answer tokens a second that are asked for.
    pub demand_tokens_per_s: Option<f64>,
}

impl Bill {
    /// Works it out.
    pub fn cost(self) -> Cost {
        let per_hour = self.card_hour * f64::from(self.cards);
        let per_million = |tokens_per_s: f64| per_hour / (tokens_per_s * 3600.0) * 1e6;
        Cost {
            hour: per_hour,
            million_busy: per_million(self.tokens_per_s),
            million_at_demand: self
                .demand_tokens_per_s
                .map(|demand| per_million(demand.min(self.tokens_per_s))),
        }
    }

    /// What adding cards does to the cost of a token, in words.
    pub fn of_more_cards(self) -> &'static str {
        match self.demand_tokens_per_s {
            Some(demand) if demand > self.tokens_per_s => {
                "adding cards keeps the cost of a token and serves what is refused now"
            }
            Some(_) => "adding cards raises the cost of a token: the demand is served already",
            None => "adding cards keeps the cost of a token only while all of them are busy",
        }
    }
}

/// Replicas for a rate, with room for bursts, and one to lose.
pub fn replicas(rate_per_s: f64, measured_per_s: f64, headroom: f64) -> u32 {
    ((rate_per_s * headroom / measured_per_s).ceil() as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BILL: Bill =
        Bill { card_hour: 2.0, cards: 4, tokens_per_s: 2000.0, demand_tokens_per_s: Some(500.0) };

    #[test]
    fn an_idle_fleet_makes_tokens_dear() {
        let cost = BILL.cost();
        assert!((cost.hour - 8.0).abs() < 1e-9);
        assert!((cost.million_busy - 1.111).abs() < 1e-3, "{cost:?}");
        assert!((cost.million_at_demand.unwrap() - 4.444).abs() < 1e-3, "{cost:?}");
    }

    #[test]
    fn more_cards_pay_only_where_demand_is_refused() {
        assert!(BILL.of_more_cards().contains("raises"));
        assert!(
            Bill { demand_tokens_per_s: Some(9000.0), ..BILL }.of_more_cards().contains("keeps the cost")
        );
    }

    #[test]
    fn replicas_cover_the_rate_with_headroom() {
        assert_eq!(replicas(10.0, 4.0, 1.4), 4);
        assert_eq!(replicas(0.1, 4.0, 1.4), 1);
    }
}
