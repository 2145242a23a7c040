//! The parts that are one or two commands of the Rust toolchain.

use anyhow::Result;

use super::engines::ON_ENGINES;
use crate::command::Cmd;
use crate::context::Context;
use crate::tools;
use crate::workspace::Workspace;

pub(super) fn fmt(context: &Context) -> Result<()> {
    Cmd::cargo(context).args(["fmt", "--all", "--check"]).run()
}

pub(super) fn clippy(context: &Context) -> Result<()> {
    let what = ["--workspace", "--all-targets", "--all-features"];
    Cmd::cargo(context).arg("clippy").args(what).args(["--", "-D", "warnings"]).run()
}

/// Each feature of each package by itself, and each package with none: what `--all-features` cannot see.
pub(super) fn features(context: &Context) -> Result<()> {
    for package in Workspace::read(context)?.packages {
        let features: Vec<&String> = package.features.keys().filter(|name| *name != "default").collect();
        if features.is_empty() {
            continue;
        }
        let check =
            || Cmd::cargo(context).args(["check", "--package", &package.name, "--no-default-features"]);
        check().run()?;
        for feature in features {
            check().args(["--features", feature]).run()?;
        }
    }
    Ok(())
}

pub(super) fn docs(context: &Context) -> Result<()> {
    let what = ["--workspace", "--no-deps", "--all-features"];
    Cmd::cargo(context).arg("doc").args(what).env("RUSTDOCFLAGS", "-D warnings").run()
}

pub(super) fn tests(context: &Context) -> Result<()> {
    Cmd::new(context, tools::nextest(context)?)
        .args(["nextest", "run", "--workspace", "--all-features"])
        .arg("--filterset")
        .arg(format!("not ({ON_ENGINES})"))
        .run()
}

pub(super) fn doctests(context: &Context) -> Result<()> {
    Cmd::cargo(context).args(["test", "--doc", "--workspace", "--all-features"]).run()
}

pub(super) fn deny(context: &Context) -> Result<()> {
    // Without `--workspace` it looks at the root package alone.
    Cmd::new(context, tools::deny(context)?)
        .args(["--workspace", "check", "bans", "licenses", "sources"])
        .run()
}

/// As README tells a newcomer to.
pub(super) fn demo(context: &Context) -> Result<()> {
    Cmd::cargo(context).args(["run", "--release", "--", "demo"]).run()
}
