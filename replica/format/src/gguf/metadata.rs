//! The keys and values of a GGUF header, and getters that name the key when its type is wrong.

use std::collections::BTreeMap;

use crate::Error;

use super::cursor::Cursor;

/// A value. Integers of every width are one kind, as are floats.
#[derive(Clone, PartialEq, Debug)]
pub enum Value<'a> {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Flag(bool),
    Text(&'a str),
    Array(Array<'a>),
}

/// A list of one kind.
#[derive(Clone, PartialEq, Debug)]
pub enum Array<'a> {
    Integers(Vec<i64>),
    Floats(Vec<f32>),
    Flags(Vec<bool>),
    Texts(Vec<&'a str>),
}

/// All keys of a file.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Metadata<'a>(BTreeMap<&'a str, Value<'a>>);

impl<'a> Metadata<'a> {
    pub(super) fn parse(cursor: &mut Cursor<'a>, count: u64) -> Result<Self, Error> {
        let mut values = BTreeMap::new();
        for _ in 0..count {
            let key = cursor.text("metadata key")?;
            let kind = cursor.u32(key)?;
            let value = value(cursor, key, kind)?;
            if values.insert(key, value).is_some() {
                return Err(Error::at(key, "the key is there twice"));
            }
        }
        Ok(Self(values))
    }

    /// The value as it is.
    pub fn get(&self, key: &str) -> Option<&Value<'a>> {
        self.0.get(key)
    }

    /// A text, where the key is there.
    pub fn text(&self, key: &str) -> Result<Option<&'a str>, Error> {
        self.typed(key, "a text", |value| match value {
            Value::Text(text) => Some(*text),
            _ => None,
        })
    }

    /// A number from 0 on, where the key is there.
    pub fn unsigned(&self, key: &str) -> Result<Option<u64>, Error> {
        self.typed(key, "a number from 0 on", |value| match value {
            Value::Unsigned(number) => Some(*number),
            Value::Signed(number) => u64::try_from(*number).ok(),
            _ => None,
        })
    }

    /// A 32-bit number from 0 on, where the key is there. A list of equal numbers, one a layer, counts as one.
    pub fn u32(&self, key: &str) -> Result<Option<u32>, Error> {
        self.typed(key, "a 32-bit number (or equal ones, one a layer)", |value| match value {
            Value::Unsigned(number) => u32::try_from(*number).ok(),
            Value::Signed(number) => u32::try_from(*number).ok(),
            Value::Array(Array::Integers(numbers)) => {
                let first = *numbers.first()?;
                numbers.iter().all(|&number| number == first).then(|| u32::try_from(first).ok())?
            }
            _ => None,
        })
    }

    /// The same for a key that must be there.
    pub fn required_u32(&self, key: &str) -> Result<u32, Error> {
        self.u32(key)?.ok_or_else(|| Error::at(key, "the key is missing"))
    }

    /// A finite float, where the key is there.
    pub fn f32(&self, key: &str) -> Result<Option<f32>, Error> {
        self.typed(key, "a finite number", |value| match value {
            Value::Float(number) => Some(*number as f32).filter(|number| number.is_finite()),
            Value::Unsigned(number) => Some(*number as f32),
            _ => None,
        })
    }

    /// A boolean, where the key is there.
    pub fn flag(&self, key: &str) -> Result<Option<bool>, Error> {
        self.typed(key, "true or false", |value| match value {
            Value::Flag(flag) => Some(*flag),
            _ => None,
        })
    }

    /// A list, where the key is there.
    pub fn array(&self, key: &str) -> Result<Option<&Array<'a>>, Error> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(array)) => Ok(Some(array)),
            Some(_) => Err(Error::at(key, "should be a list")),
        }
    }

    fn typed<T>(
        &self,
        key: &str,
        wanted: &str,
        read: impl FnOnce(&Value<'a>) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let Some(value) = self.get(key) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| Error::at(key, format!("should be {wanted}")))
    }
}

fn value<'a>(cursor: &mut Cursor<'a>, key: &str, kind: u32) -> Result<Value<'a>, Error> {
    const ARRAY: u32 = 9;
    if kind != ARRAY {
        return scalar(cursor, key, kind);
    }
    let kind = cursor.u32(key)?;
    let count = cursor.u64(key)?;
    array(cursor, key, kind, count).map(Value::Array)
}

fn scalar<'a>(cursor: &mut Cursor<'a>, key: &str, kind: u32) -> Result<Value<'a>, Error> {
    Ok(match kind {
        0 => Value::Unsigned(cursor.u8(key)?.into()),
        1 => Value::Signed(i64::from(cursor.u8(key)? as i8)),
        2 => Value::Unsigned(cursor.u16(key)?.into()),
        3 => Value::Signed(i64::from(cursor.u16(key)? as i16)),
        4 => Value::Unsigned(cursor.u32(key)?.into()),
        5 => Value::Signed(i64::from(cursor.u32(key)? as i32)),
        6 => Value::Float(cursor.f32(key)?.into()),
        7 => Value::Flag(cursor.u8(key)? != 0),
        8 => Value::Text(cursor.text(key)?),
        10 => Value::Unsigned(cursor.u64(key)?),
        11 => Value::Signed(cursor.u64(key)? as i64),
        12 => Value::Float(cursor.f64(key)?),
        other => return Err(Error::at(key, format!("a value of unknown type {other}"))),
    })
}

/// Elements are read one by one, so a false count ends at the file's end and not in the allocator.
fn array<'a>(cursor: &mut Cursor<'a>, key: &str, kind: u32, count: u64) -> Result<Array<'a>, Error> {
    let mut elements = (0..count).map(|_| scalar(cursor, key, kind));
    let mixed = || Error::at(key, "a list of an unreadable type");
    Ok(match kind {
        6 | 12 => Array::Floats(
            elements
                .map(|value| if let Value::Float(number) = value? { Ok(number as f32) } else { Err(mixed()) })
                .collect::<Result<_, _>>()?,
        ),
        7 => Array::Flags(
            elements
                .map(|value| if let Value::Flag(flag) = value? { Ok(flag) } else { Err(mixed()) })
                .collect::<Result<_, _>>()?,
        ),
        8 => Array::Texts(
            elements
                .map(|value| if let Value::Text(text) = value? { Ok(text) } else { Err(mixed()) })
                .collect::<Result<_, _>>()?,
        ),
        0..=5 | 10 | 11 => Array::Integers(
            elements
                .map(|value| match value? {
                    Value::Unsigned(number) => i64::try_from(number).map_err(|_| mixed()),
                    Value::Signed(number) => Ok(number),
                    _ => Err(mixed()),
                })
                .collect::<Result<_, _>>()?,
        ),
        _ => return elements.next().transpose().and(Err(mixed())),
    })
}
