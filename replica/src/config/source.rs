//! Where options come from, and where a wrong one stands: defaults, then a file, then the environment, then flags.

use std::path::{Path, PathBuf};

use figment::error::Kind;
use figment::providers::{Format, Serialized, Toml, Yaml};
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};

use super::raw::{LIST_KEYS, RawConfig, SECRET_KEYS, TEXT_KEYS};
use super::{Config, ConfigError};

const PREFIX: &str = "FLOTILLA__REPLICA__";
const ENVIRONMENT: &str = "environment";
const FLAGS: &str = "flags";

/// Reads all layers and checks the result.
pub fn load(file: Option<&Path>, flags: &RawConfig) -> Result<Config, ConfigError> {
    let file = file.map(ConfigFile::read).transpose()?;
    let mut figment = Figment::new();
    if let Some(file) = &file {
        figment = file.merge_into(figment);
    }
    let variables: Vec<_> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned())))
        .collect();
    let figment = figment.merge(Environment::of(&variables)).merge(Flags(flags));
    let raw: RawConfig = figment.extract().map_err(|error| ConfigError(describe(error, file.as_ref())))?;
    Config::try_from(raw).map_err(|error| {
        let origin = figment.find_metadata(error.key).map(|origin| place(origin, error.key, file.as_ref()));
        ConfigError(format!("{}{error}", origin.unwrap_or_default()))
    })
}

/// A file's text, kept to find the line of a wrong key.
struct ConfigFile {
    path: PathBuf,
    text: String,
}

impl ConfigFile {
    fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError(format!("{}: cannot be read: {error}", path.display())))?;
        let file = Self { path: path.to_owned(), text };
        match file.duplicate() {
            Some((line, key)) => Err(ConfigError(format!("{}:{line}: {key} is set twice", path.display()))),
            None => Ok(file),
        }
    }

    fn is_yaml(&self) -> bool {
        self.path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
    }

    fn merge_into(&self, figment: Figment) -> Figment {
        if self.is_yaml() {
            figment.merge(Yaml::string(&self.text))
        } else {
            figment.merge(Toml::string(&self.text))
        }
    }

    /// Keys at the left margin with their lines: all there are, since options don't nest.
    fn keys(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().filter_map(|(index, line)| {
            let end = line.find(['=', ':'])?;
            let key = line[..end].trim_end().trim_matches(['"', '\'']);
            let is_key = !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || "_-.".contains(c));
            is_key.then_some((index + 1, key))
        })
    }

    fn duplicate(&self) -> Option<(usize, &str)> {
        let mut seen = std::collections::BTreeSet::new();
        self.keys().find(|(_, key)| !seen.insert(*key))
    }

    fn line_of(&self, key: &str) -> Option<usize> {
        self.keys().find(|(_, found)| *found == key).map(|(line, _)| line)
    }
}

/// Variables of ours as options.
struct Environment(Dict);

impl Environment {
    fn of(variables: &[(String, String)]) -> Self {
        let options = variables.iter().filter_map(|(name, value)| {
            let key = name.strip_prefix(PREFIX)?.to_ascii_lowercase();
            let value = if TEXT_KEYS.contains(&key.as_str()) {
                Value::from(value.clone())
            } else if LIST_KEYS.contains(&key.as_str()) {
                Value::from(value.split(',').map(|part| part.trim().to_owned()).collect::<Vec<_>>())
            } else {
                value.parse().unwrap_or_else(|never| match never {})
            };
            Some((key, value))
        });
        Self(options.collect())
    }
}

impl Provider for Environment {
    fn metadata(&self) -> Metadata {
        Metadata::named(ENVIRONMENT)
    }

    fn data(&self) -> figment::Result<Map<Profile, Dict>> {
        Ok(Map::from([(Profile::Default, self.0.clone())]))
    }
}

/// Flags as options: only those that were given.
struct Flags<'a>(&'a RawConfig);

impl Provider for Flags<'_> {
    fn metadata(&self) -> Metadata {
        Metadata::named(FLAGS)
    }

    fn data(&self) -> figment::Result<Map<Profile, Dict>> {
        let mut layers = Serialized::defaults(self.0).data()?;
        for layer in layers.values_mut() {
            layer.retain(|_, value| !matches!(value, Value::Empty(..)));
        }
        Ok(layers)
    }
}

/// One line for the first fault: place, key, what is wrong, what would be right.
fn describe(error: figment::Error, file: Option<&ConfigFile>) -> String {
    let key = match &error.kind {
        Kind::UnknownField(key, _) => key.clone(),
        _ => error.path.first().cloned().unwrap_or_default(),
    };
    let origin = error.metadata.as_ref().map(|origin| place(origin, &key, file)).unwrap_or_default();
    match error.kind {
        Kind::UnknownField(key, known) => match nearest(&key, known) {
            Some(right) => format!("{origin}unknown key {key}; did you mean {right}?"),
            None => format!("{origin}unknown key {key}"),
        },
        Kind::InvalidType(_, expected) | Kind::InvalidValue(_, expected)
            if SECRET_KEYS.contains(&key.as_str()) =>
        {
            format!("{origin}{key}: expected {expected}")
        }
        Kind::InvalidType(found, expected) | Kind::InvalidValue(found, expected) => {
            format!("{origin}{key}: found {found}, expected {expected}")
        }
        Kind::Message(message) => format!("{origin}{}", one_line(&message)),
        kind => format!("{origin}{key}: {}", one_line(&kind.to_string())),
    }
}

/// `file:line: `, the variable's name, or nothing for a flag (its own message names it).
fn place(origin: &Metadata, key: &str, file: Option<&ConfigFile>) -> String {
    match (origin.name.as_ref(), file) {
        (ENVIRONMENT, _) => format!("{PREFIX}{}: ", key.to_ascii_uppercase()),
        (FLAGS, _) | (_, None) => String::new(),
        (_, Some(file)) => match file.line_of(key) {
            Some(line) => format!("{}:{line}: ", file.path.display()),
            None => format!("{}: ", file.path.display()),
        },
    }
}

/// A parser's drawing of the place squeezed into one line, without the quoted source (it may hold a secret).
fn one_line(message: &str) -> String {
    let lines = message.lines().map(str::trim);
    let told = lines.filter(|line| !line.is_empty() && !line.contains('|') && !line.starts_with('^'));
    told.collect::<Vec<_>>().join(": ")
}

/// The known key at the smallest edit distance, if it is near enough to be meant.
fn nearest<'a>(key: &str, known: &[&'a str]) -> Option<&'a str> {
    let key = key.replace('-', "_").to_ascii_lowercase();
    let (distance, right) = known.iter().map(|right| (edits(&key, right), *right)).min()?;
    (distance <= key.len().max(right.len()) / 2).then_some(right)
}

/// Levenshtein distance.
fn edits(left: &str, right: &str) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in right.bytes().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_file(name: &str, text: &str) -> Result<Config, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        load(Some(&path), &RawConfig::default())
            .map_err(|error| error.to_string().replace(&format!("{}/", folder.path().display()), ""))
    }

    fn check(name: &str, text: &str, expected: &str) {
        assert_eq!(from_file(name, text).unwrap_err(), expected, "{text}");
    }

    // U135
    #[test]
    fn a_wrong_key_is_named_with_its_line_and_the_right_one() {
        check(
            "r.toml",
            "model = 'fake'\n\nmax_num_seq = 4\n",
            "r.toml:3: unknown key max_num_seq; did you mean max_num_seqs?",
        );
        check("r.yaml", "model: fake\nprot: 4\n", "r.yaml:2: unknown key prot; did you mean port?");
        check("r.toml", "[server]\nport = 1\n", "r.toml: unknown key server; did you mean seed?");
    }

    #[test]
    fn a_wrong_type_is_named_with_its_line() {
        check("r.toml", "model = 'fake'\nport = '4k'\n", "r.toml:2: port: found string \"4k\", expected u16");
        check("r.yaml", "model: [1]\n", "r.yaml:1: model: found sequence, expected a string");
    }

    #[test]
    fn a_key_set_twice_is_an_error() {
        check("r.toml", "port = 1\nport = 2\n", "r.toml:2: port is set twice");
        check("r.yaml", "port: 1\nport: 2\n", "r.yaml:2: port is set twice");
    }

    #[test]
    fn a_secret_is_never_echoed() {
        for text in
            ["model = 'fake'\napi_key = 314159", "api_key = ['314159', ['314159']]", "api_key = '314159"]
        {
            let error = from_file("r.toml", text).unwrap_err();
            assert!(!error.contains("314159"), "{error}");
        }
    }

    #[test]
    fn a_range_error_tells_where_the_value_came_from() {
        check(
            "r.toml",
            "model = 'fake'\nmax_num_seqs = 0\n",
            "r.toml:2: max_num_seqs (--max-num-seqs) is 0; it must be from 1 to 65536",
        );
    }

    #[test]
    fn variables_are_options_and_other_programs_variables_are_not() {
        let variables = [
            ("FLOTILLA__REPLICA__PORT", ""),
            ("FLOTILLA_REPLICA_PORT", "tcp://1"),
            ("FLOTILLA__GATEWAY__PORT", "x"),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let figment = Figment::new().merge(Environment::of(&variables));
        let error = figment.extract::<RawConfig>().unwrap_err();
        assert_eq!(describe(error, None), "FLOTILLA__REPLICA__PORT: port: found string \"\", expected u16");
    }

    #[test]
    fn flags_win_over_the_environment() {
        let variables = [("FLOTILLA__REPLICA__MODEL".to_owned(), "12".to_owned())];
        let flags = RawConfig { port: Some(7), ..RawConfig::default() };
        let figment = Figment::new().merge(Environment::of(&variables)).merge(Flags(&flags));
        let raw: RawConfig = figment.extract().unwrap();
        assert_eq!((raw.model.as_deref(), raw.port), (Some("12"), Some(7)));
    }
}
