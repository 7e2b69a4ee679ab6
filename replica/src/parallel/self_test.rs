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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Rows;

    /// Two ranks as seen from the first; the other's share of a sum comes with a fault at one place.
    #[derive(Debug)]
    struct Crooked {
        fault: f32,
    }

    impl Collective for Crooked {
        fn rank(&self) -> usize {
            0
        }

        fn ranks(&self) -> usize {
            2
        }

        fn sum(&mut self, device: &Device, rows: &mut Rows) -> Result<(), Fault> {
            let mut sums: Vec<f32> = device.to_host(rows)?.iter().map(|mine| mine * 3.0).collect();
            sums[100] += self.fault;
            *rows = device.from_host(&sums, COUNT)?;
            Ok(())
        }

        fn gather(&mut self, _: &Device, part: Rows) -> Result<Rows, Fault> {
            Ok(part)
        }
    }

    // U140
    #[test]
    fn a_fabric_that_adds_wrongly_does_not_serve() {
        let device = Device::cpu(1);
        assert!(self_test(&device, &mut Crooked { fault: 0.0 }).is_ok());
        let Err(Fault::Rank(failure)) = self_test(&device, &mut Crooked { fault: 1.0 }) else {
            panic!("a wrong sum was not seen")
        };
        assert!(failure.reason.contains("wrong sum at 100"), "{}", failure.reason);
    }
}
