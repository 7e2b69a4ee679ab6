//! Makes an error of the configuration lead to its place: file, line, and the nearest right key.

use super::{ConfigError, schema};
use figment::error::Kind;
use std::path::Path;

/// The file and its text.
type Place<'a> = Option<(&'a Path, &'a str)>;

/// Words for an error of reading.
pub fn explain(error: &figment::Error, place: Place<'_>) -> ConfigError {
    let Some(first) = error.clone().into_iter().next() else {
        return ConfigError(error.to_string());
    };
    let mut path = first.path.clone();
    let what = match &first.kind {
        Kind::UnknownField(key, known) => {
            // figment's path ends in the unknown key or in its parent, by where serde noticed.
            if path.last() != Some(key) {
                path.push(key.clone());
            }
            format!("unknown key `{}`{}", path.join("."), hint(key, known))
        }
        Kind::InvalidType(actual, expected) | Kind::InvalidValue(actual, expected) => {
            format!("`{}` must be {expected}, not {}", path.join("."), kind_of(actual))
        }
        _ if path.is_empty() => first.kind.to_string(),
        other => format!("`{}`: {other}", path.join(".")),
    };
    ConfigError(at(&path, &what, first.metadata.as_ref(), place))
}

/// Adds the place to an error of checking, whose message begins with the key in backticks.
pub fn locate(error: ConfigError, place: Place<'_>) -> ConfigError {
    let key: Vec<String> = match error.0.split('`').nth(1) {
        Some(key) => key.split('.').map(str::to_owned).collect(),
        None => return error,
    };
    match place.and_then(|(path, text)| line_of(&key, text).map(|line| (path, line))) {
        Some((path, line)) => ConfigError(format!("{}:{line}: {}", path.display(), error.0)),
        None => error,
    }
}

fn at(key: &[String], what: &str, metadata: Option<&figment::Metadata>, place: Place<'_>) -> String {
    let source = metadata.map_or("", |metadata| metadata.name.as_ref());
    let is_file = source.contains("TOML") || source.contains("YAML") || metadata.is_none();
    match place.filter(|_| is_file) {
        Some((path, text)) => match line_of(key, text) {
            Some(line) => format!("{}:{line}: {what}", path.display()),
            None => format!("{}: {what}", path.display()),
        },
        None if source.contains("environment") => {
            format!("environment variable FLOTILLA__{}: {what}", key.join("__").to_uppercase())
        }
        None => what.to_owned(),
    }
}

/// Never the value itself: it may be a secret.
fn kind_of(actual: &figment::error::Actual) -> &'static str {
    use figment::error::Actual;
    match actual {
        Actual::Bool(_) => "a boolean",
        Actual::Unsigned(_) | Actual::Signed(_) => "this number",
        Actual::Float(_) => "a fraction",
        Actual::Char(_) | Actual::Str(_) => "a string",
        Actual::Seq => "a list",
        Actual::Map => "a section",
        _ => "that",
    }
}

/// The line, from 1, where a key is written: its sections are looked for one after the other, each behind the last.
fn line_of(key: &[String], text: &str) -> Option<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let mut from = 0;
    let mut found = None;
    let mut dotted = String::new();
    for part in key.iter().filter(|part| part.parse::<usize>().is_err()) {
        dotted = if dotted.is_empty() { part.clone() } else { format!("{dotted}.{part}") };
        if let Some(offset) = lines[from..].iter().position(|line| names(line, part) || names(line, &dotted))
        {
            found = Some(from + offset + 1);
            from += offset;
        }
    }
    found
}

fn names(line: &str, key: &str) -> bool {
    let line = line.trim_start_matches([' ', '\t', '-', '[', '"', '\'']);
    let Some(rest) = line.strip_prefix(key) else { return false };
    rest.trim_start_matches(['"', '\'']).trim_start().starts_with([':', '=', ']']) || rest.starts_with('.')
}

/// The right key for a wrong one, in words: the nearest of its section, or one that is nearer in another.
fn hint(written: &str, known: &'static [&'static str]) -> String {
    let near = known.iter().map(|key| (distance(written, key), *key)).min();
    let near = near.filter(|(distance, _)| *distance <= written.len().max(3) / 3 + 1);
    let (far_distance, far) = elsewhere(written);
    match near {
        Some((distance, key)) if far.is_empty() || distance <= far_distance => {
            format!("; did you mean `{key}`?")
        }
        _ if far.is_empty() => String::new(),
        _ if far_distance > 0 => format!("; did you mean {}?", far.join(" or ")),
        _ => format!("; {} exist{}", far.join(" and "), if far.len() == 1 { "s" } else { "" }),
    }
}

/// Keys of any section whose own name is nearest to the written one, in backticks, and how far they are from it.
fn elsewhere(written: &str) -> (usize, Vec<String>) {
    let name = |key: &'static String| key.rsplit('.').next().unwrap_or(key);
    let nearest = schema::all().iter().map(|key| distance(written, name(key))).min().unwrap_or(usize::MAX);
    if nearest > written.len() / 3 {
        return (nearest, Vec::new());
    }
    let same = schema::all().iter().filter(|key| distance(written, name(key)) == nearest);
    (nearest, same.map(|key| format!("`{key}`")).collect())
}

/// Edits between two words (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
