//! Every crate packages, and a crate of somebody else builds and runs on the packages.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::command::Cmd;
use crate::context::Context;
use crate::workspace::{Package, Workspace};

const XTASK: &str = "xtask";

/// As in our own workspace, so that what is built already serves here as well.
const PROFILE: &str = "\
[profile.dev]
debug = \"line-tables-only\"
[profile.dev.package.\"*\"]
debug = false
";

pub(super) fn run(context: &Context) -> Result<()> {
    let workspace = Workspace::read(context)?;
    let packages: Vec<&Package> = workspace.packages.iter().filter(|package| package.name != XTASK).collect();
    let outside = Outside::new(context)?;
    let mut unpacked = Vec::new();
    for package in &packages {
        outside.package(context, package, &beneath(package, &packages))?;
        unpacked.push(outside.unpack(context, package)?);
    }
    outside.write_stranger(context, &unpacked)?;
    outside.run_stranger(context)
}

/// What a package depends on among ours: its own dependencies of every kind, and what these need in their turn.
fn beneath<'a>(package: &Package, ours: &[&'a Package]) -> Vec<&'a Package> {
    let mut found: Vec<&Package> = Vec::new();
    let mut names: Vec<&str> =
        package.dependencies.iter().map(|dependency| dependency.name.as_str()).collect();
    while let Some(name) = names.pop() {
        let Some(next) = ours.iter().find(|other| other.name == name && other.name != package.name) else {
            continue;
        };
        if !found.iter().any(|other| other.name == name) {
            found.push(next);
            names.extend(
                next.dependencies
                    .iter()
                    .filter(|d| d.kind.as_deref() != Some("dev"))
                    .map(|d| d.name.as_str()),
            );
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
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

    /// Packages one and builds it from its package.
    fn package(&self, context: &Context, package: &Package, beneath: &[&Package]) -> Result<()> {
        let config = self.dir.join("packaging.toml");
        fs::write(&config, packaging_config(beneath))?;
        Cmd::cargo(context)
            // What is not committed yet is packaged too: the point is that it would pass.
            .args(["package", "--quiet", "--allow-dirty", "--package", &package.name, "--config"])
            .arg(&config)
            .run()
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
    let libraries = unpacked.iter().filter(|package| package.is_library);
    text + &patches(libraries.map(|package| (package.name.as_str(), package.dir.as_path()))) + PROFILE
}

/// The registry has packages of other people under some of our names, and cargo would take those: what is packaged
/// from here is never published, and so finds its own kind only by a patch.
fn packaging_config(beneath: &[&Package]) -> String {
    patches(beneath.iter().map(|package| (package.name.as_str(), package.dir()))) + PROFILE
}

fn patches<'a>(packages: impl Iterator<Item = (&'a str, &'a Path)>) -> String {
    let lines = packages.map(|(name, dir)| format!("{name} = {{ path = {:?} }}\n", dir.to_string_lossy()));
    format!("\n[patch.crates-io]\n{}\n", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;

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

    #[test]
    fn a_package_is_built_on_all_of_ours_that_it_needs_and_on_no_other() {
        let package = |name: &str, dependencies: &[(&str, Option<&str>)]| {
            let dependency = |(name, kind): &(&str, Option<&str>)| Dependency {
                name: (*name).to_owned(),
                kind: kind.map(ToOwned::to_owned),
            };
            Package::for_test(name, dependencies.iter().map(dependency).collect())
        };
        let all = [
            package("core", &[("serde", None)]),
            package("api", &[("core", None)]),
            package("kit", &[("api", None), ("other", Some("dev"))]),
            package("app", &[("kit", Some("dev"))]),
            package("other", &[]),
        ];
        let all: Vec<&Package> = all.iter().collect();
        let names =
            |package: &Package| beneath(package, &all).iter().map(|p| p.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(all[3]), ["api", "core", "kit"]);
        assert_eq!(names(all[0]), [""; 0]);
    }
}
