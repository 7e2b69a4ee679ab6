//! How long until the first token there. The cost of a choice is a time, so it can be checked against a clock.
//!
//! (work queued + this prompt's uncached tokens) ÷ prefill rate, slowed by decoding neighbours, plus the waits for
//! a place and for KV blocks where there are none, plus what no token explains. It knows no replica by name.

use crate::replica::Prior;

/// What a new request would meet on one replica.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Outlook {
    /// Prompt tokens ahead of it.
    pub queued_tokens: f64,
    /// Prompt tokens a second, at least 1.
    pub prefill_tokens_per_s: f64,
    /// Seconds that no token explains.
    pub overhead_s: f64,
    /// Seconds a whole answer takes there: how long until places and blocks come free.
    pub answer_s: f64,
    /// Requests there, running and waiting.
    pub occupancy: u32,
    /// The most it runs at once.
    pub running_max: Option<u32>,
    /// The most it lets wait.
    pub waiting_max: Option<u32>,
    /// KV tokens in use, and the size of the pool.
    pub kv: Option<(f64, f64)>,
    /// 1 when it has just become ready, 0 when it has settled.
    pub cold: f64,
    /// It said so itself a moment ago.
    pub is_full: bool,
}

/// Price of KV pressure in seconds: λ·k/(1−k). Half full costs λ, 90 % nine times as much, never infinity.
const KV_PRICE_S: f64 = 0.05;
/// Above this share the price stays put.
const KV_SHARE_MAX: f64 = 0.99;
/// A full running set makes a prompt token take this many times as long as an empty one.
const DECODE_DRAG: f64 = 1.0;
/// A line at a replica may be as long as this share of its places.
const LINE_SHARE: f64 = 0.5;
/// Sequences that fill a running set whose size is unknown.
const RUNNING_MAX_ASSUMED: f64 = 64.0;
/// How many times as long everything takes on a replica that has just become ready.
const COLD_FACTOR: f64 = 4.0;

impl Outlook {
    /// The same place with the rates of the fleet in the mean.
    #[must_use]
    pub fn as_usual(&self, prior: &Prior) -> Self {
        Self {
            prefill_tokens_per_s: prior.prefill_tokens_per_s,
            overhead_s: prior.overhead_s,
            answer_s: prior.answer_s,
            ..*self
        }
    }

    /// Share of its places that is taken, at most 1.
    pub fn places_share(&self) -> f64 {
        let places = self.running_max.map_or(RUNNING_MAX_ASSUMED, f64::from).max(1.0);
        (f64::from(self.occupancy) / places).min(1.0)
    }

    /// Factor by which decoding neighbours slow prefill.
    pub fn slowdown(&self) -> f64 {
        1.0 + DECODE_DRAG * self.places_share()
    }

    /// Seconds until the first token of a prompt with so many uncached tokens that will hold so many KV tokens.
    pub fn ttft_s(&self, uncached_tokens: f64, kv_tokens: f64) -> f64 {
        let work = (self.queued_tokens + uncached_tokens) / self.prefill_tokens_per_s * self.slowdown();
        let warm = self.overhead_s + work + self.place_wait_s() + self.kv_wait_s(kv_tokens);
        warm * (1.0 + (COLD_FACTOR - 1.0) * self.cold)
    }

    /// Seconds until a place in the running set comes free: places free evenly over an answer's time.
    pub fn place_wait_s(&self) -> f64 {
        let Some(places) = self.running_max.map(|max| f64::from(max.max(1))) else { return 0.0 };
        let ahead = f64::from(self.occupancy) + 1.0 - places;
        ahead.max(0.0) / places * self.answer_s
    }

    /// Price of KV pressure, plus the wait for blocks when it would not fit.
    pub fn kv_wait_s(&self, kv_tokens: f64) -> f64 {
        let Some((used, pool)) = self.kv else { return 0.0 };
        // Whatever it reports, nothing runs there: the blocks are cache, or the report is wrong. Find out.
        if self.occupancy == 0 {
            return 0.0;
        }
        let share = ((used + kv_tokens) / pool).clamp(0.0, KV_SHARE_MAX);
        let lacking = (used + kv_tokens - pool).max(0.0);
        KV_PRICE_S * share / (1.0 - share) + lacking / pool * self.answer_s
    }

    /// Whether nothing waits and less than half of its places are taken: what batch work may fill.
    pub fn is_idle(&self) -> bool {
        self.queued_tokens < 1.0 && self.places_share() < 0.5
    }

    /// Whether a request that will hold so many KV tokens can start there at once.
    pub fn has_room(&self, kv_tokens: f64) -> bool {
        self.has_room_beside(kv_tokens, 0)
    }

    /// Whether it can start at once or join a short line, where the replica keeps one.
    ///
    /// To wait where the prefix is may be sooner than to compute it elsewhere; the gateway's own queue, which gives
    /// the first free place to the first in turn, has no such choice. A long line would take its choices from it.
    pub fn has_room_in_line(&self, kv_tokens: f64) -> bool {
        self.has_room_beside(kv_tokens, self.line_max())
    }

    /// The most that may wait there by our doing: half of what it lets wait, the rest is for other gateways.
    fn line_max(&self) -> u32 {
        let places = self.running_max.map_or(0.0, f64::from);
        (self.waiting_max.unwrap_or(0) / 2).min((places * LINE_SHARE) as u32)
    }

    /// The same where `line` requests may wait for a place; none may wait for KV blocks, which nobody promised.
    fn has_room_beside(&self, kv_tokens: f64, line: u32) -> bool {
        if self.is_full {
            return false;
        }
        if self.occupancy == 0 {
            return true;
        }
        let has_place = self.running_max.is_none_or(|max| self.occupancy < max.max(1).saturating_add(line));
        has_place && self.kv.is_none_or(|(used, pool)| used + kv_tokens <= pool)
    }
}

#[cfg(test)]
mod tests;
