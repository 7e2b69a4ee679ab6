//! What an answer's times say about rates: the estimate turned round.

use shared::time::Instant;

use crate::health::Usage;
use crate::load::Ticket;
use crate::replica::Rates;

/// What the time to the first token says about rate and overhead.
pub(super) fn first_token(rates: &mut Rates, ticket: &Ticket, said: Option<f64>, now: Instant) {
    /// Below this much work the time is overhead, above it the rate shows.
    const WORK_TOKENS_MIN: f64 = 256.0;
    let ttft = now.since(ticket.began).as_secs_f64();
    rates.ttft_s.learn(ttft, now);
    if let Some(usual) = ticket.usual_ttft_s {
        rates.lateness.learn(ttft / usual.max(1e-3), now);
    }
    let Some((queued_tokens, slowdown)) = ticket.ahead else { return };
    let work = queued_tokens + f64::from(ticket.share.prompt_tokens);
    if let Some(rate) = said {
        rates.overhead_s.learn((ttft - work * slowdown / rate).max(0.0), now);
    } else if work < WORK_TOKENS_MIN {
        rates.overhead_s.learn(ttft, now);
        return;
    }
    if work < WORK_TOKENS_MIN {
        return;
    }
    let computing = ttft - rates.overhead_s.value().unwrap_or(0.0);
    rates.prefill_tokens_per_s.learn(work * slowdown / computing, now);
}

/// What a whole answer says about its length and its pace.
pub(super) fn answer(rates: &mut Rates, ticket: &Ticket, usage: Usage, now: Instant) {
    rates.answer_s.learn(now.since(ticket.began).as_secs_f64(), now);
    let later_tokens = usage.answer_tokens.unwrap_or(0).saturating_sub(1);
    if let Some(first) = ticket.first_token.filter(|_| later_tokens > 0) {
        rates.tpot_s.learn(now.since(first).as_secs_f64() / f64::from(later_tokens), now);
    }
}
