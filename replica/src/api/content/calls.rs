//! Tool calls in the forms that model families write them in.

use serde_json::{Map, Value};

use super::scanner::{Letter, Scanner};
use super::{CallPiece, Piece, beginning_of};

/// How a family writes calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Form {
    /// `<tool_call>{…}</tool_call>`, several of them: Hermes, Qwen.
    Hermes,
    /// `[TOOL_CALLS][{…}, …]`: Mistral.
    Mistral,
    /// An answer that is nothing but objects, with `;` or `,` between or in an array: Llama 3, plain JSON.
    Json,
    /// An answer that is nothing but the arguments of this function: a named choice.
    Named(String),
}

impl Form {
    /// What begins calls in the middle of text.
    fn marker(&self) -> Option<&'static str> {
        match self {
            Self::Hermes => Some("<tool_call>"),
            Self::Mistral => Some("[TOOL_CALLS]"),
            Self::Json | Self::Named(_) => None,
        }
    }
}

/// Words that may stand between calls and mean nothing.
const FILLERS: [&str; 3] = ["<tool_call>", "</tool_call>", "<|python_tag|>"];

/// Reads calls out of text.
#[derive(Clone, Debug)]
pub struct Calls {
    form: Form,
    /// Functions there are; an object that names another is text.
    names: Vec<String>,
    /// Whether the answer ends with its first call.
    only_one: bool,
    place: Place,
    held: String,
    /// The object being read, until it is known to be a call.
    raw: String,
    call: Option<Call>,
    whole: usize,
}

/// The call being written.
#[derive(Clone, Debug)]
struct Call {
    index: usize,
    arguments: String,
}

#[derive(Clone, Debug)]
enum Place {
    /// Text that may hold a marker.
    Text,
    /// The start of an answer that may be nothing but calls.
    Start,
    /// Between calls.
    Between,
    Object(Scanner),
    Arguments,
    /// Text to the end.
    Plain,
}

impl Calls {
    /// A reader of one answer.
    pub fn new(form: Form, names: Vec<String>, only_one: bool) -> Self {
        let place = match form {
            Form::Hermes | Form::Mistral => Place::Text,
            Form::Json => Place::Start,
            Form::Named(_) => Place::Arguments,
        };
        Self { form, names, only_one, place, held: String::new(), raw: String::new(), call: None, whole: 0 }
    }

    /// Whether the only call allowed is whole.
    pub fn is_over(&self) -> bool {
        self.only_one && self.whole > 0
    }

    /// More text.
    pub fn push(&mut self, text: &str, piece: &mut Piece) {
        self.held.push_str(text);
        while !self.held.is_empty() && !self.is_over() {
            let is_done = match &mut self.place {
                Place::Text => self.text(piece),
                Place::Start => self.start(),
                Place::Between => self.between(piece),
                Place::Object(_) => self.object(piece),
                Place::Arguments => self.arguments(piece),
                Place::Plain => {
                    piece.text.push_str(&std::mem::take(&mut self.held));
                    true
                }
            };
            if is_done {
                return;
            }
        }
    }

    /// The text ends. True when there are calls and all of them are whole.
    pub fn finish(&mut self, piece: &mut Piece) -> bool {
        if matches!(self.place, Place::Arguments)
            && let Some(call) = &self.call
        {
            let is_whole = is_object(&call.arguments);
            self.whole += usize::from(is_whole);
            return is_whole;
        }
        if self.call.is_some() {
            return false;
        }
        let (raw, held) = (std::mem::take(&mut self.raw), std::mem::take(&mut self.held));
        // What stands after the last call means nothing; without any call it was text.
        if self.whole == 0 || !matches!(self.place, Place::Between) {
            piece.text.push_str(&raw);
            piece.text.push_str(&held);
        }
        self.whole > 0
    }

    /// Each of these takes from the held text, and says whether it needs more of it.
    fn text(&mut self, piece: &mut Piece) -> bool {
        let Some(marker) = self.form.marker() else { return true };
        if let Some(at) = self.held.find(marker) {
            piece.text.push_str(&self.held[..at]);
            self.held.drain(..at + marker.len());
            self.raw.push_str(marker);
            self.place = Place::Between;
            return false;
        }
        let safe = self.held.len() - beginning_of(marker, &self.held);
        piece.text.extend(self.held.drain(..safe));
        true
    }

    fn start(&mut self) -> bool {
        let begun = self.held.trim_start();
        if begun.is_empty() || FILLERS.iter().any(|filler| filler.starts_with(begun) && *filler != begun) {
            return true;
        }
        let is_calls =
            begun.starts_with(['{', '[']) || FILLERS.iter().any(|filler| begun.starts_with(filler));
        self.place = if is_calls { Place::Between } else { Place::Plain };
        false
    }

    fn between(&mut self, piece: &mut Piece) -> bool {
        let rest = self.held.trim_start_matches(|c: char| c.is_whitespace() || "[],;".contains(c));
        let rest = FILLERS.iter().find_map(|filler| rest.strip_prefix(filler)).unwrap_or(rest);
        let is_unclear = rest.is_empty() || FILLERS.iter().any(|filler| filler.starts_with(rest));
        let has_moved = rest.len() < self.held.len();
        // Kept until it is known whether a call follows: else it is text.
        if !rest.starts_with('{') && !is_unclear && !has_moved {
            // After a call what was skipped meant nothing; before any it was text.
            if self.whole > 0 {
                self.raw.clear();
            }
            return self.give_up(piece);
        }
        let skipped = self.held.len() - rest.len();
        self.raw.extend(self.held.drain(..skipped));
        if self.held.starts_with('{') {
            self.place = Place::Object(Scanner::default());
            return false;
        }
        is_unclear
    }

    fn object(&mut self, piece: &mut Piece) -> bool {
        let Place::Object(mut scanner) = std::mem::replace(&mut self.place, Place::Plain) else {
            return true;
        };
        let held = std::mem::take(&mut self.held);
        let mut arguments = String::new();
        for (at, letter) in held.char_indices() {
            let kind = scanner.read(letter);
            let after = at + letter.len_utf8();
            match (&mut self.call, kind) {
                (_, Letter::Wrong) => {
                    self.tell(&mut arguments, piece);
                    held[at..].clone_into(&mut self.held);
                    return self.give_up(piece);
                }
                (Some(_), Letter::Argument) => arguments.push(letter),
                (Some(_), _) => {}
                (None, _) => self.raw.push(letter),
            }
            if self.call.is_none()
                && let Some(name) = scanner.name()
            {
                if !self.names.contains(&name) {
                    held[after..].clone_into(&mut self.held);
                    return self.give_up(piece);
                }
                self.begin(&name, piece);
                arguments = written_arguments(&self.raw);
                self.raw.clear();
            }
            if kind == Letter::End {
                self.tell(&mut arguments, piece);
                held[after..].clone_into(&mut self.held);
                return self.end(piece);
            }
        }
        self.tell(&mut arguments, piece);
        self.place = Place::Object(scanner);
        true
    }

    fn arguments(&mut self, piece: &mut Piece) -> bool {
        if self.call.is_none()
            && let Form::Named(name) = self.form.clone()
        {
            self.begin(&name, piece);
        }
        let mut arguments = std::mem::take(&mut self.held);
        self.tell(&mut arguments, piece);
        true
    }

    fn begin(&mut self, name: &str, piece: &mut Piece) {
        let index = self.whole;
        self.call = Some(Call { index, arguments: String::new() });
        piece.calls.push(CallPiece {
            index,
            begin: Some((self.new_id(), name.to_owned())),
            arguments: String::new(),
        });
    }

    fn tell(&mut self, arguments: &mut String, piece: &mut Piece) {
        let Some(call) = self.call.as_mut().filter(|_| !arguments.is_empty()) else { return };
        call.arguments.push_str(arguments);
        let more = CallPiece { index: call.index, begin: None, arguments: std::mem::take(arguments) };
        piece.extend(Piece { calls: vec![more], ..Piece::default() });
    }

    /// The object is read whole.
    fn end(&mut self, piece: &mut Piece) -> bool {
        let Some(call) = &self.call else { return self.give_up(piece) };
        if call.arguments.is_empty() {
            self.tell(&mut "{}".to_owned(), piece);
        }
        let is_whole = self.call.take().is_some_and(|call| is_object(&call.arguments));
        self.whole += usize::from(is_whole);
        self.place = if is_whole { Place::Between } else { Place::Plain };
        self.is_over()
    }

    /// It is no call after all: what was read is text.
    fn give_up(&mut self, piece: &mut Piece) -> bool {
        piece.text.push_str(&std::mem::take(&mut self.raw));
        self.place = if self.form.marker().is_some() { Place::Text } else { Place::Plain };
        false
    }

    fn new_id(&self) -> String {
        let random = uuid::Uuid::new_v4().simple().to_string();
        // Mistral's template takes nine letters and refuses the rest.
        if self.form == Form::Mistral { random[..9].to_owned() } else { format!("call_{}", &random[..24]) }
    }
}

/// Arguments that were written before the name.
fn written_arguments(raw: &str) -> String {
    let start = raw.find('{').unwrap_or(0);
    let mut scanner = Scanner::default();
    raw[start..].chars().filter(|&letter| scanner.read(letter) == Letter::Argument).collect()
}

fn is_object(arguments: &str) -> bool {
    serde_json::from_str::<Map<String, Value>>(arguments).is_ok()
}
