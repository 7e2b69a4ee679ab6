//! Rotary embedding: which layers turn, and by which of a model's tables.

use crate::kernel::{Angles, Device, RopeTable};

/// How a layer turns its queries and keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// By the model's table.
    Global,
    /// By the table of local layers.
    Local,
    /// Not at all.
    None,
}

/// A model's tables.
#[derive(Debug)]
pub struct Rotary {
    /// Of all layers, or of the global ones.
    pub global: RopeTable,
    /// Of local layers, where theirs differs.
    pub local: Option<RopeTable>,
}

/// A step's angles by each table.
#[derive(Debug)]
pub struct StepAngles {
    global: Angles,
    local: Option<Angles>,
}

impl Rotary {
    /// Computed once a step, used by every layer.
    pub fn angles(&self, device: &Device, positions: &[u32]) -> StepAngles {
        StepAngles {
            global: device.angles(&self.global, positions),
            local: self.local.as_ref().map(|table| device.angles(table, positions)),
        }
    }
}

impl StepAngles {
    /// The angles of a layer; `None` where it does not turn.
    pub fn of(&self, turn: Turn) -> Option<&Angles> {
        match turn {
            Turn::Global => Some(&self.global),
            Turn::Local => Some(self.local.as_ref().unwrap_or(&self.global)),
            Turn::None => None,
        }
    }
}
