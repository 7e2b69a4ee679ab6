//! The group of one, which costs nothing.

use super::{Collective, Fault};
use crate::kernel::{Device, Rows};

/// A rank without others.
#[derive(Clone, Copy, Debug)]
pub struct Alone;

impl Collective for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn ranks(&self) -> usize {
        1
    }

    fn sum(&mut self, _: &Device, _: &mut Rows) -> Result<(), Fault> {
        Ok(())
    }

    fn gather(&mut self, _: &Device, part: Rows) -> Result<Rows, Fault> {
        Ok(part)
    }
}
