//! Programs that come as packages of a Debian: the container engines, and what the tests' images are made with.

use std::env;
use std::path::PathBuf;

use anyhow::{Result, bail};

use super::apt;
use crate::command::is_root;
use crate::context::{Context, Permission};
use crate::engines::{Engine, Kind};

/// Where programs lie that no person calls.
const FURTHER_DIRS: &[&str] = &["/usr/sbin", "/sbin", "/usr/lib/podman", "/usr/libexec/podman"];

/// Programs, and the packages that have them.
#[derive(Debug)]
pub(super) struct Debian {
    pub(super) name: &'static str,
    programs: &'static [&'static str],
    packages: &'static [&'static str],
    /// The engine that they are for: they are of use only when it can be started, and not needed when it runs.
    engine: Option<Kind>,
}

pub(super) const DOCKER: Debian = Debian {
    name: "a Docker engine",
    programs: &["dockerd", "iptables"],
    packages: &["docker.io", "iptables", "ca-certificates"],
    engine: Some(Kind::Docker),
};

pub(super) const PODMAN: Debian = Debian {
    name: "a podman engine",
    programs: &["podman", "netavark", "aardvark-dns", "runc", "iptables"],
    packages: &["podman", "netavark", "aardvark-dns", "runc", "iptables"],
    engine: Some(Kind::Podman),
};

pub(super) const IMAGE_PARTS: Debian = Debian {
    name: "what the tests' images are made of",
    programs: &["busybox", "nft", "dnsmasq", "curl"],
    packages: &["busybox-static", "nftables", "dnsmasq-base", "curl"],
    engine: None,
};

pub(super) const IMAGE_TOOLS: Debian = Debian {
    name: "what worker images are tested with",
    programs: &["debootstrap", "curl", "jq"],
    packages: &["debootstrap", "curl", "jq", "ca-certificates"],
    engine: None,
};

impl Debian {
    pub(super) fn is_there(&self, context: &Context) -> bool {
        let installed = || self.programs.iter().all(|name| program(name).is_some());
        match self.engine {
            Some(kind) => Engine::find(context, kind).is_some() || (installed() && may_start(context)),
            None => installed(),
        }
    }

    pub(super) fn recipe(&self) -> String {
        let install = format!("sudo apt-get install --no-install-recommends {}", self.packages.join(" "));
        match self.engine {
            Some(kind) => format!(
                "{install}\n  and start it, as root: {}\n  or name one that runs: {}=unix:///path",
                start(kind),
                kind.variable()
            ),
            None => install,
        }
    }

    pub(super) fn install(&self, context: &Context) -> Result<()> {
        if !apt::is_there() {
            bail!("there is no apt-get; by hand: {}", self.recipe());
        }
        apt::install(context, self.packages)
    }
}

/// What starts an engine where it is installed.
fn start(kind: Kind) -> &'static str {
    match kind {
        Kind::Docker => "systemctl start docker",
        Kind::Podman => "systemctl start podman.socket",
    }
}

/// An engine changes the machine's network while it runs.
fn may_start(context: &Context) -> bool {
    context.permission == Permission::Install && is_root(context).unwrap_or(false)
}

/// Where a program lies.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let dirs = env::split_paths(&path).chain(FURTHER_DIRS.iter().map(PathBuf::from));
    dirs.map(|dir| dir.join(name)).find(|path| path.is_file())
}
