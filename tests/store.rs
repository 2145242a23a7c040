//! Records in files keep the contract of every store.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use outpost::core::model::{Record, SessionId};
use outpost::core::ports::{ErrorKind, SnapshotStore};
use outpost::store::FileStore;
use outpost_testkit::conformance::Skip;
use outpost_testkit::conformance::store::StoreFixture;
use tempfile::TempDir;

#[derive(Debug)]
struct Files {
    directory: TempDir,
}

impl Files {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn records(&self) -> PathBuf {
        self.directory.path().join("records")
    }

    fn away(&self) -> PathBuf {
        self.directory.path().join("away")
    }

    fn file(&self, session: &SessionId) -> PathBuf {
        self.records().join(format!("{}.json", session.stable_hash()))
    }
}

#[async_trait]
impl StoreFixture for Files {
    async fn open(&self) -> Arc<dyn SnapshotStore> {
        Arc::new(FileStore::open(self.records()).unwrap())
    }

    async fn spoil(&self, session: &SessionId) -> Result<(), Skip> {
        let file = self.file(session);
        let content = fs::read(&file).unwrap();
        fs::write(file, &content[..content.len() / 2]).unwrap();
        Ok(())
    }

    /// A file in the directory's place hinders the superuser too.
    async fn hinder_writes(&self) -> Result<(), Skip> {
        fs::rename(self.records(), self.away()).unwrap();
        fs::write(self.records(), "").unwrap();
        Ok(())
    }

    async fn heal(&self) {
        if self.away().exists() {
            fs::remove_file(self.records()).unwrap();
            fs::rename(self.away(), self.records()).unwrap();
        }
    }
}

outpost_testkit::store_conformance!(Files::new());

#[tokio::test]
async fn a_spoilt_record_names_its_file() {
    let files = Files::new();
    let store = files.open().await;
    let session = SessionId::new("devin-1").unwrap();
    store.put(&session, &Record::default(), None).await.unwrap();
    files.spoil(&session).await.unwrap();
    for error in [store.get(&session).await.map(drop).unwrap_err(), store.list().await.map(drop).unwrap_err()]
    {
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(files.file(&session).to_str().unwrap()), "{error}");
    }
}

#[tokio::test]
async fn a_record_that_was_renamed_is_not_taken_for_another_sessions() {
    let files = Files::new();
    let store = files.open().await;
    let [one, two] = ["devin-1", "devin-2"].map(|id| SessionId::new(id).unwrap());
    store.put(&one, &Record::default(), None).await.unwrap();
    fs::rename(files.file(&one), files.file(&two)).unwrap();
    assert_eq!(store.get(&two).await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(store.list().await.unwrap_err().kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn records_whose_directory_is_gone_are_not_absent() {
    let files = Files::new();
    let store = files.open().await;
    let session = SessionId::new("devin-1").unwrap();
    fs::remove_dir(files.records()).unwrap();
    store.get(&session).await.unwrap_err();
    store.list().await.unwrap_err();
}

#[tokio::test]
async fn only_its_owner_can_read_a_record() {
    let files = Files::new();
    let store = files.open().await;
    let session = SessionId::new("devin-1").unwrap();
    store.put(&session, &Record::default(), None).await.unwrap();
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(files.records()), 0o700);
    assert_eq!(mode(files.file(&session)), 0o600);
}

#[tokio::test]
async fn what_a_killed_writer_left_beside_a_record_is_no_record() {
    let files = Files::new();
    let store = files.open().await;
    let session = SessionId::new("devin-1").unwrap();
    store.put(&session, &Record::default(), None).await.unwrap();
    fs::write(files.records().join(format!(".{}.json.new", session.stable_hash())), "{").unwrap();
    assert_eq!(store.list().await.unwrap().len(), 1);
}
