//! How the prompts of one step share what decoding leaves of it: fair to long and to short.
//!
//! The rule: half of the tokens go to the prompt that is first in line, the other half to the one with the
//! least left to compute; what one of them does not need goes to the other, and what both leave goes down the
//! line. So a short prompt behind an over-long one takes at most twice the steps it would take alone (U025),
//! and the first in line always gets at least half, so nobody starves. Prompts of equal length are served in
//! the order of the line, which gives the lowest mean wait.

/// Tokens for the first in line and for the shortest behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Split {
    pub first: u32,
    pub short: u32,
}

/// Rows of a prompt with `left` to go that fit in `room`: all, or whole blocks, because chunks end where
/// blocks end.
pub(super) fn chunk(left: u32, room: u32, block_tokens: u32) -> u32 {
    if left <= room { left } else { room / block_tokens * block_tokens }
}

/// Splits `room` between a first with `first_left` and a shorter one with `short_left` tokens to go. Where
/// two blocks don't fit, `short_turn` says whose step this is.
pub(super) fn split(
    room: u32,
    first_left: u32,
    short_left: u32,
    block_tokens: u32,
    short_turn: bool,
) -> Split {
    let half = match room / 2 / block_tokens {
        0 if short_turn => block_tokens,
        0 => 0,
        blocks => blocks * block_tokens,
    };
    let short = chunk(short_left, half.min(room), block_tokens);
    let first = chunk(first_left, room - short, block_tokens);
    let short = chunk(short_left, room - first, block_tokens);
    Split { first, short }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_short_prompt_gets_half_at_once() {
        assert_eq!(split(128, 10_000, 200, 32, false), Split { first: 64, short: 64 });
    }

    #[test]
    fn what_the_short_one_leaves_goes_to_the_first() {
        assert_eq!(split(128, 10_000, 30, 32, false), Split { first: 96, short: 30 });
    }

    #[test]
    fn what_the_first_leaves_goes_to_the_short_one() {
        assert_eq!(split(256, 90, 80, 32, false), Split { first: 90, short: 80 });
        assert_eq!(split(160, 64, 63, 32, false), Split { first: 64, short: 63 });
    }

    #[test]
    fn where_one_block_fits_they_take_turns() {
        assert_eq!(split(40, 1000, 100, 32, false), Split { first: 32, short: 0 });
        assert_eq!(split(40, 1000, 100, 32, true), Split { first: 0, short: 32 });
    }

    proptest! {
        #[test]
        fn chunks_fit_and_end_at_blocks(
            room in 0u32..2000, first_left in 1u32..5000, short_left in 1u32..5000, short_turn: bool,
        ) {
            let Split { first, short } = split(room, first_left, short_left, 32, short_turn);
            prop_assert!(first + short <= room);
            prop_assert!(first == first_left || first % 32 == 0);
            prop_assert!(short == short_left || short % 32 == 0);
            prop_assert!(room < 32 || first + short > 0, "a block of room is never wasted");
        }
    }
}
