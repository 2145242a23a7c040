//! The worker's executable: downloaded, its SHA-256 checked before it can be run, kept.

mod shelf;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use outpost_core::model::WorkerProgram;
use outpost_core::ports::{Clock, Error, ErrorKind, WorkerPrograms};
use serde_json::Value;

use self::shelf::{NEWEST_FOR, Newest, OPERATION, Shelf, is_there};
use crate::fault;
use crate::queue::json;
use crate::transport::Transport;
use crate::url::BaseUrl;

/// `devin-remote`, by commit: `latest_<suffix>`, `devin-remote_<sha>_<suffix>` and its `.sha256`.
#[derive(Debug)]
pub struct RemotePrograms {
    shelf: Shelf,
    base: BaseUrl,
    suffix: &'static str,
}

impl RemotePrograms {
    /// `devin-remote` for this machine's platform, kept in `directory`.
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
        Ok(Self { shelf: Shelf::new(directory.into(), transport, clock), base, suffix })
    }

    fn url(&self, file: &str) -> Result<String, Error> {
        self.base.join(&[file]).ok_or_else(|| fault::nonsense(OPERATION, "there can be no such file"))
    }

    async fn latest(&self, newest: &mut Newest) -> Result<String, Error> {
        let file = format!("latest_{}", self.suffix);
        let now = self.shelf.client.clock().now();
        if let Some((at, sha)) = newest.get(&file)
            && now.duration_since(*at) < NEWEST_FOR.try_into().unwrap_or_default()
        {
            return Ok(sha.clone());
        }
        let text = self.shelf.text(self.url(&file)?).await?;
        let sha = text.trim().to_owned();
        check_version(&sha)?;
        newest.insert(file, (now, sha.clone()));
        Ok(sha)
    }
}

#[async_trait]
impl WorkerPrograms for RemotePrograms {
    async fn resolve(&self, pinned: Option<&str>) -> Result<WorkerProgram, Error> {
        let mut newest = self.shelf.busy.lock().await;
        let sha = match pinned {
            Some(sha) => sha.to_owned(),
            None => self.latest(&mut newest).await?,
        };
        check_version(&sha)?;
        let name = format!("devin-remote_{sha}_{}", self.suffix);
        let path = self.shelf.directory.join(&name);
        if !is_there(&path).await {
            let sums = self.shelf.text(self.url(&format!("{name}.sha256"))?).await?;
            let expected = checksum(&sums)?;
            self.shelf.download(self.url(&name)?, &path, &expected).await?;
        }
        Ok(WorkerProgram::File { path, version: sha })
    }
}

/// The Devin CLI, by its manifest: per platform `url` and `sha256`.
#[derive(Debug)]
pub struct CliPrograms {
    shelf: Shelf,
    manifest_url: String,
    hosts: crate::url::Hosts,
}

impl CliPrograms {
    /// The Devin CLI for this machine's platform, kept in `directory`.
    pub fn new(
        manifest: &BaseUrl,
        hosts: crate::url::Hosts,
        directory: impl Into<PathBuf>,
        transport: Arc<dyn Transport>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let manifest_url = manifest.as_url();
        Self { shelf: Shelf::new(directory.into(), transport, clock), manifest_url, hosts }
    }
}

#[async_trait]
impl WorkerPrograms for CliPrograms {
    /// A session pins `devin-remote`, not the CLI, which is told which one to fetch.
    async fn resolve(&self, _pinned: Option<&str>) -> Result<WorkerProgram, Error> {
        let mut newest = self.shelf.busy.lock().await;
        let now = self.shelf.client.clock().now();
        if let Some((at, path)) = newest.get("cli")
            && now.duration_since(*at) < NEWEST_FOR.try_into().unwrap_or_default()
            && is_there(Path::new(path)).await
        {
            let path = PathBuf::from(path);
            return Ok(WorkerProgram::File { version: version_of(&path), path });
        }
        let manifest = json(OPERATION, self.shelf.text(self.manifest_url.clone()).await?.as_bytes())?;
        let (url, sha256) = entry(&manifest)?;
        let url = BaseUrl::parse(&url, self.hosts)
            .map_err(|error| fault::nonsense(OPERATION, error.to_string()))?;
        let expected = checksum(&sha256)?;
        let path = self.shelf.directory.join(format!("devin_{}", &expected[..12]));
        if !is_there(&path).await {
            self.shelf.download(url.as_url(), &path, &expected).await?;
        }
        newest.insert("cli".into(), (now, path.to_string_lossy().into_owned()));
        Ok(WorkerProgram::File { version: version_of(&path), path })
    }
}

fn version_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
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

/// The digits of `<hex>` or `<hex>  <file>`.
fn checksum(text: &str) -> Result<String, Error> {
    let hex = text.split_whitespace().next().unwrap_or_default().to_ascii_lowercase();
    if hex.len() == 64 && hex.chars().all(|c| c.is_ascii_hexdigit()) {
        return Ok(hex);
    }
    Err(fault::nonsense(OPERATION, "what was published as the SHA-256 is none"))
}
