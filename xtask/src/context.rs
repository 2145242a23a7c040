//! What every part needs to know of its surroundings.

use std::cell::OnceCell;
use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::engines::Engines;

/// Whether tools and system packages may be installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Permission {
    /// `CI=true`, or the person at the keyboard said `--install`.
    Install,
    /// Only say what is missing.
    AskFirst,
}

/// Where the work is done, and what may be done.
#[derive(Debug)]
pub(crate) struct Context {
    /// The workspace's folder.
    pub(crate) root: PathBuf,
    /// The folder that cargo builds into.
    pub(crate) target: PathBuf,
    /// Where tools are kept between runs and between clones.
    pub(crate) tools: PathBuf,
    /// Whether anything may be installed.
    pub(crate) permission: Permission,
    /// The container engines, once the part `engines` has them.
    pub(crate) engines: OnceCell<Engines>,
}

impl Context {
    /// Finds the workspace that this program was built from.
    pub(crate) fn new(permission: Permission) -> Result<Self> {
        // cargo sets it for `cargo run`; the one from build time serves a program started by hand.
        let manifest = env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = manifest.parent().context("xtask lies in no workspace")?.to_path_buf();
        let target =
            env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
        let tools = tools_dir()?;
        Ok(Self { root, target, tools, permission, engines: OnceCell::new() })
    }
}

/// True in continuous integration, as every such service says it.
pub(crate) fn in_ci() -> bool {
    env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

fn tools_dir() -> Result<PathBuf> {
    if let Some(dir) = env::var_os("OUTPOST_TOOLS_DIR") {
        return Ok(PathBuf::from(dir));
    }
    let cache = match (env::var_os("XDG_CACHE_HOME"), env::var_os("HOME")) {
        (Some(cache), _) if Path::new(&cache).is_absolute() => PathBuf::from(cache),
        (_, Some(home)) => Path::new(&home).join(".cache"),
        _ => {
            anyhow::bail!("set HOME, XDG_CACHE_HOME or OUTPOST_TOOLS_DIR: the tools need a place to be kept")
        }
    };
    Ok(cache.join("outpost-tools"))
}
