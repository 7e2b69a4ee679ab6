//! Enough YAML to write rules: every string is written as JSON writes it, which YAML reads alike.

use std::fmt::Write;

/// A file in the making.
#[derive(Debug)]
pub struct Yaml(String);

impl Yaml {
    /// With a comment on top.
    pub fn new(comment: &str) -> Self {
        Self(format!("# {comment}\n"))
    }

    /// One line at a depth, as it is.
    pub fn line(&mut self, depth: usize, line: &str) {
        let _ = writeln!(self.0, "{:width$}{line}", "", width = 2 * depth);
    }

    /// A key and a string.
    pub fn text(&mut self, depth: usize, key: &str, value: &str) {
        self.line(depth, &format!("{key}: {}", serde_json::Value::from(value)));
    }

    /// The file.
    pub fn finish(self) -> String {
        self.0
    }
}
