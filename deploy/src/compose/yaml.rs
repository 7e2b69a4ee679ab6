//! JSON values as YAML for people. Pure. Every string that YAML could read as something else is quoted, so that no
//! name or path can add a key.

use std::fmt::Write;

use serde_json::Value;

/// One document, its keys in alphabetical order.
pub fn document(value: &Value) -> String {
    let mut text = String::new();
    block(&mut text, value, 0);
    text
}

/// Several documents in one file.
pub fn documents(values: &[Value]) -> String {
    values.iter().map(document).collect::<Vec<_>>().join("---\n")
}

/// A string, quoted unless it is plain beyond doubt.
pub fn word(text: &str) -> String {
    let is_plain = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c))
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
            .contains(&text.to_lowercase().as_str());
    if is_plain { text.to_owned() } else { Value::from(text).to_string() }
}

fn block(text: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, inner) in map {
                let _ = write!(text, "{:indent$}{}:", "", word(key));
                below(text, inner, indent + 2);
            }
        }
        Value::Array(list) if !list.is_empty() => {
            for inner in list {
                let mut part = String::new();
                block(&mut part, inner, indent + 2);
                let _ = write!(text, "{:indent$}- {}", "", part.trim_start());
            }
        }
        other => {
            let _ = writeln!(text, "{:indent$}{}", "", scalar(other));
        }
    }
}

fn below(text: &mut String, value: &Value, indent: usize) {
    let is_scalar = match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => true,
    };
    if is_scalar {
        let _ = writeln!(text, " {}", scalar(value));
    } else {
        text.push('\n');
        block(text, value, indent);
    }
}

fn scalar(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use figment::Figment;
    use figment::providers::{Format, Yaml};
    use proptest::prelude::*;
    use serde_json::json;

    fn read(text: &str) -> Value {
        Figment::from(Yaml::string(text)).extract().unwrap()
    }

    #[test]
    fn nested_lists_and_maps_are_read_back() {
        let value = json!({"a": [{"b": 1, "c": [1, 2]}, {"d": {}}], "e": {"f": [], "g": "x"}, "h": [["i"]]});
        assert_eq!(read(&document(&value)), value);
    }

    proptest! {
        /// Whatever a path holds, it stays one string.
        #[test]
        fn every_string_is_read_back_as_itself(text in "[ -~\\n\\t\u{e9}]{0,24}") {
            let value = json!({"a": text, "b": [text]});
            prop_assert_eq!(read(&document(&value)), value);
        }
    }
}
