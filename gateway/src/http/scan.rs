//! Reads JSON just far enough to route by it: borrowed, in one pass, changing nothing.
//!
//! It finds where members and elements begin and end and refuses what has no such structure. Whether a value has
//! the right type or range is not its business: the replica validates.

use std::borrow::Cow;
use std::ops::Range;

/// Why a text has no structure to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed {
    /// Offset of the byte at fault.
    pub at: usize,
}

/// One member of an object: its key, and where its value lies in the whole text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member<'a> {
    /// The key, unescaped.
    pub key: Cow<'a, str>,
    /// The value's bytes as sent.
    pub value: &'a [u8],
    /// Where the value lies.
    pub span: Range<usize>,
}

/// A position in a text.
struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn skip_space(&mut self) {
        while matches!(self.text.get(self.at), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    fn peek(&mut self) -> Option<u8> {
        self.skip_space();
        self.text.get(self.at).copied()
    }

    fn expect(&mut self, byte: u8) -> Result<(), Malformed> {
        if self.peek() != Some(byte) {
            return Err(self.malformed());
        }
        self.at += 1;
        Ok(())
    }

    fn malformed(&self) -> Malformed {
        Malformed { at: self.at }
    }

    /// Steps over one string, quotes included.
    fn skip_string(&mut self) -> Result<(), Malformed> {
        let mut from = self.at + 1;
        loop {
            let rest = self.text.get(from..).ok_or_else(|| self.malformed())?;
            let found = memchr::memchr2(b'"', b'\\', rest).ok_or_else(|| self.malformed())?;
            if rest[found] == b'"' {
                self.at = from + found + 1;
                return Ok(());
            }
            from += found + 2;
        }
    }

    /// Steps over an object or array. Depth is counted, not recursed into, so no text can exhaust the stack.
    fn skip_container(&mut self) -> Result<(), Malformed> {
        let mut depth = 0usize;
        while let Some(&byte) = self.text.get(self.at) {
            match byte {
                b'"' => {
                    self.skip_string()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Ok(());
            }
        }
        Err(self.malformed())
    }

    fn skip_literal(&mut self) -> Result<(), Malformed> {
        let start = self.at;
        while matches!(
            self.text.get(self.at),
            Some(b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'+' | b'-' | b'.')
        ) {
            self.at += 1;
        }
        if self.at == start { Err(self.malformed()) } else { Ok(()) }
    }

    fn value(&mut self) -> Result<Range<usize>, Malformed> {
        let first = self.peek().ok_or_else(|| self.malformed())?;
        let start = self.at;
        match first {
            b'"' => self.skip_string()?,
            b'{' | b'[' => self.skip_container()?,
            _ => self.skip_literal()?,
        }
        Ok(start..self.at)
    }

    fn member(&mut self) -> Result<Member<'a>, Malformed> {
        if self.peek() != Some(b'"') {
            return Err(self.malformed());
        }
        let start = self.at;
        self.skip_string()?;
        let key = string(&self.text[start..self.at]).ok_or(Malformed { at: start })?;
        self.expect(b':')?;
        let span = self.value()?;
        Ok(Member { key, value: &self.text[span.clone()], span })
    }
}

/// The members of the object that `text` is; spaces around it are fine, anything else is not.
pub fn members(text: &[u8]) -> Result<Vec<Member<'_>>, Malformed> {
    let mut cursor = Cursor { text, at: 0 };
    let mut found = Vec::with_capacity(8);
    list(&mut cursor, b'{', b'}', |cursor| {
        found.push(cursor.member()?);
        Ok(())
    })?;
    Ok(found)
}

/// Calls `each` with the bytes of every element of the array that `text` is.
pub fn elements<'a>(text: &'a [u8], mut each: impl FnMut(&'a [u8])) -> Result<(), Malformed> {
    let mut cursor = Cursor { text, at: 0 };
    list(&mut cursor, b'[', b']', |cursor| {
        let span = cursor.value()?;
        each(&text[span]);
        Ok(())
    })
}

fn list<'a>(
    cursor: &mut Cursor<'a>,
    open: u8,
    close: u8,
    mut item: impl FnMut(&mut Cursor<'a>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    cursor.expect(open)?;
    if cursor.peek() == Some(close) {
        cursor.at += 1;
    } else {
        loop {
            item(cursor)?;
            match cursor.peek() {
                Some(b',') => cursor.at += 1,
                Some(byte) if byte == close => break cursor.at += 1,
                _ => return Err(cursor.malformed()),
            }
        }
    }
    match cursor.peek() {
        None => Ok(()),
        Some(_) => Err(cursor.malformed()),
    }
}

/// The text of a string value, borrowed when it has no escapes.
pub fn string(value: &[u8]) -> Option<Cow<'_, str>> {
    let inner = value.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    if memchr::memchr(b'\\', inner).is_none() {
        return std::str::from_utf8(inner).ok().map(Cow::Borrowed);
    }
    let mut text = Vec::with_capacity(inner.len());
    unescape(value, |part| text.extend_from_slice(part));
    String::from_utf8(text).ok().map(Cow::Owned)
}

/// `true` or `false`.
pub fn boolean(value: &[u8]) -> Option<bool> {
    match value {
        b"true" => Some(true),
        b"false" => Some(false),
        _ => None,
    }
}

/// A whole number.
pub fn number(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// Feeds the text of a string value to `sink` in parts, without building it. A lone surrogate becomes U+FFFD.
pub fn unescape(value: &[u8], mut sink: impl FnMut(&[u8])) {
    let mut rest = value.strip_prefix(b"\"").unwrap_or(value);
    rest = rest.strip_suffix(b"\"").unwrap_or(rest);
    while let Some(at) = memchr::memchr(b'\\', rest) {
        sink(&rest[..at]);
        let plain = match rest.get(at + 1) {
            Some(b'n') => b'\n',
            Some(b't') => b'\t',
            Some(b'r') => b'\r',
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(b'u') => {
                let (character, length) = unicode_escape(&rest[at..]);
                sink(character.encode_utf8(&mut [0; 4]).as_bytes());
                rest = &rest[at + length..];
                continue;
            }
            Some(&other) => other,
            None => return,
        };
        sink(&[plain]);
        rest = &rest[at + 2..];
    }
    sink(rest);
}

/// The character of a `\u` escape or of a pair of them, and how many bytes it took.
fn unicode_escape(text: &[u8]) -> (char, usize) {
    let unit = |at: usize| {
        let digits = text.get(at + 2..at + 6).and_then(|digits| std::str::from_utf8(digits).ok())?;
        (text.get(at..at + 2)? == b"\\u").then(|| u32::from_str_radix(digits, 16).ok()).flatten()
    };
    let Some(first) = unit(0) else {
        return (char::REPLACEMENT_CHARACTER, text.len().min(2));
    };
    if (0xD800..0xDC00).contains(&first)
        && let Some(second) = unit(6).filter(|second| (0xDC00..0xE000).contains(second))
    {
        let point = 0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00);
        return (char::from_u32(point).unwrap_or(char::REPLACEMENT_CHARACTER), 12);
    }
    (char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER), 6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    #[test]
    fn members_are_found_where_they_lie() {
        let text = br#" {"model" : "m\u0041", "stream":true,"x":{"model":[1,"}"]},"n": 3} "#;
        let found = members(text).unwrap();
        let keys: Vec<_> = found.iter().map(|member| member.key.as_ref()).collect();
        assert_eq!(keys, ["model", "stream", "x", "n"]);
        assert_eq!(string(found[0].value).unwrap(), "mA");
        assert_eq!(&text[found[2].span.clone()], br#"{"model":[1,"}"]}"#);
        assert_eq!(number(found[3].value), Some(3));
    }

    #[test]
    fn a_text_without_structure_is_refused() {
        for text in [
            "",
            "x",
            "[]",
            "{",
            "{}x",
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{"a":1,}"#,
            r#"{"a":"b"#,
            r#"{"a":1 "b":2}"#,
        ] {
            assert!(members(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn deep_nesting_does_not_exhaust_the_stack() {
        let text = format!("{{\"a\":{}{}}}", "[".repeat(1_000_000), "]".repeat(1_000_000));
        assert_eq!(members(text.as_bytes()).unwrap().len(), 1);
    }

    #[test]
    fn a_lone_surrogate_becomes_the_replacement_character() {
        assert_eq!(string(br#""a\ud800b""#).unwrap(), "a\u{FFFD}b");
        assert_eq!(string(br#""\ud83d\ude00""#).unwrap(), "\u{1F600}");
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "\\PC{0,12}|[\"\\\\\n\t\u{1F600}a]{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map("\\PC{0,6}", inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_full_parser(value in json(), pretty in any::<bool>()) {
            let object = serde_json::json!({ "first": value, "second": [value] });
            let text = if pretty { serde_json::to_vec_pretty(&object) } else { serde_json::to_vec(&object) }.unwrap();
            let found = members(&text).unwrap();
            prop_assert_eq!(found.len(), 2);
            prop_assert_eq!(&serde_json::from_slice::<Value>(found[0].value).unwrap(), &value);
            let mut inner = Vec::new();
            elements(found[1].value, |element| inner.push(serde_json::from_slice::<Value>(element).unwrap())).unwrap();
            prop_assert_eq!(inner, vec![value.clone()]);
            if let Value::String(expected) = &value {
                prop_assert_eq!(string(found[0].value).unwrap().into_owned(), expected.clone());
            }
        }

        #[test]
        fn no_bytes_make_it_panic(text in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(found) = members(&text) {
                for member in found {
                    let _ = string(member.value);
                    let _ = elements(member.value, |_| {});
                }
            }
        }
    }
}
