//! Traces of a workplace: its folders, its registries, its secrets.

use std::path::{Path, PathBuf};
use std::{env, fs};

use super::File;

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";
const NPM: &str = "https://registry.npmjs.org/";

/// How a secret begins, and how many more characters of a token make it a real one.
const SECRETS: &[(&str, usize)] = &[("cog_", 20), ("github_pat_", 20), ("ghp_", 20), ("AKIA", 16)];

/// What would put another registry in the place of the public one.
const REGISTRY_SETTINGS: &[&str] = &["replace-with", "index-url", "registry="];
const REGISTRY_FILES: &[&str] = &[".cargo/config.toml", ".npmrc", "pip.conf"];

/// The folders of the machine that we run on.
#[derive(Debug)]
pub(super) struct Place {
    folders: Vec<PathBuf>,
}

impl Place {
    /// The checkout, what lies beside it, and the home folder: paths that mean nothing elsewhere.
    pub(super) fn here(root: &Path) -> Self {
        let mut folders = vec![root.to_path_buf()];
        let parent = root
            .parent()
            .filter(|parent| parent.components().count() > 1 && !parent.starts_with(env::temp_dir()));
        if let Some(entries) = parent.and_then(|parent| fs::read_dir(parent).ok()) {
            folders.extend(entries.filter_map(|entry| Some(entry.ok()?.path())));
        }
        // Every container has a /root.
        folders.extend(env::var_os("HOME").map(PathBuf::from).filter(|home| home.components().count() > 2));
        Self { folders }
    }

    pub(super) fn traces(&self, file: &File) -> Vec<String> {
        let mut found = Vec::new();
        for (index, line) in file.text.lines().enumerate() {
            let mut say = |what: String| found.push(format!("line {}: {what}", index + 1));
            for folder in self.folders.iter().filter_map(|folder| folder.to_str()) {
                if has_path(line, folder) {
                    say(format!("names {folder}, a folder of this machine"));
                }
            }
        }
        found.extend(registries(file));
        found.extend(secrets(file));
        found
    }
}

/// Whether `line` names `folder` or something in it, not merely a longer path that has it inside.
fn has_path(line: &str, folder: &str) -> bool {
    let part_of_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + folder.len()..].chars().next();
        !before.is_some_and(|c| part_of_name(c) || c == '}') && !after.is_some_and(part_of_name)
    })
}

fn registries(file: &File) -> Vec<String> {
    let name = file.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let quoted = |line: &str, key: &str| -> Option<String> {
        let value = line.trim().strip_prefix(key)?.trim_matches([' ', '=', ':', '"', ',']);
        Some(value.to_owned())
    };
    let lines = || file.text.lines();
    match name {
        "Cargo.lock" => lines()
            .filter_map(|line| quoted(line, "source"))
            .filter(|source| source != CRATES_IO)
            .map(|source| format!("takes a crate from {source}"))
            .collect(),
        "package-lock.json" => lines()
            .filter_map(|line| quoted(line, "\"resolved\""))
            .filter(|source| !source.starts_with(NPM))
            .map(|source| format!("takes a package from {source}"))
            .collect(),
        _ if REGISTRY_FILES.iter().any(|end| file.path.ends_with(end)) => REGISTRY_SETTINGS
            .iter()
            .filter(|setting| file.text.contains(**setting))
            .map(|setting| format!("sets `{setting}`, which only fits one place"))
            .collect(),
        _ => Vec::new(),
    }
}

/// Tokens outside tests, which have to make some up.
fn secrets(file: &File) -> Vec<String> {
    let in_tests = |part: &str| part == "tests" || part == "tests.rs" || part == "fixtures";
    if file.path.iter().any(|part| part.to_str().is_some_and(in_tests)) {
        return Vec::new();
    }
    let text = file.text.split("#[cfg(test)]").next().unwrap_or_default();
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for (start, length) in SECRETS {
            let is_secret = line.match_indices(start).any(|(at, _)| {
                let rest = &line[at + start.len()..];
                rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').count() >= *length
            });
            if is_secret {
                found.push(format!("line {}: holds what looks like a token ({start}…)", index + 1));
            }
        }
        if line.contains("-----BEGIN") && line.contains("PRIVATE KEY-----") {
            found.push(format!("line {}: holds a private key", index + 1));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: impl Into<String>) -> File {
        File { path: path.into(), text: text.into() }
    }

    #[test]
    fn a_folder_of_this_machine_is_found() {
        let place = Place { folders: vec!["/place/outpost".into()] };
        let traces = |text: &str| place.traces(&file("a.rs", text)).len();
        assert_eq!(traces("let x = 1;\n// see /place/outpost/notes"), 1);
        assert_eq!(traces("\"/place/outpost\""), 1);
        assert_eq!(traces("/place/outposts and /other/place/outpost"), 0);
    }

    #[test]
    fn a_planted_token_is_found_and_one_in_a_test_is_not() {
        let token = format!("let t = \"{}{}\";", "cog_", "a1".repeat(12));
        assert_eq!(secrets(&file("src/a.rs", token.clone())).len(), 1);
        assert_eq!(
            secrets(&file("src/a.rs", format!("fn a() {{}}\n#[cfg(test)]\nmod tests {{ {token} }}"))).len(),
            0
        );
        assert_eq!(secrets(&file("crate/tests/a.rs", token)).len(), 0);
        assert_eq!(secrets(&file("README.md", "tokens begin with `cog_`")).len(), 0);
    }

    #[test]
    fn a_mirror_in_a_lock_file_is_found() {
        let mirror = "source = \"registry+https://mirror.example/index\"\n";
        assert_eq!(registries(&file("Cargo.lock", mirror)).len(), 1);
        assert_eq!(registries(&file("Cargo.lock", format!("source = \"{CRATES_IO}\"\n"))).len(), 0);
        assert_eq!(
            registries(&file("w/package-lock.json", "  \"resolved\": \"https://mirror.example/a.tgz\","))
                .len(),
            1
        );
        assert_eq!(
            registries(&file("w/package-lock.json", format!("  \"resolved\": \"{NPM}a.tgz\","))).len(),
            0
        );
        assert_eq!(
            registries(&file(".cargo/config.toml", "[source.crates-io]\nreplace-with = \"x\"")).len(),
            1
        );
    }
}
