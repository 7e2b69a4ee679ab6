//! One sum before anything is loaded: a fabric that adds wrongly must not serve.

use super::{Collective, Fault, RankFailure};
use crate::kernel::Device;

/// Numbers summed: enough to fill several packets of any fabric.
const COUNT: usize = 4096;

/// Sums a known vector over the ranks and compares with what each can work out alone.
pub fn self_test(device: &Device, ranks: &mut dyn Collective) -> Result<(), Fault> {
    let mine = |rank: usize| (0..COUNT).map(move |place| ((rank + 1) * (place % 7)) as f32);
    let mut rows = device.from_host(&mine(ranks.rank()).collect::<Vec<_>>(), COUNT)?;
    ranks.sum(device, &mut rows)?;
    let expected =
        (0..COUNT).map(|place| (0..ranks.ranks()).map(|rank| ((rank + 1) * (place % 7)) as f32).sum());
    let wrong = device
        .to_host(&rows)?
        .iter()
        .zip(expected)
        .position(|(&sum, expected): (_, f32)| (sum - expected).abs() > 0.5);
    match wrong {
        None => Ok(()),
        Some(place) => Err(Fault::Rank(RankFailure {
            rank: ranks.rank(),
            reason: format!(
                "the start-up self-test got a wrong sum at {place}: collectives can't be trusted here"
            ),
        })),
    }
}
