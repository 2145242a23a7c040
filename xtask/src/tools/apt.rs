//! Debian's packages.

use std::path::Path;

use anyhow::Result;

use crate::command::{Cmd, is_root};
use crate::context::Context;

pub(super) fn is_there() -> bool {
    Path::new("/usr/bin/apt-get").exists()
}

/// Installs packages, as root or through sudo.
pub(super) fn install(context: &Context, packages: &[&str]) -> Result<()> {
    let as_root = is_root(context)?;
    let apt = || {
        if as_root {
            Cmd::new(context, "apt-get").env("DEBIAN_FRONTEND", "noninteractive")
        } else {
            Cmd::new(context, "sudo").args(["DEBIAN_FRONTEND=noninteractive", "apt-get"])
        }
    };
    // The lists of a new machine are old or absent.
    apt().args(["-qq", "update"]).run()?;
    apt().args(["-qq", "-y", "install", "--no-install-recommends"]).args(packages).run()
}
