//! Sizes, names, module docs and `unsafe`, in every file of Rust.

use std::path::Path;

use tidy::{File, assert_none, sources};

const FILE_LINES_MAX: usize = 500;
const MAIN_LINES_MAX: usize = 60;

/// Words that say nothing about what a thing is.
const HOLLOW: &[&str] = &["Handler", "Helper", "Util", "Utils", "Service", "Info", "Data", "Manager"];
/// The one manager there is.
const NAMES_ALLOWED: &[&str] = &["BlockManager"];
/// Verbs that say nothing about what is done.
const HOLLOW_VERBS: &[&str] = &["process", "handle", "do"];
/// Files nobody would find by their name.
const HOLLOW_FILES: &[&str] =
    &["util", "utils", "common", "helper", "helpers", "misc", "manager", "handler", "types"];

/// Where `unsafe` may be; each place says why its blocks are sound.
const UNSAFE_ALLOWED: &[&str] = &["replica/src/kernel", "replica/src/parallel/nccl", "replica/src/weights"];

#[test]
fn no_file_is_longer_than_its_wall() {
    let faults: Vec<_> = sources()
        .iter()
        .filter_map(|file| {
            let wall = if file.path.ends_with("/src/main.rs") { MAIN_LINES_MAX } else { FILE_LINES_MAX };
            let lines = file.text.lines().count();
            (lines > wall).then(|| format!("{}: {lines} lines, the wall is {wall}", file.path))
        })
        .collect();
    assert_none("split by noun", &faults);
}

/// Tests beside the code: their parent says what they are about.
fn is_unit_test(path: &str) -> bool {
    path.split_once("/src/")
        .is_some_and(|(_, inside)| inside.split('/').any(|part| part == "tests" || part == "tests.rs"))
}

#[test]
fn every_file_says_what_it_is_for() {
    let faults: Vec<_> = sources()
        .iter()
        .filter(|file| !file.text.starts_with("//! ") && !is_unit_test(&file.path))
        .map(|file| format!("{}: begins without a module doc", file.path))
        .collect();
    assert_none("a module says what it decides and what it refuses to know", &faults);
}

/// The name that a line defines, with its keyword.
fn defined(line: &str) -> Option<(&str, &str)> {
    let mut line = line.trim_start();
    for before in ["pub(crate) ", "pub(super) ", "pub ", "const ", "async ", "unsafe "] {
        line = line.strip_prefix(before).unwrap_or(line);
    }
    let (keyword, rest) = line.split_once(' ')?;
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    ["struct", "enum", "trait", "union", "type", "mod", "fn"].contains(&keyword).then_some((keyword, name))
}

/// Words of a name in camel case.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for letter in name.chars() {
        match words.last_mut() {
            Some(word) if !letter.is_uppercase() => word.push(letter),
            _ => words.push(letter.to_string()),
        }
    }
    words
}

fn is_hollow(keyword: &str, name: &str) -> bool {
    match keyword {
        "fn" => {
            let verb = name.split('_').next().unwrap_or(name);
            HOLLOW_VERBS.contains(&verb)
        }
        "mod" => HOLLOW_FILES.contains(&name),
        _ => !NAMES_ALLOWED.contains(&name) && words(name).iter().any(|word| HOLLOW.contains(&word.as_str())),
    }
}

/// A method or type of a foreign trait keeps its name: it stands indented and without `pub`.
fn is_foreign(line: &str, keyword: &str) -> bool {
    matches!(keyword, "fn" | "type") && line.starts_with(' ') && !line.trim_start().starts_with("pub")
}

#[test]
fn names_say_what_a_thing_is() {
    let mut faults = Vec::new();
    for file in sources() {
        let stem = Path::new(&file.path).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        if HOLLOW_FILES.contains(&stem) {
            faults.push(format!("{}: would a newcomer find it by its name?", file.path));
        }
        for (number, line) in file.numbered() {
            let Some((keyword, name)) = defined(line) else { continue };
            if is_hollow(keyword, name) && !is_foreign(line, keyword) {
                faults.push(format!("{}:{number}: {keyword} {name}", file.path));
            }
        }
    }
    assert_none("hollow names", &faults);
}

#[test]
fn a_hollow_name_is_recognised() {
    let check = |line, expected| {
        let (keyword, name) = defined(line).unwrap();
        assert_eq!(is_hollow(keyword, name), expected, "{line}");
    };
    check("pub struct RequestHandler {", true);
    check("enum CacheData {", true);
    check("pub struct BlockManager {", false);
    check("pub(crate) async fn handle_request(", true);
    check("fn processed() {", false);
    check("pub struct Database;", false);
    check("mod helpers;", true);
}

/// Code of a line: without comment, and blind to what stands between quotes.
fn code(line: &str) -> String {
    let line = line.split("//").next().unwrap_or_default();
    line.split('"').step_by(2).collect::<Vec<_>>().join("\"\"")
}

#[test]
fn unsafe_stands_only_where_it_is_argued() {
    let mut faults = Vec::new();
    for file in
        sources().iter().filter(|file| !UNSAFE_ALLOWED.iter().any(|place| file.path.starts_with(place)))
    {
        for (number, line) in file.numbered() {
            let has_unsafe =
                code(line).split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "unsafe");
            if has_unsafe {
                faults.push(format!("{}:{number}: {}", file.path, line.trim()));
            }
        }
    }
    assert_none("unsafe outside kernel, nccl and weights", &faults);
}

#[test]
fn nothing_is_left_undone() {
    // Split, so that this file does not find itself.
    let marks = [
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
        concat!("FIX", "ME"),
        concat!("#[ign", "ore"),
    ];
    let mut faults = Vec::new();
    for file in sources() {
        let lines = file.numbered().filter(|(_, line)| marks.iter().any(|mark| line.contains(mark)));
        faults.extend(lines.map(|(number, line)| format!("{}:{number}: {}", file.path, line.trim())));
    }
    assert_none("a thing that isn't done isn't there", &faults);
}

/// `mod.rs` and `lib.rs` hold docs and re-exports; a function of more than a few lines has a noun of its own.
#[test]
fn lib_files_stay_small() {
    let is_small = |file: &File| !file.path.ends_with("/src/lib.rs") || file.text.lines().count() <= 150;
    let faults: Vec<_> = sources().into_iter().filter(|file| !is_small(file)).map(|file| file.path).collect();
    assert_none("lib.rs is a composition root", &faults);
}
