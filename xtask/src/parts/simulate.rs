//! The simulated world, played in release mode.

use anyhow::{Result, ensure};

use crate::command::Cmd;
use crate::context::Context;
use crate::workspace::Workspace;

/// How many seeds `cargo xtask test` plays; on two cores they must stay under two minutes.
pub(crate) const SEEDS: u64 = 2_000;

const PACKAGE: &str = "outpost-testkit";
const BINARY: &str = "simulate";

pub(super) fn part(context: &Context) -> Result<()> {
    simulate(context, SEEDS, 0, &[])
}

pub(crate) fn simulate(context: &Context, seeds: u64, from: u64, rest: &[String]) -> Result<()> {
    let workspace = Workspace::read(context)?;
    ensure!(workspace.package(PACKAGE)?.has_target("bin", BINARY), "{PACKAGE} has no binary `{BINARY}`");
    Cmd::cargo(context)
        .args(["run", "--release", "--package", PACKAGE, "--bin", BINARY, "--"])
        .args(["--seeds", &seeds.to_string(), "--from", &from.to_string()])
        .args(rest)
        .run()
}
