//! Records in files.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use outpost_core::model::{Record, SessionId};
use outpost_core::ports::{Error, ErrorKind, SnapshotStore, Stored, Version};
use serde::{Deserialize, Serialize};

use crate::instance::write_whole;

const WHO: &str = "store";

/// A [`SnapshotStore`] in files of one directory: one JSON file per session, named by the hash of its id, written beside its place,
/// synced and renamed.
///
/// One process at a time may use a directory; [`StateDir`](crate::instance::StateDir) sees to that.
#[derive(Debug, Clone)]
pub struct FileStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    directory: PathBuf,
    /// One writer at a time: comparing and setting is one act.
    writing: Mutex<()>,
}

/// A file's content.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    session: SessionId,
    version: u64,
    record: Record,
}

impl FileStore {
    /// A store in `directory`, made (0700) if it does not exist.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub fn open(directory: impl Into<PathBuf>) -> io::Result<Self> {
        let directory = directory.into();
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        Ok(Self { shared: Arc::new(Shared { directory, writing: Mutex::default() }) })
    }

    /// Runs `act` where blocking is allowed.
    async fn blocking<T: Send + 'static>(
        &self,
        operation: &'static str,
        act: impl FnOnce(&Shared) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let shared = Arc::clone(&self.shared);
        let done = tokio::task::spawn_blocking(move || act(&shared)).await;
        done.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Unexpected, WHO, operation, "it was cut off").may_have_been_applied())
        })
    }
}

impl Shared {
    fn path(&self, session: &SessionId) -> PathBuf {
        self.directory.join(format!("{}.json", session.stable_hash()))
    }

    fn read(&self, session: &SessionId, operation: &'static str) -> Result<Option<Stored>, Error> {
        let path = self.path(session);
        let Some(entry) = self.read_entry(&path, operation)? else {
            // Without its directory a record is not absent, it cannot be read.
            let there = fs::metadata(&self.directory);
            return there.map(|_| None).map_err(|error| failed(&self.directory, operation, error));
        };
        Ok(Some(entry.into_stored()))
    }

    /// What a file holds; `None` when there is no such file.
    fn read_entry(&self, path: &Path, operation: &'static str) -> Result<Option<Entry>, Error> {
        let json = match fs::read(path) {
            Ok(json) => json,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(path, operation, error)),
        };
        let invalid = |why: String| {
            let text = format!(
                "{} {why}; restore it, or move it away: it is made again from what the backend lists",
                path.display()
            );
            Error::new(ErrorKind::Invalid, WHO, operation, text)
        };
        let entry: Entry = serde_json::from_slice(&json)
            .map_err(|error| invalid(format!("cannot be understood ({error})")))?;
        if self.path(&entry.session) == path {
            Ok(Some(entry))
        } else {
            Err(invalid("holds the record of another session".into()))
        }
    }

    fn put(&self, session: &SessionId, record: &Record, expected: Option<Version>) -> Result<Version, Error> {
        let _writer = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let current = self.read(session, "put")?.map(|stored| stored.version);
        check(current, expected, "put")?;
        let version = Version(fresh_version(current));
        let entry = Entry { session: session.clone(), version: version.0, record: record.clone() };
        let json = serde_json::to_vec_pretty(&entry)
            .map_err(|error| Error::new(ErrorKind::Unexpected, WHO, "put", error.to_string()))?;
        let path = self.path(session);
        write_whole(&path, &json).map_err(|error| failed(&path, "put", error).may_have_been_applied())?;
        Ok(version)
    }

    fn delete(&self, session: &SessionId, expected: Version) -> Result<(), Error> {
        let _writer = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(current) = self.read(session, "delete")? else { return Ok(()) };
        check(Some(current.version), Some(expected), "delete")?;
        let path = self.path(session);
        fs::remove_file(&path).map_err(|error| failed(&path, "delete", error))?;
        let synced = fs::File::open(&self.directory).and_then(|directory| directory.sync_all());
        synced.map_err(|error| failed(&path, "delete", error).may_have_been_applied())
    }

    fn list(&self) -> Result<Vec<(SessionId, Stored)>, Error> {
        let names = fs::read_dir(&self.directory).map_err(|error| failed(&self.directory, "list", error))?;
        let mut records = Vec::new();
        for name in names {
            let path = name.map_err(|error| failed(&self.directory, "list", error))?.path();
            let is_record = path.extension().is_some_and(|extension| extension == "json");
            if !is_record {
                continue;
            }
            // It may have been deleted since the directory was read.
            if let Some(entry) = self.read_entry(&path, "list")? {
                records.push((entry.session.clone(), entry.into_stored()));
            }
        }
        Ok(records)
    }
}

impl Entry {
    fn into_stored(self) -> Stored {
        Stored { record: self.record, version: Version(self.version) }
    }
}

/// A version that no earlier writing of any record had, also after a record was deleted: a number that grows, from a random start.
fn fresh_version(current: Option<Version>) -> u64 {
    let start = || fastrand::u64(..) >> 16;
    current.map_or_else(start, |version| version.0.wrapping_add(1))
}

fn check(current: Option<Version>, expected: Option<Version>, operation: &'static str) -> Result<(), Error> {
    if current == expected {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Conflict, WHO, operation, "the record has changed meanwhile"))
}

fn failed(path: &Path, operation: &'static str, error: io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::Capacity,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => ErrorKind::Unauthorized,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, WHO, operation, format!("{}: {error}", path.display())).with_source(error)
}

#[async_trait]
impl SnapshotStore for FileStore {
    async fn get(&self, session: &SessionId) -> Result<Option<Stored>, Error> {
        let session = session.clone();
        self.blocking("get", move |shared| shared.read(&session, "get")).await
    }

    async fn put(
        &self,
        session: &SessionId,
        record: &Record,
        expected: Option<Version>,
    ) -> Result<Version, Error> {
        let (session, record) = (session.clone(), record.clone());
        self.blocking("put", move |shared| shared.put(&session, &record, expected)).await
    }

    async fn list(&self) -> Result<Vec<(SessionId, Stored)>, Error> {
        self.blocking("list", Shared::list).await
    }

    async fn delete(&self, session: &SessionId, expected: Version) -> Result<(), Error> {
        let session = session.clone();
        self.blocking("delete", move |shared| shared.delete(&session, expected)).await
    }
}
