//! What `--model` means: a name, a GGUF file, a Hugging Face folder, or the weightless fake.

use std::fs;
use std::path::{Path, PathBuf};

use super::catalog::{self, DEFAULT, Known};
use super::store::Store;

/// Where a replica's weights come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// Deterministic answers, no weights.
    Fake,
    /// A GGUF file or a Hugging Face folder.
    Path(PathBuf),
    /// A model of the catalogue that is not in the store yet.
    Absent(&'static str),
}

impl Source {
    /// Reads `--model`; without it the default model is meant.
    ///
    /// # Errors
    ///
    /// When the path leads nowhere, or to something that is no model: what is missing there.
    pub fn read(word: Option<&str>, store: &Store) -> Result<Self, String> {
        let Some(word) = word else { return Ok(Self::of(DEFAULT, store)) };
        if word == "fake" {
            return Ok(Self::Fake);
        }
        let path = Path::new(word);
        if path.exists() {
            return checked(path).map(Self::Path);
        }
        if let Ok(known) = catalog::find(word) {
            return Ok(Self::of(known, store));
        }
        Err(format!(
            "--model {word}: there is no such file or folder; give a GGUF file, a Hugging Face folder, {} or fake",
            DEFAULT.name
        ))
    }

    fn of(known: &'static Known, store: &Store) -> Self {
        if store.has(known) { Self::Path(store.path(known)) } else { Self::Absent(known.name) }
    }

    /// Bytes of weights on disk.
    pub fn weight_bytes(&self) -> u64 {
        match self {
            Self::Fake => 0,
            Self::Absent(name) => catalog::find(name).map_or(0, |known| known.bytes),
            Self::Path(path) if path.is_dir() => weights_in(path),
            Self::Path(path) => fs::metadata(path).map_or(0, |file| file.len()),
        }
    }

    /// The name in the catalogue, which clients then ask for; other models go by their file's name.
    pub fn known_name(&self) -> Option<&'static str> {
        let Self::Path(path) = self else { return None };
        let file = path.file_name()?;
        catalog::KNOWN.iter().find(|known| file == known.file).map(|known| known.name)
    }

    /// What the replica's `--model` is given.
    pub fn argument(&self) -> PathBuf {
        match self {
            Self::Fake => PathBuf::from("fake"),
            Self::Absent(name) => PathBuf::from(name),
            Self::Path(path) => path.clone(),
        }
    }
}

fn checked(path: &Path) -> Result<PathBuf, String> {
    let fault = |what: &str| Err(format!("--model {}: {what}", path.display()));
    if path.is_file() {
        let mut magic = [0; 4];
        let read = fs::File::open(path).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut magic));
        return match read {
            Ok(()) if magic == *b"GGUF" => Ok(path.to_owned()),
            Ok(()) => fault("this is not a GGUF file (it does not begin with GGUF)"),
            Err(error) => fault(&format!("cannot read it: {error}")),
        };
    }
    for needed in ["config.json", "tokenizer.json"] {
        if !path.join(needed).is_file() {
            return fault(&format!("this folder has no {needed}, so it is no Hugging Face checkpoint"));
        }
    }
    if weights_in(path) == 0 {
        return fault("this folder has no *.safetensors, so it has no weights");
    }
    Ok(path.to_owned())
}

fn weights_in(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "safetensors"))
        .filter_map(|path| Some(fs::metadata(path).ok()?.len()))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(word: Option<&str>, expected: Result<Source, &str>) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path().to_owned());
        match (Source::read(word, &store), expected) {
            (Ok(found), Ok(wanted)) => assert_eq!(found, wanted),
            (Err(message), Err(part)) => assert!(message.contains(part), "{message}"),
            (found, wanted) => panic!("{found:?} instead of {wanted:?}"),
        }
    }

    #[test]
    fn a_name_of_the_catalogue_is_found_before_it_is_fetched() {
        check(None, Ok(Source::Absent(DEFAULT.name)));
        check(Some("smollm2-135m-instruct"), Ok(Source::Absent(DEFAULT.name)));
        check(Some("fake"), Ok(Source::Fake));
    }

    #[test]
    fn a_path_that_is_no_model_says_what_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        fs::write(&path, "PK\x03\x04 a zip").unwrap();
        check(path.to_str(), Err("not a GGUF file"));
        check(folder.path().to_str(), Err("no config.json"));
        fs::write(folder.path().join("config.json"), "{}").unwrap();
        fs::write(folder.path().join("tokenizer.json"), "{}").unwrap();
        check(folder.path().to_str(), Err("no *.safetensors"));
        check(Some("/no/such/thing.gguf"), Err("no such file or folder"));
    }
}
