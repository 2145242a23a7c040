//! What cargo says of our own packages.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::command::Cmd;
use crate::context::Context;

/// The packages of this workspace.
#[derive(Debug, Deserialize)]
pub(crate) struct Workspace {
    pub(crate) packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    manifest_path: PathBuf,
    pub(crate) rust_version: Option<String>,
    pub(crate) features: BTreeMap<String, Vec<String>>,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) targets: Vec<Target>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `None` for a normal one, else `dev` or `build`.
    pub(crate) kind: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
}

impl Workspace {
    pub(crate) fn read(context: &Context) -> Result<Self> {
        let text = Cmd::cargo(context).args(["metadata", "--no-deps", "--format-version", "1"]).read()?;
        serde_json::from_str(&text).context("cargo metadata wrote something else than expected")
    }

    pub(crate) fn package(&self, name: &str) -> Result<&Package> {
        self.packages
            .iter()
            .find(|package| package.name == name)
            .with_context(|| format!("there is no package {name}"))
    }
}

impl Package {
    /// The folder that it lies in.
    pub(crate) fn dir(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(Path::new("/"))
    }

    /// The names of its targets of one kind (`bin`, `bench`, `example`, `lib`, …).
    pub(crate) fn targets(&self, kind: &str) -> impl Iterator<Item = &str> {
        self.targets
            .iter()
            .filter(move |target| target.kind.iter().any(|other| other == kind))
            .map(|target| target.name.as_str())
    }

    pub(crate) fn has_target(&self, kind: &str, name: &str) -> bool {
        self.targets(kind).any(|other| other == name)
    }

    /// A package with nothing to it but its dependencies.
    #[cfg(test)]
    pub(crate) fn for_test(name: &str, dependencies: Vec<Dependency>) -> Self {
        Self {
            name: name.to_owned(),
            version: "0.1.0".to_owned(),
            manifest_path: PathBuf::from("/Cargo.toml"),
            rust_version: Some("1.95".to_owned()),
            features: BTreeMap::new(),
            dependencies,
            targets: Vec::new(),
        }
    }
}
