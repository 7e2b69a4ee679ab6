//! Python's `json.dumps`.

use std::fmt::Write;

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// Its options.
pub struct Style {
    pub ensure_ascii: bool,
    pub indent: Option<usize>,
    /// Between elements, and between a key and its value.
    pub separators: Option<Vec<String>>,
    pub sorted: bool,
}

/// The text of a value.
pub fn dumps(value: &Value, style: &Style) -> Result<String, Error> {
    let default = [if style.indent.is_some() { "," } else { ", " }, ": "];
    let [comma, colon] = match style.separators.as_deref() {
        None => default,
        Some([comma, colon]) => [comma.as_str(), colon.as_str()],
        Some(_) => return Err(Error::new(ErrorKind::InvalidOperation, "separators should be two texts")),
    };
    let mut writer = Writer { out: String::new(), style, comma, colon, depth: 0 };
    writer.value(value)?;
    Ok(writer.out)
}

struct Writer<'s> {
    out: String,
    style: &'s Style,
    comma: &'s str,
    colon: &'s str,
    depth: usize,
}

impl Writer<'_> {
    fn value(&mut self, value: &Value) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.number(value),
            ValueKind::String => self.text(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => self.list(value)?,
            ValueKind::Map => self.map(value)?,
            kind => {
                let reason = format!("a value of kind {kind} cannot be written as JSON");
                return Err(Error::new(ErrorKind::BadSerialization, reason));
            }
        }
        Ok(())
    }

    fn number(&mut self, value: &Value) {
        // Writing to a string cannot fail.
        _ = write!(self.out, "{value}");
    }

    fn list(&mut self, value: &Value) -> Result<(), Error> {
        let elements: Vec<Value> = value.try_iter()?.collect();
        self.open('[', elements.is_empty());
        for (index, element) in elements.iter().enumerate() {
            self.before(index);
            self.value(element)?;
        }
        self.close(']', elements.is_empty());
        Ok(())
    }

    fn map(&mut self, value: &Value) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.style.sorted {
            keys.sort();
        }
        self.open('{', keys.is_empty());
        for (index, key) in keys.iter().enumerate() {
            self.before(index);
            match key.as_str() {
                Some(text) => self.text(text),
                None => self.text(&key.to_string()),
            }
            self.out.push_str(self.colon);
            self.value(&value.get_item(key)?)?;
        }
        self.close('}', keys.is_empty());
        Ok(())
    }

    fn open(&mut self, mark: char, empty: bool) {
        self.out.push(mark);
        self.depth += usize::from(!empty);
    }

    fn close(&mut self, mark: char, empty: bool) {
        if !empty {
            self.depth -= 1;
            self.new_line();
        }
        self.out.push(mark);
    }

    fn before(&mut self, index: usize) {
        if index > 0 {
            self.out.push_str(self.comma);
        }
        self.new_line();
    }

    fn new_line(&mut self) {
        if let Some(indent) = self.style.indent {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(' ', indent * self.depth));
        }
    }

    fn text(&mut self, text: &str) {
        self.out.push('"');
        for letter in text.chars() {
            match letter {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                letter if letter < ' ' || (self.style.ensure_ascii && letter > '~') => self.escape(letter),
                letter => self.out.push(letter),
            }
        }
        self.out.push('"');
    }

    /// UTF-16, as JSON has it.
    fn escape(&mut self, letter: char) {
        for unit in letter.encode_utf16(&mut [0; 2]) {
            _ = write!(self.out, "\\u{unit:04x}");
        }
    }
}
