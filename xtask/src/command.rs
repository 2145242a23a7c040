//! Other programs, run where a person can follow them.

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::context::{Context, in_ci};

/// A command that is printed before it runs and must succeed.
#[derive(Debug)]
pub(crate) struct Cmd {
    inner: Command,
    /// What a person would type, with the environment that matters.
    shown: String,
}

impl Cmd {
    /// A program, run in the workspace's folder.
    pub(crate) fn new(context: &Context, program: impl AsRef<OsStr>) -> Self {
        let program = program.as_ref();
        let mut inner = Command::new(program);
        inner.current_dir(&context.root).stdin(Stdio::null());
        for name in
            inherited_from_cargo_run(env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()))
        {
            inner.env_remove(name);
        }
        if in_ci() {
            // A fresh clone is built once: what incremental compilation writes is never read.
            inner.env("CARGO_INCREMENTAL", "0");
        }
        Self { inner, shown: display(program) }
    }

    /// cargo, the one that runs us.
    pub(crate) fn cargo(context: &Context) -> Self {
        let mut cmd = Self::new(context, env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        "cargo".clone_into(&mut cmd.shown);
        cmd
    }

    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.shown.push(' ');
        self.shown.push_str(&display(arg.as_ref()));
        self.inner.arg(arg);
        self
    }

    pub(crate) fn args<S: AsRef<OsStr>>(self, args: impl IntoIterator<Item = S>) -> Self {
        args.into_iter().fold(self, Self::arg)
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.shown = format!("{name}={} {}", display(value.as_ref()), self.shown);
        self.inner.env(name, value);
        self
    }

    pub(crate) fn current_dir(mut self, dir: &Path) -> Self {
        self.inner.current_dir(dir);
        self
    }

    /// Runs it with its output going where ours goes.
    pub(crate) fn run(mut self) -> Result<()> {
        eprintln!("$ {}", self.shown);
        let status = self.inner.status().with_context(|| format!("`{}` did not start", self.shown))?;
        if !status.success() {
            bail!("`{}` failed: {status}", self.shown);
        }
        Ok(())
    }

    /// Starts it with its output going into a file, and does not wait for it.
    pub(crate) fn spawn(mut self, log: File) -> Result<Child> {
        eprintln!("$ {} &", self.shown);
        self.inner.stdout(log.try_clone()?).stderr(log);
        self.inner.spawn().with_context(|| format!("`{}` did not start", self.shown))
    }

    /// Runs it and hands back what it wrote to its standard output.
    pub(crate) fn read(mut self) -> Result<String> {
        let output = self.inner.output().with_context(|| format!("`{}` did not start", self.shown))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("`{}` failed: {}: {}", self.shown, output.status, said.trim());
        }
        String::from_utf8(output.stdout).with_context(|| format!("`{}` wrote no UTF-8", self.shown))
    }
}

impl fmt::Display for Cmd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// True when what we start may do everything.
pub(crate) fn is_root(context: &Context) -> Result<bool> {
    Ok(Cmd::new(context, "id").arg("-u").read()?.trim() == "0")
}

/// The variables that `cargo run` set for us and that the cargo we start must not see: build scripts that watch
/// one of them would run again each time the checks are started in another way.
fn inherited_from_cargo_run(names: impl Iterator<Item = String>) -> Vec<String> {
    const EXACT: &[&str] =
        &["CARGO_BIN_NAME", "CARGO_CRATE_NAME", "CARGO_PRIMARY_PACKAGE", "LD_LIBRARY_PATH"];
    const PREFIXES: &[&str] = &["CARGO_PKG_", "CARGO_MANIFEST_"];
    names
        .filter(|name| {
            EXACT.contains(&name.as_str()) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        })
        .collect()
}

fn display(text: &OsStr) -> String {
    let text = text.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.into_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cargo_run_set_is_taken_away_and_nothing_else() {
        let names =
            ["CARGO_PKG_NAME", "CARGO_MANIFEST_DIR", "CARGO_HOME", "PATH", "LD_LIBRARY_PATH", "CARGO"];
        let removed = inherited_from_cargo_run(names.iter().map(|name| (*name).to_owned()));
        assert_eq!(removed, ["CARGO_PKG_NAME", "CARGO_MANIFEST_DIR", "LD_LIBRARY_PATH"]);
    }

    #[test]
    fn a_shown_command_can_be_pasted_into_a_shell() {
        assert_eq!(display(OsStr::new("--all")), "--all");
        assert_eq!(display(OsStr::new("-D warnings")), "'-D warnings'");
        assert_eq!(display(OsStr::new("it's")), r"'it'\''s'");
        assert_eq!(display(OsStr::new("")), "''");
    }
}
