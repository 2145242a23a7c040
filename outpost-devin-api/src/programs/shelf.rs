//! A directory of executables.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{Either, select};
use jiff::Timestamp;
use outpost_core::model::WorkerProgram;
use outpost_core::ports::{Clock, Error};

use super::files::{Files, checksum, is_there, sweep};
use super::flights::Flights;
use crate::transport::Transport;

pub(super) const OPERATION: &str = "download the worker";
/// For so long the newest version is not asked for again: a start must not wait for it.
const NEWEST_FOR: Duration = Duration::from_secs(300);
/// For so long one that was had before stands in for a newest that cannot be had.
const STAND_IN_FOR: Duration = Duration::from_secs(60);
/// So long a start waits for the newest when one that was had before can stand in for it.
const PATIENCE: Duration = Duration::from_secs(30);
/// What getting the newest is called; no file has such a name.
const NEWEST: &str = "the newest";

/// A directory of executables whose checksum was right. Everything in it is named by version, and made once.
///
/// What is there is answered at once; each download is a task of its own, so that a slow one delays nobody who wants another
/// version, and goes on when the caller gives up. Dropping the shelf ends them. When the newest cannot be had, the newest that was
/// had before, also by an earlier process, stands in for it.
#[derive(Debug)]
pub(super) struct Shelf(Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    files: Files,
    directory: PathBuf,
    flights: Flights,
    newest: Mutex<Option<Newest>>,
    /// Where the newest is written down.
    note: PathBuf,
}

/// The newest program that was had, and until when it is taken for the newest there is.
#[derive(Debug, Clone)]
struct Newest {
    until: Timestamp,
    name: String,
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
    /// The executables in `directory`, the newest of which is written down in its file `note`.
    pub(super) fn new(
        directory: PathBuf,
        note: &str,
        transport: Arc<dyn Transport>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        sweep(&directory);
        let note = directory.join(note);
        let newest = Mutex::new(read(&note));
        let files = Files::new(transport, clock);
        Self(Arc::new(Inner { files, directory, flights: Flights::default(), newest, note }))
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
        let before = shelf.had_before().await;
        if let Some(newest) = &before
            && shelf.files.clock().now() < newest.until
        {
            return Ok(shelf.program(newest));
        }
        let getting =
            pin!(shelf.flights.join(NEWEST, Inner::get_newest(Arc::clone(shelf), ask(Arc::clone(shelf)))));
        let Some(before) = before else { return getting.await };
        let why = match select(getting, shelf.files.clock().sleep(PATIENCE)).await {
            Either::Left((Ok(program), _)) => return Ok(program),
            Either::Left((Err(error), _)) => error.to_string(),
            Either::Right(_) => "it takes longer than 30 seconds".to_owned(),
        };
        tracing::warn!(
            version = before.version,
            "the newest worker cannot be had, the one before is used: {why}"
        );
        shelf.stand_in(&before);
        Ok(shelf.program(&before))
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

    async fn get_newest(
        self: Arc<Self>,
        asked: impl Future<Output = Result<Release, Error>> + Send,
    ) -> Result<WorkerProgram, Error> {
        let release = asked.await?;
        let until = self.files.clock().now() + NEWEST_FOR;
        let newest = Newest { until, name: release.name.clone(), version: release.version.clone() };
        let program = self.have(release).await?;
        let known = self.newest().replace(newest.clone());
        if known.is_none_or(|known| known.name != newest.name)
            && let Err(error) = write(&self.note, &newest).await
        {
            let note = self.note.display();
            tracing::warn!("which worker is the newest cannot be written down in {note}: {error}");
        }
        Ok(program)
    }

    fn newest(&self) -> MutexGuard<'_, Option<Newest>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn had_before(&self) -> Option<Newest> {
        let newest = self.newest().clone()?;
        is_there(&self.directory.join(&newest.name)).await.then_some(newest)
    }

    fn stand_in(&self, before: &Newest) {
        let until = self.files.clock().now() + STAND_IN_FOR;
        // Meanwhile the newest may have come.
        if let Some(newest) = self.newest().as_mut().filter(|newest| newest.name == before.name) {
            newest.until = newest.until.max(until);
        }
    }

    fn program(&self, newest: &Newest) -> WorkerProgram {
        WorkerProgram::File { path: self.directory.join(&newest.name), version: newest.version.clone() }
    }
}

/// What an earlier process wrote down; it is not taken for the newest there is.
fn read(note: &Path) -> Option<Newest> {
    let text = std::fs::read_to_string(note).ok()?;
    let (version, name) = text.trim_end().split_once('\n')?;
    let is_name = Path::new(name).file_name().is_some_and(|file| file == name);
    let (version, name) = (version.to_owned(), name.to_owned());
    is_name.then_some(Newest { until: Timestamp::MIN, name, version })
}

async fn write(note: &Path, newest: &Newest) -> io::Result<()> {
    let beside = note.with_added_extension("part");
    tokio::fs::write(&beside, format!("{}\n{}\n", newest.version, newest.name)).await?;
    tokio::fs::rename(&beside, note).await
}
