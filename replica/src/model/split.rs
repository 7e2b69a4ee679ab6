//! How a model is cut for its ranks: which heads, which part of the MLP, which tokens.
//!
//! Pure. The ranks that don't divide a model are refused with those that do.

use std::fmt::Write as _;
use std::ops::Range;

use replica_format::facts::ModelFacts;

/// One rank's place among its group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Split {
    /// Its number.
    pub rank: usize,
    /// Ranks there are.
    pub ranks: usize,
}

impl Split {
    /// The whole model in one place.
    pub const WHOLE: Self = Self { rank: 0, ranks: 1 };

    /// Checks that a model can be cut into so many ranks.
    ///
    /// # Errors
    ///
    /// A sentence with the numbers that could be.
    pub fn check(ranks: u32, facts: &ModelFacts) -> Result<(), String> {
        if fits(ranks, facts) {
            return Ok(());
        }
        let mut valid = String::new();
        for ranks in (1..=facts.heads).filter(|&ranks| fits(ranks, facts)) {
            let _ = write!(valid, "{}{ranks}", if valid.is_empty() { "" } else { ", " });
        }
        let (heads, kv_heads) = (facts.heads, facts.kv_heads);
        Err(format!(
            "{heads} heads and {kv_heads} KV heads can be split over {valid} ranks, not over {ranks}"
        ))
    }

    /// This rank's query heads.
    pub fn heads(self, facts: &ModelFacts) -> Range<usize> {
        self.even(facts.heads as usize)
    }

    /// This rank's KV heads; several ranks hold the same one where there are more ranks than heads.
    pub fn kv_heads(self, facts: &ModelFacts) -> Range<usize> {
        let kv_heads = facts.kv_heads as usize;
        if kv_heads >= self.ranks {
            return self.even(kv_heads);
        }
        let head = self.rank * kv_heads / self.ranks;
        head..head + 1
    }

    /// This rank's part of a width, cut at multiples of `unit` so that no block of a quantised row is torn,
    /// where there are enough for all ranks.
    pub fn width(self, width: usize, unit: usize) -> Range<usize> {
        let unit = if width / unit < self.ranks { 1 } else { unit };
        let units = width.div_ceil(unit);
        let at = |rank: usize| (units * rank / self.ranks * unit).min(width);
        at(self.rank)..at(self.rank + 1)
    }

    /// This rank's tokens, and the rows that every rank's table has: the last ones are padding.
    pub fn vocabulary(self, vocab: usize) -> (Range<usize>, usize) {
        let rows = vocab.div_ceil(self.ranks);
        let start = (self.rank * rows).min(vocab);
        (start..(start + rows).min(vocab), rows)
    }

    fn even(self, count: usize) -> Range<usize> {
        let share = count / self.ranks;
        self.rank * share..(self.rank + 1) * share
    }
}

fn fits(ranks: u32, facts: &ModelFacts) -> bool {
    let (heads, kv_heads) = (facts.heads, facts.kv_heads);
    let kv_fits = kv_heads.is_multiple_of(ranks) || ranks.is_multiple_of(kv_heads);
    ranks > 0 && heads.is_multiple_of(ranks) && kv_fits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fake;

    fn facts(heads: u32, kv_heads: u32) -> ModelFacts {
        ModelFacts { heads, kv_heads, ..fake::facts(64) }
    }

    #[test]
    fn every_width_is_cut_whole_and_without_overlap() {
        for (width, unit, ranks) in [(1536, 32, 3), (1536, 256, 4), (100, 32, 3)] {
            let parts: Vec<_> = (0..ranks).map(|rank| Split { rank, ranks }.width(width, unit)).collect();
            assert_eq!((parts[0].start, parts[ranks - 1].end), (0, width));
            assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
            assert!(parts.iter().all(|part| part.start.is_multiple_of(unit)));
        }
    }

    #[test]
    fn no_rank_goes_without_where_blocks_are_few() {
        assert_eq!(Split { rank: 1, ranks: 2 }.width(256, 256), 128..256);
        assert_eq!(Split { rank: 3, ranks: 4 }.width(96, 32), 72..96);
    }

    // U140
    #[test]
    fn an_odd_vocabulary_is_padded() {
        let parts: Vec<_> = (0..4).map(|rank| Split { rank, ranks: 4 }.vocabulary(50_257)).collect();
        assert_eq!(parts[3], (37_695..50_257, 12_565));
        assert!(parts.iter().all(|(_, rows)| *rows == 12_565));
    }

    // U141
    #[test]
    fn kv_heads_are_shared_by_ranks_that_exceed_them() {
        let facts = facts(8, 2);
        let held: Vec<_> = (0..4).map(|rank| Split { rank, ranks: 4 }.kv_heads(&facts)).collect();
        assert_eq!(held, [0..1, 0..1, 1..2, 1..2]);
    }

    #[test]
    fn a_head_count_that_does_not_divide_is_refused_with_those_that_do() {
        assert_eq!(Split::check(3, &facts(9, 3)), Ok(()));
        let refused = Split::check(2, &facts(9, 3)).unwrap_err();
        assert!(refused.contains("over 1, 3, 9 ranks, not over 2"), "{refused}");
    }
}
