//! What `transformers` gives templates beyond Jinja.

use std::fmt::Write;

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Output, State};

use super::{clock, json};

/// A message that the template raised itself.
#[derive(Debug)]
pub struct Raised(pub String);

impl std::fmt::Display for Raised {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

pub fn install(environment: &mut Environment<'static>) {
    environment.set_formatter(write_as_python);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", |format: &str| clock::strftime(format, clock::now()));
    environment.add_filter("tojson", tojson);
    environment.add_filter("string", |value: &Value| shown(value));
    environment.add_filter("trim", trim);
    environment.add_test("iterable", is_iterable);
}

fn raise_exception(message: &str) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, "raised").with_source(Raised(message.to_owned())))
}

/// `json.dumps` with its options, and letters beyond ASCII as they are.
#[expect(clippy::needless_pass_by_value, reason = "an argument of a filter is its own")]
fn tojson(value: &Value, options: Kwargs) -> Result<Value, Error> {
    let ensure_ascii = options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false);
    let indent = options.get::<Option<usize>>("indent")?;
    let separators = options.get::<Option<Vec<String>>>("separators")?;
    let sorted = options.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    options.assert_all_used()?;
    let style = json::Style { ensure_ascii, indent, separators, sorted };
    json::dumps(value, &style).map(Value::from_safe_string)
}

/// Of anything's text, as in Python.
fn trim(value: &Value, marks: Option<String>) -> String {
    let text = shown(value);
    match marks {
        None => text.trim().to_owned(),
        Some(marks) => text.trim_matches(|letter| marks.contains(letter)).to_owned(),
    }
}

/// Python cannot walk through `None`, and templates tell contents apart by that.
fn is_iterable(value: &Value) -> bool {
    let kinds =
        [ValueKind::Seq, ValueKind::Map, ValueKind::String, ValueKind::Iterable, ValueKind::Undefined];
    kinds.contains(&value.kind())
}

/// What `{{ }}` writes: Python's `str`.
fn write_as_python(out: &mut Output<'_>, _: &State<'_, '_>, value: &Value) -> Result<(), Error> {
    match value.kind() {
        ValueKind::Undefined => Ok(()),
        ValueKind::String => out.write_str(value.as_str().unwrap_or_default()).map_err(Error::from),
        _ => out.write_str(&shown(value)).map_err(Error::from),
    }
}

fn shown(value: &Value) -> String {
    let mut text = String::new();
    match value.as_str() {
        Some(already) => text.push_str(already),
        None => show(value, &mut text),
    }
    text
}

/// Python's `repr`.
fn show(value: &Value, out: &mut String) {
    match value.kind() {
        ValueKind::None | ValueKind::Undefined => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::String => quote(value.as_str().unwrap_or_default(), out),
        ValueKind::Seq => {
            out.push('[');
            for (index, element) in value.try_iter().into_iter().flatten().enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                show(&element, out);
            }
            out.push(']');
        }
        ValueKind::Map => {
            out.push('{');
            for (index, key) in value.try_iter().into_iter().flatten().enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                show(&key, out);
                out.push_str(": ");
                show(&value.get_item(&key).unwrap_or_default(), out);
            }
            out.push('}');
        }
        // Writing to a string cannot fail.
        _ => _ = write!(out, "{value}"),
    }
}

/// Single quotes, unless only double ones avoid an escape.
fn quote(text: &str, out: &mut String) {
    let mark = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(mark);
    for letter in text.chars() {
        match letter {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            letter if letter == mark => out.extend(['\\', letter]),
            letter if letter.is_control() => _ = write!(out, "\\x{:02x}", u32::from(letter)),
            letter => out.push(letter),
        }
    }
    out.push(mark);
}
