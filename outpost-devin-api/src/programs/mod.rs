//! The worker's executable: downloaded, its SHA-256 checked before it can be run, kept.

mod files;
mod flights;
mod shelf;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use outpost_core::model::WorkerProgram;
use outpost_core::ports::{Clock, Error, ErrorKind, WorkerPrograms};
use serde_json::Value;

use self::files::checksum;
use self::shelf::{OPERATION, Release, Shelf, Sum};
use crate::fault;
use crate::queue::json;
use crate::transport::Transport;
use crate::url::{BaseUrl, Hosts};

/// `devin-remote`, by commit: `latest_<suffix>`, `devin-remote_<sha>_<suffix>` and its `.sha256`.
///
/// Finding one needs a tokio runtime. A download goes on when the call that began it is dropped, and ends with this value. While the
/// newest cannot be had, the newest that was had before is used, and a warning logged.
#[derive(Debug)]
pub struct RemotePrograms {
    shelf: Shelf,
    served: Remote,
}

/// Where `devin-remote` for one platform is served.
#[derive(Debug, Clone)]
struct Remote {
    base: BaseUrl,
    suffix: &'static str,
}

impl RemotePrograms {
    /// `devin-remote` for this machine's platform, kept in `directory`, from which the remains of downloads are removed.
    ///
    /// # Errors
    /// When there is none for this platform.
    pub fn new(
        base: BaseUrl,
        directory: impl Into<PathBuf>,
        transport: Arc<dyn Transport>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Error> {
        let suffix = match (std::env::consts::OS, std::env::consts::ARCH) {
            ("linux", "x86_64") => "linux_x64",
            ("linux", "aarch64") => "linux_arm64",
            ("macos", "aarch64") => "macos_arm64",
            (os, arch) => {
                let what = format!("there is no devin-remote for {os} on {arch}");
                return Err(Error::new(ErrorKind::Unsupported, fault::WHO, OPERATION, what));
            }
        };
        let shelf = Shelf::new(directory.into(), &format!("latest_{suffix}"), transport, clock);
        Ok(Self { shelf, served: Remote { base, suffix } })
    }
}

impl Remote {
    fn url(&self, file: &str) -> Result<String, Error> {
        self.base.join(&[file]).ok_or_else(|| fault::nonsense(OPERATION, "there can be no such file"))
    }

    fn release(&self, sha: &str) -> Result<Release, Error> {
        check_version(sha)?;
        let name = format!("devin-remote_{sha}_{}", self.suffix);
        Ok(Release {
            version: sha.to_owned(),
            url: self.url(&name)?,
            sha256: Sum::At(self.url(&format!("{name}.sha256"))?),
            name,
        })
    }
}

#[async_trait]
impl WorkerPrograms for RemotePrograms {
    async fn resolve(&self, pinned: Option<&str>) -> Result<WorkerProgram, Error> {
        if let Some(sha) = pinned {
            return self.shelf.have(self.served.release(sha)?).await;
        }
        let served = self.served.clone();
        let ask = |shelf: Arc<shelf::Inner>| async move {
            let sha = shelf.text(served.url(&format!("latest_{}", served.suffix))?).await?;
            served.release(sha.trim())
        };
        self.shelf.newest(ask).await
    }
}

/// The Devin CLI, by its manifest: per platform `url` and `sha256`.
///
/// Finding one needs a tokio runtime. A download goes on when the call that began it is dropped, and ends with this value. While the
/// newest cannot be had, the newest that was had before is used, and a warning logged.
#[derive(Debug)]
pub struct CliPrograms {
    shelf: Shelf,
    manifest_url: String,
    hosts: Hosts,
}

impl CliPrograms {
    /// The Devin CLI for this machine's platform, kept in `directory`, from which the remains of downloads are removed.
    pub fn new(
        manifest: &BaseUrl,
        hosts: Hosts,
        directory: impl Into<PathBuf>,
        transport: Arc<dyn Transport>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let shelf = Shelf::new(directory.into(), "latest_cli", transport, clock);
        Self { shelf, manifest_url: manifest.as_url(), hosts }
    }
}

#[async_trait]
impl WorkerPrograms for CliPrograms {
    /// A session pins `devin-remote`, not the CLI, which is told which one to fetch.
    async fn resolve(&self, _pinned: Option<&str>) -> Result<WorkerProgram, Error> {
        let (manifest_url, hosts) = (self.manifest_url.clone(), self.hosts);
        let ask = |shelf: Arc<shelf::Inner>| async move {
            let manifest = json(OPERATION, shelf.text(manifest_url).await?.as_bytes())?;
            let (url, sha256) = entry(&manifest)?;
            let url = BaseUrl::parse(&url, hosts)
                .map_err(|error| fault::nonsense(OPERATION, error.to_string()))?
                .as_url();
            let sha256 = checksum(&sha256)?;
            let name = format!("devin_{}", &sha256[..12]);
            Ok(Release { version: name.clone(), name, url, sha256: Sum::Known(sha256) })
        };
        self.shelf.newest(ask).await
    }
}

/// This platform's `url` and `sha256`, wherever in the manifest an entry for it stands.
fn entry(manifest: &Value) -> Result<(String, String), Error> {
    let (arch, os) = (std::env::consts::ARCH, std::env::consts::OS);
    let fits =
        |name: &str| name.starts_with(arch) && name.contains(if os == "macos" { "darwin" } else { os });
    let platforms = manifest.get("platforms").unwrap_or(manifest);
    let found = platforms
        .as_object()
        .and_then(|platforms| platforms.iter().find(|(name, _)| fits(name)).map(|(_, entry)| entry));
    let text = |name: &str| found.and_then(|entry| entry[name].as_str()).map(str::to_owned);
    text("url")
        .zip(text("sha256"))
        .ok_or_else(|| fault::nonsense(OPERATION, format!("the manifest has no entry for {os} on {arch}")))
}

/// A version becomes a part of a file's name and of an address.
fn check_version(text: &str) -> Result<(), Error> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if (1..=64).contains(&text.len()) && text.chars().all(allowed) && !text.starts_with('.') {
        return Ok(());
    }
    Err(fault::nonsense(OPERATION, "the version is not one: letters, digits, dots and dashes only"))
}
