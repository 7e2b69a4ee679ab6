//! Every key of the configuration, read off the types that parse it: a list by hand would fall behind.

use super::RawConfig;
use serde::de::value::{Error, StrDeserializer};
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use std::sync::LazyLock;

/// All sections and keys, with dots between them: `server`, `server.host`, ….
pub fn all() -> &'static [String] {
    static ALL: LazyLock<Vec<String>> = LazyLock::new(|| {
        let mut keys = Vec::new();
        RawConfig::deserialize(Walk { path: "", keys: &mut keys })
            .expect("every type here has a plain value");
        keys
    });
    &ALL
}

/// Deserializes the plainest value of a type, and notes the fields of every struct on the way.
struct Walk<'a> {
    path: &'a str,
    keys: &'a mut Vec<String>,
}

impl<'de> Deserializer<'de> for Walk<'_> {
    type Error = Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_map(Fields { names: fields, path: self.path, keys: self.keys, at: 0 })
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(One(Some(self)))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(Fields { names: &[], path: self.path, keys: self.keys, at: 0 })
    }

    /// Only single values are optional; sections have defaults instead.
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_none()
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str("")
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct tuple tuple_struct enum identifier ignored_any
    }
}

struct Fields<'a> {
    names: &'static [&'static str],
    path: &'a str,
    keys: &'a mut Vec<String>,
    at: usize,
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some(field) = self.names.get(self.at) else { return Ok(None) };
        let field: StrDeserializer<'_, Error> = field.into_deserializer();
        seed.deserialize(field).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let field = self.names[self.at];
        let key = if self.path.is_empty() { field.to_owned() } else { format!("{}.{field}", self.path) };
        self.keys.push(key.clone());
        self.at += 1;
        seed.deserialize(Walk { path: &key, keys: self.keys })
    }
}

/// A list of one.
struct One<'a>(Option<Walk<'a>>);

impl<'de> SeqAccess<'de> for One<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        self.0.take().map(|walk| seed.deserialize(walk)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_section_and_every_key_is_there_once() {
        let keys = all();
        for key in
            ["server", "server.host", "replicas.url", "dns.interval_ms", "scale.tpot_ms", "models.aliases"]
        {
            assert_eq!(keys.iter().filter(|known| *known == key).count(), 1, "{key}");
        }
    }

    #[test]
    fn the_example_has_no_key_that_is_not_there() {
        let example = include_str!("../../../deploy/config/gateway.toml");
        let mut section = String::new();
        for line in
            example.lines().map(|line| line.trim_start_matches("# ").split('#').next().unwrap_or("").trim())
        {
            if let Some(name) = line.strip_prefix('[') {
                section = name.trim_matches(['[', ']']).to_owned();
                assert!(all().contains(&section), "{line}");
            } else if let Some((key, _)) = line.split_once(" = ") {
                assert!(all().contains(&format!("{section}.{key}")), "{section}: {line}");
            }
        }
    }
}
