//! Tools that the checks need besides the Rust toolchain: whether they are there, and how they are got.

mod apt;
mod debian;
mod prebuilt;
mod wasm;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

pub(crate) use debian::program;
pub(crate) use wasm::{TARGET as WASM_TARGET, cargo as wasm_cargo};

use crate::context::Context;

/// Something that a part needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tool {
    Nextest,
    Deny,
    /// A standard library for `wasm32-unknown-unknown`.
    Wasm,
    Docker,
    Podman,
    /// Programs that the images of tests are made of.
    ImageParts,
    /// What the tests of worker images need.
    ImageTools,
}

impl Tool {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nextest => prebuilt::NEXTEST.binary,
            Self::Deny => prebuilt::DENY.binary,
            Self::Wasm => wasm::TARGET,
            Self::Docker => debian::DOCKER.name,
            Self::Podman => debian::PODMAN.name,
            Self::ImageParts => debian::IMAGE_PARTS.name,
            Self::ImageTools => debian::IMAGE_TOOLS.name,
        }
    }

    pub(crate) fn is_there(self, context: &Context) -> bool {
        match self {
            Self::Nextest => prebuilt::NEXTEST.find(context).is_some(),
            Self::Deny => prebuilt::DENY.find(context).is_some(),
            Self::Wasm => wasm::is_there(context),
            Self::Docker => debian::DOCKER.is_there(context),
            Self::Podman => debian::PODMAN.is_there(context),
            Self::ImageParts => debian::IMAGE_PARTS.is_there(context),
            Self::ImageTools => debian::IMAGE_TOOLS.is_there(context),
        }
    }

    /// What a person types to install it.
    pub(crate) fn recipe(self) -> String {
        match self {
            Self::Nextest => prebuilt::NEXTEST.recipe(),
            Self::Deny => prebuilt::DENY.recipe(),
            Self::Wasm => wasm::RECIPE.to_owned(),
            Self::Docker => debian::DOCKER.recipe(),
            Self::Podman => debian::PODMAN.recipe(),
            Self::ImageParts => debian::IMAGE_PARTS.recipe(),
            Self::ImageTools => debian::IMAGE_TOOLS.recipe(),
        }
    }

    pub(crate) fn install(self, context: &Context) -> Result<()> {
        match self {
            Self::Nextest => prebuilt::NEXTEST.install(context),
            Self::Deny => prebuilt::DENY.install(context),
            Self::Wasm => wasm::install(context),
            Self::Docker => debian::DOCKER.install(context),
            Self::Podman => debian::PODMAN.install(context),
            Self::ImageParts => debian::IMAGE_PARTS.install(context),
            Self::ImageTools => debian::IMAGE_TOOLS.install(context),
        }
    }
}

/// The program to start for `cargo nextest`.
pub(crate) fn nextest(context: &Context) -> Result<PathBuf> {
    prebuilt::NEXTEST.find(context).context("cargo-nextest is missing")
}

/// The program to start for `cargo deny`.
pub(crate) fn deny(context: &Context) -> Result<PathBuf> {
    prebuilt::DENY.find(context).context("cargo-deny is missing")
}

/// Where a tool is made before it is renamed into place: a run that is cut off leaves no half of a tool.
fn beside(dir: &Path) -> PathBuf {
    let mut path = OsString::from(dir);
    path.push(".new");
    PathBuf::from(path)
}
