//! A directory of executables.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use http::Method;
use jiff::Timestamp;
use outpost_core::ports::{Clock, Error, ErrorKind};
use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Mutex;

use crate::client::{Call, Client, SMALL_BODY};
use crate::fault::{self, Nature};
use crate::transport::Transport;

pub(super) const OPERATION: &str = "download the worker";
/// Larger than any worker.
const LARGEST: u64 = 1 << 30;
/// For so long the newest version is not asked for again: a start must not wait for it.
pub(super) const NEWEST_FOR: Duration = Duration::from_secs(300);
/// Without a byte for so long a download is given up.
const STALLED: Duration = Duration::from_secs(60);

/// A directory of executables whose checksum was right. Everything in it is named by version, and made once.
#[derive(Debug)]
pub(super) struct Shelf {
    pub(super) client: Client,
    pub(super) directory: PathBuf,
    /// One download at a time: a second session waits for the first one's.
    pub(super) busy: Mutex<Newest>,
}

/// The newest version, and when it was asked for.
pub(super) type Newest = HashMap<String, (Timestamp, String)>;

impl Shelf {
    pub(super) fn new(directory: PathBuf, transport: Arc<dyn Transport>, clock: Arc<dyn Clock>) -> Self {
        // The token is for the queue, not for whoever serves files.
        Self { client: Client::new(transport, clock, None), directory, busy: Mutex::default() }
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
        tokio::fs::create_dir_all(&self.directory).await.map_err(|error| disk(&self.directory, error))?;
        let beside = path.with_extension(format!("{}.part", std::process::id()));
        let done = self.fetch(url, &beside, expected).await;
        let done = match done {
            Ok(()) => tokio::fs::rename(&beside, path).await.map_err(|error| disk(path, error)),
            Err(error) => Err(error),
        };
        if done.is_err() {
            // What is left of it is in nobody's way.
            let _ = tokio::fs::remove_file(&beside).await;
        }
        done
    }

    async fn fetch(&self, url: String, beside: &Path, expected: &str) -> Result<(), Error> {
        let clock = self.client.clock();
        let response = self.client.open(&Self::get(url), "*/*").await?;
        let (head, mut body) = response.into_parts();
        if !head.status.is_success() {
            return Err(fault::of_answer(
                OPERATION,
                Nature::Reads,
                head.status,
                &head.headers,
                b"",
                clock.now(),
            ));
        }
        let mut file = create(beside).await.map_err(|error| disk(beside, error))?;
        let mut hash = Sha256::new();
        let mut size = 0_u64;
        loop {
            let chunk = futures::future::select(body.next(), clock.sleep(STALLED)).await;
            let chunk = match chunk {
                futures::future::Either::Left((None, _)) => break,
                futures::future::Either::Left((Some(chunk), _)) => {
                    chunk.map_err(|error| fault::of_transport(OPERATION, Nature::Reads, &error))?
                }
                futures::future::Either::Right(_) => {
                    return Err(Error::new(
                        ErrorKind::Unavailable,
                        fault::WHO,
                        OPERATION,
                        "nothing came for a minute",
                    ));
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
        file.sync_all().await.map_err(|error| disk(beside, error))?;
        drop(file);
        make_executable(beside).await.map_err(|error| disk(beside, error))
    }
}

async fn create(path: &Path) -> io::Result<tokio::fs::File> {
    let mut options = tokio::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    options.mode(0o600);
    options.open(path).await
}

async fn make_executable(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        tokio::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).await?;
    }
    let _ = path;
    Ok(())
}

pub(super) async fn is_there(path: &Path) -> bool {
    tokio::fs::try_exists(path).await.unwrap_or(false)
}

fn disk(path: &Path, error: io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::Capacity,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, "disk", OPERATION, format!("{}: {error}", path.display()))
}
