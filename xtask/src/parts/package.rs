//! Every crate packages, and a crate of somebody else builds and runs on the packages.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::command::Cmd;
use crate::context::Context;
use crate::workspace::{Package, Workspace};

const XTASK: &str = "xtask";

pub(super) fn run(context: &Context) -> Result<()> {
    let workspace = Workspace::read(context)?;
    let packages: Vec<&Package> = workspace.packages.iter().filter(|package| package.name != XTASK).collect();
    Cmd::cargo(context)
        // What is not committed yet is packaged too: the point is that it would pass.
        .args(["package", "--workspace", "--exclude", XTASK, "--allow-dirty", "--quiet"])
        .run()?;
    let outside = Outside::new(context)?;
    let unpacked =
        packages.iter().map(|package| outside.unpack(context, package)).collect::<Result<Vec<_>>>()?;
    outside.write_stranger(context, &unpacked)?;
    outside.run_stranger(context)
}

/// A folder outside the workspace, gone when this is dropped.
#[derive(Debug)]
struct Outside {
    dir: PathBuf,
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A package as somebody else has it.
#[derive(Debug)]
struct Unpacked {
    name: String,
    version: String,
    dir: PathBuf,
    is_library: bool,
}

impl Outside {
    fn new(context: &Context) -> Result<Self> {
        let dir = std::env::temp_dir().join(format!("outpost-packages-{}", std::process::id()));
        ensure!(!dir.starts_with(&context.root), "{} lies in the workspace", dir.display());
        fs::create_dir_all(dir.join("stranger/src"))?;
        Ok(Self { dir })
    }

    fn unpack(&self, context: &Context, package: &Package) -> Result<Unpacked> {
        let name = format!("{}-{}", package.name, package.version);
        let archive = context.target.join("package").join(format!("{name}.crate"));
        Cmd::new(context, "tar").arg("-xzf").arg(&archive).arg("-C").arg(&self.dir).run()?;
        Ok(Unpacked {
            name: package.name.clone(),
            version: package.version.clone(),
            dir: self.dir.join(name),
            is_library: package.targets("lib").next().is_some(),
        })
    }

    /// A crate that depends on our libraries as `cargo add` writes it, with the packages in the registry's place.
    fn write_stranger(&self, context: &Context, unpacked: &[Unpacked]) -> Result<()> {
        fs::write(self.stranger().join("Cargo.toml"), stranger_manifest(unpacked))?;
        // The versions that we are tested with, and nothing to ask a registry.
        fs::copy(context.root.join("Cargo.lock"), self.stranger().join("Cargo.lock"))?;
        fs::write(self.stranger().join("src/main.rs"), include_str!("stranger.rs.txt"))?;
        Ok(())
    }

    fn run_stranger(&self, context: &Context) -> Result<()> {
        Cmd::cargo(context)
            .args(["run", "--quiet", "--offline"])
            .env("CARGO_TARGET_DIR", &context.target)
            .current_dir(&self.stranger())
            .run()
            .context("a crate outside the workspace does not build on the packages")
    }

    fn stranger(&self) -> PathBuf {
        self.dir.join("stranger")
    }
}

fn stranger_manifest(unpacked: &[Unpacked]) -> String {
    let mut text =
        "[package]\nname = \"stranger\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[dependencies]\n"
            .to_owned();
    for package in unpacked.iter().filter(|package| package.is_library) {
        text += &format!("{} = \"{}\"\n", package.name, package.version);
    }
    text += "\n[patch.crates-io]\n";
    for package in unpacked.iter().filter(|package| package.is_library) {
        text += &format!("{} = {{ path = {:?} }}\n", package.name, as_text(&package.dir));
    }
    // As in our own workspace, so that what is built already serves here as well.
    text += "\n[profile.dev]\ndebug = \"line-tables-only\"\n\n[profile.dev.package.\"*\"]\ndebug = false\n";
    text
}

fn as_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_depends_on_libraries_by_version_and_gets_them_from_the_packages() {
        let package = |name: &str, is_library| Unpacked {
            name: name.to_owned(),
            version: "0.1.0".to_owned(),
            dir: format!("/there/{name}-0.1.0").into(),
            is_library,
        };
        let text = stranger_manifest(&[package("outpost-core", true), package("outpost-tool", false)]);
        assert!(text.contains("\noutpost-core = \"0.1.0\"\n"), "{text}");
        assert!(text.contains("\noutpost-core = { path = \"/there/outpost-core-0.1.0\" }\n"), "{text}");
        assert!(!text.contains("outpost-tool"), "{text}");
    }
}
