//! What the repository holds at its top, and what none of its files may name.

use std::fs;

use tidy::{assert_none, files, root};

/// Everything at the top; what a folder is for stands in its README.md.
const TOP: &[&str] = &[
    ".cargo",
    ".ci",
    ".clippy.toml",
    ".dockerignore",
    ".git",
    ".gitignore",
    ".rustfmt.toml",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "deploy",
    "gateway",
    "grafana",
    "loadtests",
    "replica",
    "shared",
    // Where a build without CARGO_TARGET_DIR goes; git ignores it.
    "target",
];

#[test]
fn nothing_new_stands_at_the_top() {
    let entries =
        fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let faults: Vec<_> = entries.filter(|name| !TOP.contains(&name.as_str())).collect();
    assert_none("not at the top", &faults);
}

#[test]
fn no_file_names_a_machine_or_a_package_host() {
    // Split, so that this file does not find itself.
    let machines = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/fa", "rm/")];
    let hosts = [
        concat!("py", "pi."),
        concat!("files.python", "hosted"),
        concat!("crates", ".io"),
        concat!("npm", "js."),
    ];
    let mut faults = Vec::new();
    for file in files().iter().filter(|file| file.path != "Cargo.lock") {
        for (number, line) in file.numbered() {
            let is_link = line.contains("http:") || line.contains("https:");
            let names_machine = machines.iter().any(|path| line.contains(path));
            let names_host = is_link && hosts.iter().any(|host| line.contains(host));
            if names_machine || names_host {
                faults.push(format!("{}:{number}: {}", file.path, line.trim()));
            }
        }
    }
    assert_none("the repository stands alone", &faults);
}

#[test]
fn every_path_that_the_documents_name_exists() {
    let is_path = |word: &str| {
        let tops = ["shared/", "gateway/", "replica/", "deploy/", "loadtests/", "grafana/", ".ci/"];
        let is_plain = word.chars().all(|c| c.is_alphanumeric() || "/._-".contains(c));
        is_plain && tops.iter().any(|top| word.starts_with(top))
    };
    let mut faults = Vec::new();
    for file in files().iter().filter(|file| ["README.md", "ARCHITECTURE.md"].contains(&file.path.as_str())) {
        for (number, line) in file.numbered() {
            let words = line.split('`').skip(1).step_by(2).flat_map(str::split_whitespace);
            let missing = words.filter(|word| is_path(word) && !root().join(word).exists());
            faults.extend(missing.map(|word| format!("{}:{number}: {word}", file.path)));
        }
    }
    assert_none("documents tell the truth about the tree", &faults);
}
