//! A standard library for `wasm32-unknown-unknown`.
//!
//! rustup has it for its own toolchain. Where rustup's servers are out of reach, Debian has a compiler together
//! with the source of its standard library, which is built once (half a minute) into a cache of our own; cargo
//! stays rustup's. Nothing is written under `/usr` but by apt.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::{apt, beside};
use crate::command::Cmd;
use crate::context::Context;

pub(crate) const TARGET: &str = "wasm32-unknown-unknown";

pub(super) const RECIPE: &str = "rustup target add wasm32-unknown-unknown";

/// Debian's compiler and its source; `rust-web` is the line that follows upstream in a stable release.
const DEBIAN_PACKAGES: &[&str] = &["rustc-web", "rust-web-src"];
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const DEBIAN_SOURCE: &str = "/usr/lib/rustlib/src/rust/library";

pub(super) fn is_there(context: &Context) -> bool {
    in_toolchain(context) || sysroot(context).is_some_and(|sysroot| sysroot.exists())
}

/// A cargo that can compile for [`TARGET`].
pub(crate) fn cargo(context: &Context) -> Result<Cmd> {
    if in_toolchain(context) {
        return Ok(Cmd::cargo(context));
    }
    let sysroot = sysroot(context)
        .filter(|sysroot| sysroot.exists())
        .context("there is no standard library for wasm")?;
    Ok(Cmd::cargo(context)
        .env("RUSTC", DEBIAN_RUSTC)
        .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS", format!("--sysroot={}", sysroot.display())))
}

pub(super) fn install(context: &Context) -> Result<()> {
    let rustup = Cmd::new(context, "rustup").args(["target", "add", TARGET]).env("RUST_BACKTRACE", "0").run();
    if rustup.is_ok() && in_toolchain(context) {
        return Ok(());
    }
    if !apt::is_there() {
        bail!("`{RECIPE}` failed, and there is no apt-get to get a compiler from Debian");
    }
    eprintln!("rustup could not get it; Debian's compiler builds it");
    if !Path::new(DEBIAN_RUSTC).exists() || !Path::new(DEBIAN_SOURCE).exists() {
        apt::install(context, DEBIAN_PACKAGES)?;
    }
    build_sysroot(context)
}

fn in_toolchain(context: &Context) -> bool {
    let rustc = Cmd::new(context, "rustc").args(["--print", "target-libdir", "--target", TARGET]).read();
    rustc.is_ok_and(|dir| Path::new(dir.trim()).exists())
}

/// Where the standard library of Debian's compiler is kept, by the version of that compiler.
fn sysroot(context: &Context) -> Option<PathBuf> {
    let said = Cmd::new(context, DEBIAN_RUSTC).args(["--version"]).read().ok()?;
    let version = said.split_whitespace().nth(1)?;
    Some(context.tools.join(format!("wasm-std-{version}")))
}

fn build_sysroot(context: &Context) -> Result<()> {
    let sysroot = sysroot(context).context("Debian's rustc does not say its version")?;
    let beside = beside(&sysroot);
    let _ = fs::remove_dir_all(&beside);
    let empty = beside.join("empty");
    fs::create_dir_all(empty.join("src"))?;
    fs::write(empty.join("Cargo.toml"), "[package]\nname = \"empty\"\nedition = \"2024\"\n[workspace]\n")?;
    fs::write(empty.join("src/lib.rs"), "#![no_std]\n")?;
    let built = beside.join("target");
    Cmd::cargo(context)
        .args(["build", "-Zbuild-std=std,panic_abort", "--release", "--target", TARGET, "--target-dir"])
        .arg(&built)
        .env("RUSTC", DEBIAN_RUSTC)
        // -Zbuild-std on a stable compiler; only here, so that no crate of ours sees a nightly one.
        .env("RUSTC_BOOTSTRAP", "1")
        // Without it a later `lto = true` fails with "failed to get bitcode".
        .env("RUSTFLAGS", "-Cembed-bitcode=yes")
        .current_dir(&empty)
        .run()?;
    let libraries = beside.join("lib/rustlib").join(TARGET).join("lib");
    fs::create_dir_all(&libraries)?;
    for entry in fs::read_dir(built.join(TARGET).join("release/deps"))? {
        let path = entry?.path();
        let name = path.file_name().context("a file has a name")?.to_string_lossy().into_owned();
        if name.ends_with(".rlib") && !name.starts_with("libempty-") {
            fs::rename(&path, libraries.join(name))?;
        }
    }
    fs::remove_dir_all(&built)?;
    fs::remove_dir_all(&empty)?;
    fs::rename(&beside, &sysroot).with_context(|| format!("{} cannot be put in its place", sysroot.display()))
}
