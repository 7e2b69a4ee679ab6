//! How a tensor's elements are stored: the types we read, and what each file format calls them.

use serde::Serialize;

/// How a tensor's elements are stored.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[allow(non_camel_case_types, reason = "GGUF's own names")]
pub enum TensorKind {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
}

impl TensorKind {
    /// Elements a block holds and bytes it takes.
    pub fn block(self) -> (usize, usize) {
        match self {
            Self::F32 => (1, 4),
            Self::F16 | Self::BF16 => (1, 2),
            Self::Q4_0 => (32, 18),
            Self::Q4_1 => (32, 20),
            Self::Q5_0 => (32, 22),
            Self::Q5_1 => (32, 24),
            Self::Q8_0 => (32, 34),
            Self::Q2_K => (256, 84),
            Self::Q3_K => (256, 110),
            Self::Q4_K => (256, 144),
            Self::Q5_K => (256, 176),
            Self::Q6_K => (256, 210),
        }
    }

    /// Bytes of `elements` in a row of whole blocks.
    pub fn bytes(self, elements: u64) -> u64 {
        let (per, bytes) = self.block();
        elements / per as u64 * bytes as u64
    }

    /// All of them, in the order of the declaration.
    pub const ALL: [Self; 13] = [
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q2_K,
        Self::Q3_K,
        Self::Q4_K,
        Self::Q5_K,
        Self::Q6_K,
    ];

    /// The type with this number in a GGUF file.
    ///
    /// # Errors
    ///
    /// The type's name where it is one that we do not read.
    pub fn from_gguf(id: u32) -> Result<Self, String> {
        Ok(match id {
            0 => Self::F32,
            1 => Self::F16,
            2 => Self::Q4_0,
            3 => Self::Q4_1,
            6 => Self::Q5_0,
            7 => Self::Q5_1,
            8 => Self::Q8_0,
            10 => Self::Q2_K,
            11 => Self::Q3_K,
            12 => Self::Q4_K,
            13 => Self::Q5_K,
            14 => Self::Q6_K,
            30 => Self::BF16,
            other => return Err(unread_gguf(other)),
        })
    }

    /// The type with this name in a safetensors header, where it is one that we read.
    pub fn from_safetensors(name: &str) -> Option<Self> {
        match name {
            "F32" => Some(Self::F32),
            "F16" => Some(Self::F16),
            "BF16" => Some(Self::BF16),
            _ => None,
        }
    }

    /// Whether an element is one number of its own, not part of a block with a scale.
    pub fn is_plain(self) -> bool {
        self.block().0 == 1
    }
}

/// ggml's names for the types we refuse, so that the reason can be looked up.
fn unread_gguf(id: u32) -> String {
    const NAMES: [(u32, &str); 19] = [
        (9, "Q8_1"),
        (15, "Q8_K"),
        (16, "IQ2_XXS"),
        (17, "IQ2_XS"),
        (18, "IQ3_XXS"),
        (19, "IQ1_S"),
        (20, "IQ4_NL"),
        (21, "IQ3_S"),
        (22, "IQ2_S"),
        (23, "IQ4_XS"),
        (24, "I8"),
        (25, "I16"),
        (26, "I32"),
        (27, "I64"),
        (28, "F64"),
        (29, "IQ1_M"),
        (34, "TQ1_0"),
        (35, "TQ2_0"),
        (39, "MXFP4"),
    ];
    let name = NAMES.iter().find(|(known, _)| *known == id).map(|(_, name)| *name);
    name.map_or_else(|| format!("type {id}"), ToOwned::to_owned)
}
