//! The benchmarks: run by hand, since their figures depend on the machine.

use anyhow::{Result, ensure};

use crate::cli::BenchArgs;
use crate::command::Cmd;
use crate::context::Context;
use crate::workspace::Workspace;

pub(crate) fn bench(context: &Context, args: &BenchArgs) -> Result<()> {
    let workspace = Workspace::read(context)?;
    let all: Vec<(&str, &str)> = workspace
        .packages
        .iter()
        .flat_map(|package| package.targets("bench").map(|name| (package.name.as_str(), name)))
        .collect();
    if args.list {
        all.iter().for_each(|(package, name)| println!("{name:16} {package}"));
        return Ok(());
    }
    ensure!(!all.is_empty(), "the workspace has no benchmark");
    for name in &args.names {
        ensure!(all.iter().any(|(_, other)| other == name), "there is no benchmark `{name}`; see `--list`");
    }
    for (package, name) in
        all.iter().filter(|(_, name)| args.names.is_empty() || args.names.iter().any(|n| n == name))
    {
        let cmd =
            Cmd::cargo(context).args(["bench", "--package", package, "--all-features", "--bench", name]);
        if args.rest.is_empty() { cmd } else { cmd.arg("--").args(&args.rest) }.run()?;
    }
    Ok(())
}
