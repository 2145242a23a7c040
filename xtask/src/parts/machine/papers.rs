//! The papers: that they are short, and that what they point at is there.

use std::fs;
use std::path::{Component, Path, PathBuf};

use super::{File, markdown};

/// A paper and the number of lines that it must stay under.
const PAPERS: &[(&str, usize)] = &[("README.md", 150), ("ARCHITECTURE.md", 200)];

pub(super) fn sizes(files: &[File]) -> Vec<String> {
    let size = |(name, under): &(&str, usize)| {
        let Some(file) = files.iter().find(|file| file.path == Path::new(name)) else {
            return Some(format!("{name} is missing"));
        };
        let lines = file.text.lines().count();
        (lines >= *under).then(|| format!("{name} has {lines} lines and must stay under {under}"))
    };
    PAPERS.iter().filter_map(size).collect()
}

/// Links to files that are not there, that lie outside the repository, or to headings that do not exist.
pub(super) fn dead_links(root: &Path, file: &File) -> Vec<String> {
    let document = markdown::read(&file.text);
    let links =
        document.links().into_iter().filter(|link| !link.contains("://") && !link.starts_with("mailto:"));
    links.filter_map(|link| Some(format!("links to {link}, {}", why_dead(root, file, link)?))).collect()
}

fn why_dead(root: &Path, file: &File, link: &str) -> Option<&'static str> {
    let (target, anchor) =
        link.split_once('#').map_or((link, None), |(target, anchor)| (target, Some(anchor)));
    let text = if target.is_empty() {
        file.text.clone()
    } else {
        let folder = file.path.parent().unwrap_or(Path::new(""));
        let Some(path) = inside(&folder.join(target)) else {
            return Some("which lies outside the repository");
        };
        if !root.join(&path).exists() {
            return Some("which is not there");
        }
        fs::read_to_string(root.join(path)).unwrap_or_default()
    };
    let anchor = anchor?;
    (!markdown::anchors(&text).iter().any(|other| other == anchor)).then_some("which no heading answers to")
}

/// Names of papers, in comments or in text, that no file bears: a reader would look for them in vain.
pub(super) fn dead_mentions(root: &Path, file: &File) -> Vec<String> {
    let mut dead = Vec::new();
    // Tests make up files of their own.
    let text = file.text.split("#[cfg(test)]").next().unwrap_or_default();
    for (index, line) in text.lines().enumerate() {
        for word in line.split(|c: char| !(c.is_ascii_alphanumeric() || "-_./".contains(c))) {
            let word = word.trim_end_matches('.');
            // What begins so is an address on the web, or a pattern.
            let named = word.ends_with(".md") && !word.starts_with(['/', '.', '-']);
            if named && !file.path.ancestors().skip(1).any(|folder| root.join(folder).join(word).exists()) {
                dead.push(format!("line {}: names {word}, which is not there", index + 1));
            }
        }
    }
    dead
}

/// Paths in a paper's code that begin in this repository and lead nowhere.
pub(super) fn dead_paths(files: &[File], file: &File) -> Vec<String> {
    let document = markdown::read(&file.text);
    let known = |path: &str| {
        let inner = format!("/{path}/");
        files
            .iter()
            .filter_map(|other| other.path.to_str())
            .any(|other| format!("/{other}/").contains(&inner))
    };
    let dead = |code: &String| {
        let path = code.trim_end_matches('/');
        let (top, _) = path.split_once('/')?;
        let is_path = path.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c));
        let begins_here = !top.is_empty() && files.iter().any(|other| other.path.starts_with(top));
        (is_path && begins_here && !known(path)).then(|| format!("names {code}, which is not there"))
    };
    document.code.iter().filter_map(dead).collect()
}

/// The path without `.` and `..`, if it stays inside.
fn inside(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                if !plain.pop() {
                    return None;
                }
            }
            Component::Normal(name) => plain.push(name),
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("docs")).unwrap();
        fs::write(root.path().join("README.md"), "# The Start\n").unwrap();
        root
    }

    #[test]
    fn a_broken_link_is_found() {
        let root = repository();
        let dead = |text: &str| {
            dead_links(root.path(), &File { path: "docs/a.md".into(), text: text.to_owned() }).len()
        };
        assert_eq!(dead("[ok](../README.md) [ok](../README.md#the-start) [ok](https://example.org/x.md)"), 0);
        assert_eq!(dead("[gone](../MISSING.md)"), 1);
        assert_eq!(dead("[gone](../README.md#the-end)"), 1);
        assert_eq!(dead("[outside](../../README.md)"), 1);
        assert_eq!(dead("[outside](/etc/passwd)"), 1);
    }

    #[test]
    fn a_paper_that_is_only_named_must_be_there_too() {
        let root = repository();
        let dead = |text: &str| {
            dead_mentions(root.path(), &File { path: "docs/a.rs".into(), text: text.to_owned() }).len()
        };
        assert_eq!(dead("// see README.md. Or https://example.org/facts.md, or *.md"), 0);
        assert_eq!(dead("// see facts/lessons.md"), 1);
        assert_eq!(dead("#[cfg(test)]\nmod tests { /* notes.md */ }"), 0);
    }

    #[test]
    fn a_path_that_leads_nowhere_is_found() {
        let file = |path: &str, text: &str| File { path: path.into(), text: text.to_owned() };
        let files = [file("core/src/plan/mod.rs", ""), file("tests/run.rs", "")];
        let dead = |text: &str| dead_paths(&files, &file("README.md", text)).len();
        assert_eq!(
            dead("`core/src/plan`, `core/src/plan/`, `tests/`, `plan/mod.rs`, `core/src/{a,b}`, `and/or`"),
            0
        );
        assert_eq!(dead("`core/src/planner`"), 1);
        assert_eq!(dead("`tests/walk.rs`"), 1);
    }

    #[test]
    fn a_paper_that_grew_too_long_or_went_missing_is_found() {
        let file = |name: &str, lines: usize| File { path: name.into(), text: "x\n".repeat(lines) };
        assert_eq!(sizes(&[file("README.md", 149), file("ARCHITECTURE.md", 199)]), [""; 0]);
        assert_eq!(sizes(&[file("README.md", 150), file("ARCHITECTURE.md", 199)]).len(), 1);
        assert_eq!(sizes(&[file("README.md", 10)]), ["ARCHITECTURE.md is missing"]);
    }
}
