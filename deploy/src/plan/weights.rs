//! Bytes a parameter, by how weights are stored. Pure.

use serde_json::Value;

/// A way to store weights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weights {
    /// As the checkpoint has them.
    Stored,
    /// 16 bits.
    Bf16,
    /// 8 bits, scales a block of 128 × 128.
    Fp8,
    /// 8 bits, scales a group of 32.
    Int8,
    /// 4 bits, scales and zeros a group of 128.
    Int4,
    /// 4-bit floats, a shared exponent for 32.
    Mxfp4,
}

impl Weights {
    /// All words with their meanings.
    pub const ALL: [(&'static str, Self); 6] = [
        ("stored", Self::Stored),
        ("bf16", Self::Bf16),
        ("fp8", Self::Fp8),
        ("int8", Self::Int8),
        ("int4", Self::Int4),
        ("mxfp4", Self::Mxfp4),
    ];

    /// The word for it.
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(_, weights)| *weights == self).map_or("", |(word, _)| word)
    }

    /// The way of that word.
    ///
    /// # Errors
    ///
    /// Names the words there are.
    pub fn parse(word: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(name, _)| *name == word).map(|(_, weights)| *weights);
        found.ok_or_else(|| format!("{word}: give one of {}", Self::ALL.map(|(name, _)| name).join(", ")))
    }

    /// What a `quantization_config` means; `None` for methods whose size we don't know.
    pub fn of_config(config: &Value) -> Option<Self> {
        let bits = config["bits"].as_u64();
        match (config["quant_method"].as_str()?, bits) {
            ("fp8", _) => Some(Self::Fp8),
            ("mxfp4", _) => Some(Self::Mxfp4),
            ("gptq" | "awq", Some(4)) => Some(Self::Int4),
            ("gptq", Some(8)) => Some(Self::Int8),
            ("bitsandbytes", _) if config["load_in_4bit"] == true => Some(Self::Int4),
            ("bitsandbytes", _) if config["load_in_8bit"] == true => Some(Self::Int8),
            _ => None,
        }
    }

    /// Elements that share a scale along a row: a rank's part of a row must be whole groups.
    pub fn group(self) -> u32 {
        match self {
            Self::Stored | Self::Bf16 => 1,
            Self::Fp8 | Self::Int4 => 128,
            Self::Int8 | Self::Mxfp4 => 32,
        }
    }

    /// Bytes of a model. What is wide stays in 16 bits. `None` for [`Weights::Stored`], which says nothing.
    pub fn bytes(self, parameters: u64, wide_parameters: u64) -> Option<u64> {
        let each = match self {
            Self::Stored => return None,
            Self::Bf16 => 2.0,
            Self::Fp8 => 1.0 + 4.0 / (128.0 * 128.0),
            Self::Int8 => 34.0 / 32.0,
            Self::Int4 => 0.52,
            Self::Mxfp4 => 17.0 / 32.0,
        };
        let inner = parameters.saturating_sub(wide_parameters);
        Some((inner as f64 * each) as u64 + 2 * wide_parameters)
    }

    /// Smaller ways worth trying, largest first.
    pub fn smaller() -> [Self; 3] {
        [Self::Fp8, Self::Int8, Self::Int4]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_thumb_hold() {
        let gb = |weights: Weights, billions: u64| {
            weights.bytes(billions * 1_000_000_000, 0).unwrap() / 1_000_000_000
        };
        assert_eq!(gb(Weights::Bf16, 7), 14);
        assert_eq!(gb(Weights::Bf16, 27), 54);
        assert_eq!(gb(Weights::Bf16, 70), 140);
        assert_eq!(gb(Weights::Fp8, 70), 70);
        assert_eq!(gb(Weights::Int4, 32), 16);
    }

    #[test]
    fn embeddings_stay_in_sixteen_bits() {
        assert_eq!(Weights::Int4.bytes(1000, 1000), Some(2000));
    }

    #[test]
    fn words_are_read_back() {
        for (word, weights) in Weights::ALL {
            assert_eq!((Weights::parse(word), weights.word()), (Ok(weights), word));
        }
        assert!(Weights::parse("int3").unwrap_err().contains("int4"));
    }
}
