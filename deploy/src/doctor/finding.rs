//! What a verdict says. Pure.

use std::fmt;

use serde::Serialize;

/// How bad it is. The exit code of `flotilla doctor` is that of the worst.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Looked at and sound.
    Sound,
    /// Works, but slower, or not for long.
    Warning,
    /// Won't work.
    Broken,
}

/// One thing that was found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// A stable word to match on.
    pub code: &'static str,
    /// What is so, with its numbers.
    pub what: String,
    /// What to do about it; empty when nothing has to be done.
    pub remedy: String,
}

impl Finding {
    /// Looked at and sound.
    pub fn sound(code: &'static str, what: impl Into<String>) -> Self {
        Self { severity: Severity::Sound, code, what: what.into(), remedy: String::new() }
    }

    /// Works, but.
    pub fn warning(code: &'static str, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, code, what: what.into(), remedy: remedy.into() }
    }

    /// Won't work.
    pub fn broken(code: &'static str, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { severity: Severity::Broken, code, what: what.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.severity {
            Severity::Sound => "ok     ",
            Severity::Warning => "warning",
            Severity::Broken => "BROKEN ",
        };
        write!(f, "{mark}  {:<18} {}", self.code, self.what)?;
        if self.remedy.is_empty() { Ok(()) } else { write!(f, "\n{:28}-> {}", "", self.remedy) }
    }
}

/// The worst of all: 0 sound, 1 warnings, 2 broken.
pub fn exit_code(findings: &[Finding]) -> u8 {
    findings.iter().map(|finding| finding.severity).max().map_or(0, |worst| worst as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_finding_is_the_exit_code() {
        let (sound, warning) = (Finding::sound("a", "b"), Finding::warning("a", "b", "c"));
        let broken = Finding::broken("a", "b", "c");
        assert_eq!(exit_code(&[]), 0);
        assert_eq!(exit_code(std::slice::from_ref(&sound)), 0);
        assert_eq!(exit_code(&[sound.clone(), warning.clone()]), 1);
        assert_eq!(exit_code(&[broken, sound, warning]), 2);
    }
}
