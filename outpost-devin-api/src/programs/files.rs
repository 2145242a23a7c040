//! Files from a server, their SHA-256 checked before they can be run.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::{Either, select};
use http::Method;
use outpost_core::ports::{Clock, Error, ErrorKind};
use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt as _;

use super::shelf::OPERATION;
use crate::client::{Answer, Call, Client, SMALL_BODY};
use crate::fault::{self, Nature};
use crate::transport::Transport;

/// Larger than any worker.
const LARGEST: u64 = 1 << 30;
/// Without a byte for so long a download is given up.
const STALLED: Duration = Duration::from_secs(60);
/// After so long a download that drips is given up.
const LONGEST: Duration = Duration::from_secs(3600);

/// How the names of files end that are not whole.
const PART: &str = ".part";

/// Whoever serves files.
#[derive(Debug)]
pub(super) struct Files {
    client: Client,
    /// How many were begun.
    downloads: AtomicU64,
}

impl Files {
    pub(super) fn new(transport: Arc<dyn Transport>, clock: Arc<dyn Clock>) -> Self {
        // The token is for the queue.
        Self { client: Client::new(transport, clock, None), downloads: AtomicU64::new(0) }
    }

    pub(super) fn clock(&self) -> &dyn Clock {
        self.client.clock()
    }

    fn get(url: String) -> Call<'static> {
        Call {
            operation: OPERATION,
            nature: Nature::Reads,
            method: Method::GET,
            url,
            body: None,
            cap: SMALL_BODY,
        }
    }

    pub(super) async fn text(&self, url: String) -> Result<String, Error> {
        let answer = self.client.succeed(Self::get(url)).await?;
        String::from_utf8(answer.body.to_vec())
            .map_err(|_| fault::nonsense(OPERATION, "the answer is not text"))
    }

    /// Downloads beside `path`, checks, and renames into place, executable.
    pub(super) async fn download(&self, url: String, path: &Path, expected: &str) -> Result<(), Error> {
        tracing::info!(to = %path.display(), "downloading the worker");
        if let Some(directory) = path.parent() {
            tokio::fs::create_dir_all(directory).await.map_err(|error| disk(directory, error))?;
        }
        let beside = Beside::of(path, self.downloads.fetch_add(1, Ordering::Relaxed));
        let fetch = pin!(self.fetch(url, &beside.0, expected));
        match select(fetch, self.clock().sleep(LONGEST)).await {
            Either::Left((fetched, _)) => fetched?,
            Either::Right(_) => return Err(slow("it was not done within an hour")),
        }
        tokio::fs::rename(&beside.0, path).await.map_err(|error| disk(path, error))
    }

    async fn fetch(&self, url: String, beside: &Path, expected: &str) -> Result<(), Error> {
        let clock = self.client.clock();
        let response = self.client.open(&Self::get(url), "*/*").await?;
        let (head, mut body) = response.into_parts();
        if !head.status.is_success() {
            let answer = Answer { status: head.status, headers: head.headers, body: Bytes::new() };
            return Err(self.client.refused(OPERATION, Nature::Reads, &answer));
        }
        let mut file = create(beside).await.map_err(|error| disk(beside, error))?;
        let mut hash = Sha256::new();
        let mut size = 0_u64;
        loop {
            let chunk = match select(body.next(), clock.sleep(STALLED)).await {
                Either::Left((None, _)) => break,
                Either::Left((Some(chunk), _)) => {
                    chunk.map_err(|error| fault::of_transport(OPERATION, Nature::Reads, &error))?
                }
                Either::Right(_) => {
                    return Err(slow("nothing came for a minute"));
                }
            };
            size += chunk.len() as u64;
            if size > LARGEST {
                return Err(fault::nonsense(OPERATION, "the file is larger than 1 GiB"));
            }
            hash.update(&chunk);
            file.write_all(&chunk).await.map_err(|error| disk(beside, error))?;
        }
        let found: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        if found != expected {
            let what = format!("the file's SHA-256 is {found}, and {expected} was published: it is not used");
            return Err(fault::nonsense(OPERATION, what));
        }
        file.flush().await.map_err(|error| disk(beside, error))?;
        make_executable(&file).await.map_err(|error| disk(beside, error))?;
        // Afterwards: what is in place after a loss of power can be run.
        file.sync_all().await.map_err(|error| disk(beside, error))
    }
}

/// A file that is not whole yet: gone with this value, unless it was renamed.
struct Beside(PathBuf);

impl Beside {
    /// A name beside `path` that nobody else writes to: of two writers one would rename what the other has not finished.
    fn of(path: &Path, number: u64) -> Self {
        let mut beside = path.to_owned().into_os_string();
        beside.push(format!(".{}-{number}{PART}", std::process::id()));
        Self(beside.into())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // It is in nobody's way, and the next process sweeps it.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Removes what processes that were killed left of downloads.
pub(super) fn sweep(directory: &Path) {
    let Ok(files) = std::fs::read_dir(directory) else { return };
    for file in files.filter_map(Result::ok) {
        let name = file.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("devin") && name.ends_with(PART) {
            let _ = std::fs::remove_file(file.path());
        }
    }
}

async fn create(path: &Path) -> io::Result<tokio::fs::File> {
    let mut options = tokio::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    options.mode(0o600);
    options.open(path).await
}

/// Nobody is to write to it again.
async fn make_executable(file: &tokio::fs::File) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        file.set_permissions(std::fs::Permissions::from_mode(0o555)).await?;
    }
    let _ = file;
    Ok(())
}

pub(super) async fn is_there(path: &Path) -> bool {
    tokio::fs::try_exists(path).await.unwrap_or(false)
}

fn slow(what: &str) -> Error {
    Error::new(ErrorKind::Unavailable, fault::WHO, OPERATION, what)
}

fn disk(path: &Path, error: io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::Capacity,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, "disk", OPERATION, format!("{}: {error}", path.display()))
}

/// The digits of `<hex>` or `<hex>  <file>`.
pub(super) fn checksum(text: &str) -> Result<String, Error> {
    let hex = text.split_whitespace().next().unwrap_or_default().to_ascii_lowercase();
    if hex.len() == 64 && hex.chars().all(|c| c.is_ascii_hexdigit()) {
        return Ok(hex);
    }
    Err(fault::nonsense(OPERATION, "what was published as the SHA-256 is none"))
}
