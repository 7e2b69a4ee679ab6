//! Getters that name the key when its type is wrong. `null` counts as absent, as it does in Python.

use serde_json::{Map, Value};

use crate::Error;

/// A JSON object.
#[derive(Clone, Copy, Debug)]
pub struct Object<'a>(&'a Map<String, Value>);

impl<'a> Object<'a> {
    pub fn new(value: &'a Value) -> Result<Self, Error> {
        value.as_object().map(Self).ok_or_else(|| Error::refused("not a JSON object"))
    }

    fn get(self, key: &str) -> Option<&'a Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    fn typed<T>(
        self,
        key: &str,
        wanted: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let Some(value) = self.get(key) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| Error::at(key, format!("should be {wanted}")))
    }

    pub fn object(self, key: &str) -> Result<Option<Self>, Error> {
        self.typed(key, "an object", |value| value.as_object().map(Self))
    }

    pub fn list(self, key: &str) -> Result<Option<&'a [Value]>, Error> {
        self.typed(key, "a list", |value| value.as_array().map(Vec::as_slice))
    }

    pub fn text(self, key: &str) -> Result<Option<&'a str>, Error> {
        self.typed(key, "a text", Value::as_str)
    }

    pub fn flag(self, key: &str) -> Result<Option<bool>, Error> {
        self.typed(key, "true or false", Value::as_bool)
    }

    pub fn f32(self, key: &str) -> Result<Option<f32>, Error> {
        self.typed(key, "a finite number", |value| {
            value.as_f64().map(|number| number as f32).filter(|number| number.is_finite())
        })
    }

    pub fn u32(self, key: &str) -> Result<Option<u32>, Error> {
        self.typed(key, "a whole number from 0 on", |value| u32::try_from(value.as_u64()?).ok())
    }

    /// A count that must be there and cannot be nothing.
    pub fn count(self, key: &str) -> Result<u32, Error> {
        match self.u32(key)? {
            None => Err(Error::at(key, "the key is missing")),
            Some(0) => Err(Error::at(key, "is 0")),
            Some(count) => Ok(count),
        }
    }

    /// A float that must be there.
    pub fn required_f32(self, key: &str) -> Result<f32, Error> {
        self.f32(key)?.ok_or_else(|| Error::at(key, "the key is missing"))
    }

    pub fn floats(self, key: &str) -> Result<Option<Vec<f32>>, Error> {
        self.typed(key, "a list of numbers", |value| {
            value.as_array()?.iter().map(|number| number.as_f64().map(|number| number as f32)).collect()
        })
    }

    /// A token, where there is one: -1 stands for none in some configs.
    pub fn token(self, key: &str) -> Result<Option<u32>, Error> {
        Ok(self.tokens(key)?.first().copied())
    }

    /// One token or a list of them.
    pub fn tokens(self, key: &str) -> Result<Vec<u32>, Error> {
        let tokens = self.typed(key, "a token id or a list of them", |value| {
            let numbers = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
            numbers.iter().map(Value::as_i64).collect::<Option<Vec<i64>>>()
        })?;
        Ok(tokens.unwrap_or_default().into_iter().filter_map(|token| u32::try_from(token).ok()).collect())
    }
}
