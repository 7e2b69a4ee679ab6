//! Reads fields of a JSON object, each with its type and range; a fault names the field. `null` is absence and
//! unknown fields are never looked at.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::error::Error;

/// An object of a request and the path that leads to it.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    map: &'a Map<String, Value>,
    path: String,
}

/// The path of one item of an array field.
pub fn item(path: &str, index: usize) -> String {
    format!("{path}[{index}]")
}

impl<'a> Fields<'a> {
    /// The body itself.
    pub fn of(body: &'a Value) -> Result<Self, Error> {
        match body {
            Value::Object(map) => Ok(Self { map, path: String::new() }),
            other => Err(Error::malformed(format!("the body must be a JSON object, not {}", kind(other)))),
        }
    }

    /// An object somewhere inside.
    pub fn at(value: &'a Value, path: String) -> Result<Self, Error> {
        match value {
            Value::Object(map) => Ok(Self { map, path }),
            other => Err(wrong(&path, "an object", other)),
        }
    }

    /// The full path of a field.
    pub fn path(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// A field, unless absent or null.
    pub fn get(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// All fields, as they came.
    pub fn map(&self) -> &'a Map<String, Value> {
        self.map
    }

    /// A number in a range.
    pub fn number(&self, name: &str, range: RangeInclusive<f64>) -> Result<Option<f32>, Error> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let number = value.as_f64().ok_or_else(|| wrong(&self.path(name), "a number", value))?;
        if range.contains(&number) { Ok(Some(number as f32)) } else { Err(self.outside(name, value, &range)) }
    }

    /// A whole number in a range; `5.0` is whole.
    pub fn integer(&self, name: &str, range: RangeInclusive<i64>) -> Result<Option<i64>, Error> {
        self.get(name).map(|value| integer(value, &self.path(name), range)).transpose()
    }

    /// As [`Self::integer`] for what is never negative and fits 32 bits.
    pub fn count(&self, name: &str, range: RangeInclusive<u32>) -> Result<Option<u32>, Error> {
        let range = i64::from(*range.start())..=i64::from(*range.end());
        Ok(self.integer(name, range)?.map(|value| value as u32))
    }

    /// True or false.
    pub fn boolean(&self, name: &str) -> Result<Option<bool>, Error> {
        let Some(value) = self.get(name) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| wrong(&self.path(name), "a boolean", value))
    }

    /// A string.
    pub fn string(&self, name: &str) -> Result<Option<&'a str>, Error> {
        let Some(value) = self.get(name) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| wrong(&self.path(name), "a string", value))
    }

    /// An array.
    pub fn array(&self, name: &str) -> Result<Option<&'a [Value]>, Error> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items)),
            Some(other) => Err(wrong(&self.path(name), "an array", other)),
        }
    }

    /// An object.
    pub fn object(&self, name: &str) -> Result<Option<Self>, Error> {
        self.get(name).map(|value| Self::at(value, self.path(name))).transpose()
    }

    /// One of a few words.
    pub fn word<T: Copy>(&self, name: &str, known: &[(&str, T)]) -> Result<Option<T>, Error> {
        let Some(given) = self.string(name)? else { return Ok(None) };
        let found = known.iter().find(|(word, _)| *word == given).map(|(_, meaning)| *meaning);
        found.map(Some).ok_or_else(|| {
            let words: Vec<_> = known.iter().map(|(word, _)| *word).collect();
            self.refuse(name, &format!("must be one of {}", words.join(", ")))
        })
    }

    /// A fault of one field: its path, then `what`.
    pub fn refuse(&self, name: &str, what: &str) -> Error {
        let path = self.path(name);
        Error::field(path.clone(), format!("{path} {what}"))
    }

    /// A fault of a field that must be there.
    pub fn missing(&self, name: &str) -> Error {
        let path = self.path(name);
        let mut error = Error::field(path.clone(), format!("{path} is missing"));
        error.body = Box::new(error.body.code("missing_required_parameter"));
        error
    }

    fn outside<T: std::fmt::Debug>(&self, name: &str, value: &Value, range: &RangeInclusive<T>) -> Error {
        self.refuse(name, &format!("is {value}; it must be from {:?} to {:?}", range.start(), range.end()))
    }
}

/// A whole number in a range.
pub fn integer(value: &Value, path: &str, range: RangeInclusive<i64>) -> Result<i64, Error> {
    let Value::Number(number) = value else { return Err(wrong(path, "an integer", value)) };
    let whole = number.as_i64().or_else(|| {
        // Beyond 64 bits, or written as a float: the range check below says the rest.
        number.as_f64().filter(|float| float.fract() == 0.0).map(|float| float as i64)
    });
    let whole = whole.ok_or_else(|| wrong(path, "an integer", value))?;
    if range.contains(&whole) {
        return Ok(whole);
    }
    let (min, max) = (range.start(), range.end());
    Err(Error::field(path, format!("{path} is {value}; it must be from {min} to {max}")))
}

/// A fault of type. Strings are named, not quoted: they may be what a user wrote.
pub fn wrong(path: &str, wanted: &str, value: &Value) -> Error {
    Error::field(path, format!("{path} must be {wanted}, not {}", kind(value)))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if number.is_f64() => "a fraction",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(value: &Value, expected: Result<Option<u32>, &str>) {
        let body = json!({"max_tokens": value});
        let read = Fields::of(&body).unwrap().count("max_tokens", 1..=100);
        assert_eq!(read.map_err(|error| error.body.error.message), expected.map_err(str::to_owned));
    }

    // U020
    #[test]
    fn integers_are_whole_numbers_in_range() {
        check(&json!(5), Ok(Some(5)));
        check(&json!(5.0), Ok(Some(5)));
        check(&json!(null), Ok(None));
        check(&json!(-1), Err("max_tokens is -1; it must be from 1 to 100"));
        check(&json!(1_000_000_000), Err("max_tokens is 1000000000; it must be from 1 to 100"));
        check(&json!(1u64 << 63), Err("max_tokens is 9223372036854775808; it must be from 1 to 100"));
        check(&json!(1.5), Err("max_tokens must be an integer, not a fraction"));
        check(&json!("16"), Err("max_tokens must be an integer, not a string"));
    }

    #[test]
    fn a_fault_deep_inside_is_named_by_its_path() {
        let body = json!({"a": {"b": 1}});
        let inner = Fields::of(&body).unwrap().object("a").unwrap().unwrap();
        let error = inner.string("b").unwrap_err();
        assert_eq!(error.body.error.param.as_deref(), Some("a.b"));
    }
}
