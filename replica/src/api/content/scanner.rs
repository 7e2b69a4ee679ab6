//! One tool call written as a JSON object, letter by letter: its name, and its arguments as they are written.

/// Reads one object.
#[derive(Clone, Debug, Default)]
pub struct Scanner {
    place: Place,
    key: String,
    name: String,
    /// Depth of brackets inside the value.
    depth: u32,
    is_in_string: bool,
    is_escaped: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Place {
    /// Before `{`.
    #[default]
    Start,
    /// Before a key or `}`.
    Key,
    InKey,
    Colon,
    /// Before a value.
    Value,
    InValue,
    /// Before `,` or `}`.
    Between,
    End,
}

/// What one letter was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Letter {
    /// Of nothing that is told.
    Other,
    /// Of the arguments.
    Argument,
    /// The last of the object.
    End,
    /// No JSON object has it here.
    Wrong,
}

impl Scanner {
    /// The function's name, once it has been read.
    pub fn name(&self) -> Option<String> {
        let is_being_read = self.key == "name" && self.place == Place::InValue;
        let is_read = !self.name.is_empty() && !is_being_read;
        is_read.then(|| serde_json::from_str(&self.name).ok())?
    }

    /// Reads a letter.
    pub fn read(&mut self, letter: char) -> Letter {
        match self.place {
            Place::InKey => self.in_key(letter),
            Place::InValue => self.in_value(letter),
            _ if letter.is_whitespace() => Letter::Other,
            Place::Start => self.go_if(letter == '{', Place::Key),
            Place::Key | Place::Between if letter == '}' => self.end(),
            Place::Key => {
                self.key.clear();
                self.go_if(letter == '"', Place::InKey)
            }
            Place::Colon => self.go_if(letter == ':', Place::Value),
            Place::Value => {
                self.place = Place::InValue;
                self.in_value(letter)
            }
            Place::Between => self.go_if(letter == ',', Place::Key),
            Place::End => Letter::Wrong,
        }
    }

    fn go_if(&mut self, is_right: bool, place: Place) -> Letter {
        self.place = place;
        if is_right { Letter::Other } else { Letter::Wrong }
    }

    fn end(&mut self) -> Letter {
        self.place = Place::End;
        Letter::End
    }

    fn in_key(&mut self, letter: char) -> Letter {
        match letter {
            '"' => self.place = Place::Colon,
            letter => self.key.push(letter),
        }
        Letter::Other
    }

    fn in_value(&mut self, letter: char) -> Letter {
        if self.depth == 0 && !self.is_in_string && matches!(letter, ',' | '}' | ']') {
            // A number or a word ends where the next thing begins.
            self.place = Place::Between;
            return self.read(letter);
        }
        let told = self.tell(letter);
        if self.is_in_string {
            let is_end = letter == '"' && !self.is_escaped;
            self.is_escaped = letter == '\\' && !self.is_escaped;
            self.is_in_string = !is_end;
        } else {
            match letter {
                '"' => self.is_in_string = true,
                '{' | '[' => self.depth += 1,
                '}' | ']' => self.depth -= 1,
                _ => return told,
            }
        }
        if self.depth == 0 && !self.is_in_string {
            self.place = Place::Between;
        }
        told
    }

    fn tell(&mut self, letter: char) -> Letter {
        match self.key.as_str() {
            "name" => {
                self.name.push(letter);
                Letter::Other
            }
            "arguments" | "parameters" => Letter::Argument,
            _ => Letter::Other,
        }
    }
}
