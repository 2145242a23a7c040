//! A directory of executables.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use outpost_core::model::WorkerProgram;
use outpost_core::ports::{Clock, Error};

use super::files::{Files, checksum, is_there, sweep};
use super::flights::Flights;
use crate::transport::Transport;

pub(super) const OPERATION: &str = "download the worker";
/// For so long the newest version is not asked for again: a start must not wait for it.
const NEWEST_FOR: Duration = Duration::from_secs(300);
/// What getting the newest is called; no file has such a name.
const NEWEST: &str = "the newest";

/// A directory of executables whose checksum was right. Everything in it is named by version, and made once.
///
/// What is there is answered at once; each download is a task of its own, so that a slow one delays nobody who wants another
/// version, and goes on when the caller gives up. Dropping the shelf ends them.
#[derive(Debug)]
pub(super) struct Shelf(Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    files: Files,
    directory: PathBuf,
    flights: Flights,
    newest: Mutex<Option<Newest>>,
}

/// The newest program, and until when it is taken for that.
#[derive(Debug, Clone)]
struct Newest {
    until: Timestamp,
    path: PathBuf,
    version: String,
}

/// An executable that is to be had.
#[derive(Debug)]
pub(super) struct Release {
    pub(super) version: String,
    /// Its name on the shelf, which tells it from every other.
    pub(super) name: String,
    pub(super) url: String,
    pub(super) sha256: Sum,
}

/// Where a checksum is.
#[derive(Debug)]
pub(super) enum Sum {
    /// Here, in hexadecimal.
    Known(String),
    /// In a file at this address.
    At(String),
}

impl Shelf {
    pub(super) fn new(directory: PathBuf, transport: Arc<dyn Transport>, clock: Arc<dyn Clock>) -> Self {
        sweep(&directory);
        let files = Files::new(transport, clock);
        Self(Arc::new(Inner { files, directory, flights: Flights::default(), newest: Mutex::default() }))
    }

    /// The file of `release`.
    pub(super) async fn have(&self, release: Release) -> Result<WorkerProgram, Error> {
        self.0.have(release).await
    }

    /// The file of the newest release, which `ask` finds out from the server.
    pub(super) async fn newest<A, F>(&self, ask: A) -> Result<WorkerProgram, Error>
    where
        A: FnOnce(Arc<Inner>) -> F + Send,
        F: Future<Output = Result<Release, Error>> + Send + 'static,
    {
        let shelf = &self.0;
        if let Some(newest) = shelf.known()
            && shelf.files.clock().now() < newest.until
            && is_there(&newest.path).await
        {
            return Ok(newest.program());
        }
        let (asked, shelf) = (ask(Arc::clone(shelf)), Arc::clone(shelf));
        let get = async move {
            let release = asked.await?;
            let newest = Newest {
                until: shelf.files.clock().now() + NEWEST_FOR,
                path: shelf.directory.join(&release.name),
                version: release.version.clone(),
            };
            let program = shelf.have(release).await?;
            *shelf.newest.lock().unwrap_or_else(PoisonError::into_inner) = Some(newest);
            Ok(program)
        };
        self.0.flights.join(NEWEST, get).await
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        self.0.flights.stop();
    }
}

impl Inner {
    /// What the server has at `url`, if it is text.
    pub(super) async fn text(&self, url: String) -> Result<String, Error> {
        self.files.text(url).await
    }

    async fn have(self: &Arc<Self>, release: Release) -> Result<WorkerProgram, Error> {
        let Release { version, name, url, sha256 } = release;
        let path = self.directory.join(&name);
        let program = WorkerProgram::File { path: path.clone(), version };
        if is_there(&path).await {
            return Ok(program);
        }
        let shelf = Arc::clone(self);
        let get = async move {
            // Somebody's download may have ended since.
            if !is_there(&path).await {
                let expected = match sha256 {
                    Sum::Known(hex) => hex,
                    Sum::At(url) => checksum(&shelf.files.text(url).await?)?,
                };
                shelf.files.download(url, &path, &expected).await?;
            }
            Ok(program)
        };
        self.flights.join(&name, get).await
    }

    fn known(&self) -> Option<Newest> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Newest {
    fn program(self) -> WorkerProgram {
        WorkerProgram::File { path: self.path, version: self.version }
    }
}
