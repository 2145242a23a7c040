//! Which way dependencies point, and what the core must not pull in.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail};

use crate::command::Cmd;
use crate::context::{Context, in_ci};
use crate::tools::WASM_TARGET;
use crate::workspace::{Package, Workspace};

/// The core does no I/O, runs on no particular runtime, and takes randomness as an argument.
const FOREIGN_TO_CORE: &[&str] = &[
    "tokio",
    "async-std",
    "smol",
    "mio",
    "socket2",
    "reqwest",
    "hyper",
    "h2",
    "rustls",
    "ring",
    "wasm-bindgen",
    "js-sys",
    "getrandom",
    "rand",
    "fastrand",
];

/// What each of our packages may depend on, among ours. `*` ends a name that stands for several.
const LAYERS: &[(&str, &[&str])] = &[
    ("outpost-core", &[]),
    ("outpost-devin-api", &["outpost-core"]),
    ("outpost-provider-kit", &["outpost-core"]),
    ("outpost-provider-*", &["outpost-core", "outpost-provider-kit"]),
    ("outpost-sim", &["outpost-core"]),
    ("outpost-testkit", &["outpost-core", "outpost-devin-api", "outpost-sim"]),
    ("outpost", &["outpost-core", "outpost-devin-api", "outpost-sim", "outpost-provider-*"]),
    ("xtask", &[]),
];

pub(super) fn run(context: &Context) -> Result<()> {
    let workspace = Workspace::read(context)?;
    let mut wrong = directions(&workspace.packages);
    for target in ["all", WASM_TARGET] {
        let tree = Cmd::cargo(context)
            .args(["tree", "--package", "outpost-core", "--edges", "normal", "--all-features"])
            .args(["--target", target, "--prefix", "none", "--format", "{p}"])
            .read()?;
        let found = packages(&tree);
        if !found.contains("outpost-core") {
            bail!("cargo tree does not even list outpost-core: {tree}");
        }
        wrong.extend(foreign(&found).map(|name| format!("outpost-core pulls in {name} (target {target})")));
    }
    let rustc = Cmd::new(context, "rustc").arg("--version").read()?;
    for package in &workspace.packages {
        wrong.extend(toolchain(package, &rustc, in_ci())?);
    }
    if wrong.is_empty() {
        eprintln!("{} packages point one way, and outpost-core is free of I/O", workspace.packages.len());
        return Ok(());
    }
    bail!("{}", wrong.join("; "))
}

/// The names in `cargo tree --prefix none --format {p}`: one package a line, `name v1.2.3 (…)`.
fn packages(tree: &str) -> BTreeSet<&str> {
    tree.lines().filter_map(|line| line.split_whitespace().next()).collect()
}

fn foreign<'a>(found: &'a BTreeSet<&str>) -> impl Iterator<Item = &'a str> {
    FOREIGN_TO_CORE.iter().copied().filter(|name| found.contains(name))
}

fn directions(ours: &[Package]) -> Vec<String> {
    let mut wrong = Vec::new();
    for package in ours {
        let Some((_, allowed)) = LAYERS.iter().find(|(pattern, _)| matches(pattern, &package.name)) else {
            wrong.push(format!("{} has no place in the layers (xtask/src/parts/tree.rs)", package.name));
            continue;
        };
        // Tests may look down from anywhere.
        for dependency in
            package.dependencies.iter().filter(|dependency| dependency.kind.as_deref() != Some("dev"))
        {
            let is_ours = ours.iter().any(|other| other.name == dependency.name);
            if is_ours && !allowed.iter().any(|pattern| matches(pattern, &dependency.name)) {
                wrong.push(format!("{} must not depend on {}", package.name, dependency.name));
            }
        }
    }
    wrong
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    }
}

/// CI runs the oldest toolchain that is promised, so that the promise is kept by every run.
fn toolchain(package: &Package, rustc: &str, in_ci: bool) -> Result<Option<String>> {
    let running =
        rustc.split_whitespace().nth(1).and_then(minor).context("rustc does not say its version")?;
    let Some(promised) = package.rust_version.as_deref().and_then(minor) else {
        return Ok(Some(format!("{} has no rust-version", package.name)));
    };
    Ok((in_ci && promised != running)
        .then(|| format!("{} promises Rust 1.{promised} and CI runs 1.{running}", package.name)))
}

fn minor(version: &str) -> Option<u32> {
    version.split('.').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;

    fn package(name: &str, dependencies: &[(&str, Option<&str>)]) -> Package {
        let dependency = |(name, kind): &(&str, Option<&str>)| Dependency {
            name: (*name).to_owned(),
            kind: kind.map(ToOwned::to_owned),
        };
        Package::for_test(name, dependencies.iter().map(dependency).collect())
    }

    #[test]
    fn a_runtime_under_the_core_is_seen() {
        let clean = "outpost-core v0.1.0 (/somewhere)\nserde v1.0.229\ntokio-stream-less v1.0.0\nserde v1.0.229 (*)\n";
        assert_eq!(foreign(&packages(clean)).count(), 0);
        let planted = format!("{clean}tokio v1.54.0\n\ngetrandom v0.3.0 (*)\n");
        assert_eq!(foreign(&packages(&planted)).collect::<Vec<_>>(), ["tokio", "getrandom"]);
    }

    #[test]
    fn a_provider_that_knows_the_api_or_another_provider_is_seen() {
        let ours = [
            package("outpost-core", &[]),
            package("outpost-devin-api", &[("outpost-core", None), ("reqwest", None)]),
            package("outpost-provider-a", &[("outpost-core", None), ("outpost-devin-api", None)]),
            package(
                "outpost-provider-b",
                &[("outpost-provider-a", None), ("outpost-devin-api", Some("dev"))],
            ),
        ];
        assert_eq!(
            directions(&ours),
            [
                "outpost-provider-a must not depend on outpost-devin-api",
                "outpost-provider-b must not depend on outpost-provider-a",
            ]
        );
    }

    #[test]
    fn a_core_that_builds_on_anything_of_ours_is_seen() {
        let ours = [package("outpost-core", &[("outpost-sim", Some("build"))]), package("outpost-sim", &[])];
        assert_eq!(directions(&ours), ["outpost-core must not depend on outpost-sim"]);
    }

    #[test]
    fn a_package_must_choose_its_place() {
        assert_eq!(directions(&[package("outpost-core", &[])]), [""; 0]);
        assert_eq!(directions(&[package("newcomer", &[])]).len(), 1);
    }

    #[test]
    fn a_promise_that_ci_does_not_test_is_seen() {
        let ours = package("outpost-core", &[]);
        assert_eq!(toolchain(&ours, "rustc 1.95.0 (59807616e)", true).unwrap(), None);
        assert!(toolchain(&ours, "rustc 1.96.1 (59807616e)", true).unwrap().is_some());
        assert_eq!(toolchain(&ours, "rustc 1.96.1 (59807616e)", false).unwrap(), None);
    }
}
