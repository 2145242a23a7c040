//! The parts that need container engines.

use anyhow::{Context as _, Result};

use crate::command::Cmd;
use crate::context::Context;
use crate::engines::Engines;
use crate::tools;

/// The tests that run on engines; the part `tests` leaves them out.
pub(super) const ON_ENGINES: &str =
    "(package(outpost-provider-docker) & kind(test)) | (package(outpost) & binary(/^(engine|docker)$/))";

/// Most of them wait for an engine, not for a processor. The test group in `.config/nextest.toml` bounds them too.
const AT_ONCE: &str = "--test-threads=4";

pub(super) fn engines(context: &Context) -> Result<()> {
    let engines = Engines::have(context)?;
    // Only this part sets it, and it runs once.
    let _ = context.engines.set(engines);
    Ok(())
}

/// The same build as that of the part `tests`.
pub(super) fn docker(context: &Context) -> Result<()> {
    let cmd = Cmd::new(context, tools::nextest(context)?)
        .args(["nextest", "run", "--workspace", "--all-features", AT_ONCE])
        .args(["--filterset", ON_ENGINES]);
    told(context, cmd)?.run()
}

/// No other part sees this test target: `test = false` keeps its gigabytes out of a plain `cargo test`.
pub(super) fn images(context: &Context) -> Result<()> {
    let what = ["--workspace", "--all-features", "--test", "images"];
    Cmd::cargo(context).arg("clippy").args(what).args(["--", "-D", "warnings"]).run()?;
    let cmd = Cmd::new(context, tools::nextest(context)?).args(["nextest", "run"]).args(what);
    told(context, cmd)?.run()
}

/// A command that is told where the engines are.
fn told(context: &Context, cmd: Cmd) -> Result<Cmd> {
    let engines = context.engines.get().context("the part `engines` has found none")?;
    Ok(engines.variables().fold(cmd, |cmd, (name, address)| cmd.env(name, address)))
}
