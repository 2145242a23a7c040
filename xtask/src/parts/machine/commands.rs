//! The commands that the papers tell people to type.

use clap::Parser as _;

use super::markdown;
use crate::cli::Cli;
use crate::workspace::Workspace;

/// The commands in a paper's code that name something that does not exist.
pub(super) fn unknown(workspace: &Workspace, text: &str) -> Vec<String> {
    let commands = markdown::read(text).code;
    let commands = commands.iter().map(|line| line.trim().trim_start_matches("$ "));
    commands
        .filter_map(|command| Some(format!("`{command}`: {}", why_unknown(workspace, command)?)))
        .collect()
}

fn why_unknown(workspace: &Workspace, command: &str) -> Option<String> {
    let words: Vec<&str> = command.split_whitespace().take_while(|word| !word.starts_with('#')).collect();
    match words.as_slice() {
        ["cargo", "xtask", rest @ ..] => {
            let error =
                Cli::try_parse_from(["xtask"].into_iter().chain(rest.iter().copied().filter_map(filled_in)))
                    .err()?;
            let asked_for_help = !error.use_stderr();
            (!asked_for_help).then(|| error.to_string().lines().next().unwrap_or_default().to_owned())
        }
        ["cargo", "run" | "build" | "check" | "test" | "bench" | "nextest" | "clippy", rest @ ..] => {
            let options = rest.iter().take_while(|word| **word != "--");
            options.zip(rest.iter().skip(1)).find_map(|(option, value)| missing(workspace, option, value))
        }
        _ => None,
    }
}

/// A word in capitals stands for something that the reader fills in.
fn filled_in(word: &str) -> Option<&str> {
    let placeholder = word.chars().any(|c| c.is_ascii_uppercase())
        && word.chars().all(|c| c.is_ascii_uppercase() || "_…[]".contains(c));
    match word {
        _ if word.starts_with('[') || word.starts_with('…') => None,
        "PART" => Some("fmt"),
        _ if placeholder => Some("1"),
        _ => Some(word),
    }
}

fn missing(workspace: &Workspace, option: &str, value: &str) -> Option<String> {
    let kind = match option {
        "--example" => "example",
        "--bin" => "bin",
        "--bench" => "bench",
        "--test" => "test",
        "-p" | "--package" => {
            return workspace.package(value).is_err().then(|| format!("there is no package {value}"));
        }
        _ => return None,
    };
    let known = workspace.packages.iter().any(|package| package.has_target(kind, value));
    (!known && filled_in(value) == Some(value)).then(|| format!("there is no {kind} {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::{Package, Target};

    fn workspace() -> Workspace {
        let mut package = Package::for_test("outpost", Vec::new());
        package.targets.push(Target { name: "process".to_owned(), kind: vec!["example".to_owned()] });
        Workspace { packages: vec![package] }
    }

    #[test]
    fn commands_that_exist_pass() {
        let text = "`cargo xtask test`, `cargo xtask test fmt clippy`, `cargo xtask simulate --seeds N`, `cargo xtask --help`\n\
                    ```sh\n$ cargo run -p outpost --example process -- --help  # slow\ncargo add outpost-core --git URL\n```\n";
        assert_eq!(unknown(&workspace(), text), [""; 0]);
    }

    #[test]
    fn commands_that_name_what_is_not_there_are_found() {
        let of = |text: &str| unknown(&workspace(), text).len();
        assert_eq!(of("`cargo xtask tset`"), 1);
        assert_eq!(of("`cargo xtask test clipy`"), 1);
        assert_eq!(of("`cargo run --example docker`"), 1);
        assert_eq!(of("`cargo test -p outpost-nothing`"), 1);
    }
}
