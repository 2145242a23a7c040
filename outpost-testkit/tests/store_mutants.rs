//! The suite can fail: for each case there is a store that is broken in just its way, and that case alone finds it.

use std::sync::Arc;

use async_trait::async_trait;
use outpost_core::model::{Record, SessionId};
use outpost_core::ports::{Error, ErrorKind, SnapshotStore, Stored, Version};
use outpost_testkit::conformance::store::{CASES, StoreFixture};
use outpost_testkit::conformance::{Skip, run_cases};
use outpost_testkit::memory::{MemoryStore, MemoryStoreFixture};

/// A store that breaks the bullet `broken` and keeps the others.
#[derive(Debug)]
struct Mutant {
    broken: &'static str,
    inner: MemoryStore,
}

#[async_trait]
impl SnapshotStore for Mutant {
    async fn get(&self, session: &SessionId) -> Result<Option<Stored>, Error> {
        match self.inner.get(session).await {
            Err(error) if self.broken == "K2" && error.kind() == ErrorKind::Invalid => Ok(None),
            other => other,
        }
    }

    async fn put(
        &self,
        session: &SessionId,
        record: &Record,
        expected: Option<Version>,
    ) -> Result<Version, Error> {
        let stored = self.inner.get(session).await.ok().flatten().map(|stored| stored.version);
        let answer = match self.broken {
            "K3" if expected.is_none() => self.inner.put(session, record, stored).await,
            "K5" => {
                let known = self.inner.list().await?;
                let same =
                    |other: &SessionId| other.as_str().to_lowercase() == session.as_str().to_lowercase();
                let place = known.iter().find(|(other, _)| same(other)).map_or(session, |(other, _)| other);
                self.inner.put(place, record, expected).await
            }
            _ => self.inner.put(session, record, expected).await,
        };
        match answer {
            Err(error) if self.broken == "K4" && error.kind() == ErrorKind::Capacity => {
                self.inner.heal();
                self.inner.put(session, record, expected).await?;
                self.inner.hinder_writes();
                Err(error)
            }
            other => other,
        }
    }

    async fn list(&self) -> Result<Vec<(SessionId, Stored)>, Error> {
        let mut listed = self.inner.list().await?;
        if self.broken == "K6" {
            listed.truncate(50);
        }
        Ok(listed)
    }

    async fn delete(&self, session: &SessionId, expected: Version) -> Result<(), Error> {
        let stored = self.inner.get(session).await?;
        match stored {
            Some(stored) if self.broken == "K7" => self.inner.delete(session, stored.version).await,
            _ => self.inner.delete(session, expected).await,
        }
    }
}

struct MutantFixture {
    broken: &'static str,
    memory: MemoryStoreFixture,
}

#[async_trait]
impl StoreFixture for MutantFixture {
    async fn open(&self) -> Arc<dyn SnapshotStore> {
        Arc::new(Mutant { broken: self.broken, inner: self.memory.store.clone() })
    }
    async fn restart(&self, old: Arc<dyn SnapshotStore>) -> Arc<dyn SnapshotStore> {
        if self.broken == "K1" {
            // A record was not synced.
            let lost = SessionId::new("devin-b").unwrap();
            if let Ok(Some(stored)) = old.get(&lost).await {
                old.delete(&lost, stored.version).await.unwrap();
            }
        }
        drop(old);
        self.open().await
    }
    async fn spoil(&self, session: &SessionId) -> Result<(), Skip> {
        self.memory.spoil(session).await
    }
    async fn hinder_writes(&self) -> Result<(), Skip> {
        self.memory.hinder_writes().await
    }
    async fn heal(&self) {
        self.memory.heal().await;
    }
}

fn caught_by(broken: &'static str) -> (Vec<&'static str>, String) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let report = runtime.block_on(run_cases(CASES, || async move {
        let fixture: Box<dyn StoreFixture> =
            Box::new(MutantFixture { broken, memory: MemoryStoreFixture::new() });
        fixture
    }));
    assert!(report.skipped.is_empty(), "{:?}", report.skipped);
    (report.failed.iter().map(|(id, _)| *id).collect(), format!("{:#?}", report.failed))
}

#[test]
fn each_broken_store_is_caught_by_exactly_the_case_meant() {
    for case in CASES {
        let (caught, why) = caught_by(case.id);
        assert_eq!(caught, [case.id], "the mutant of {}: {why}", case.id);
    }
}

#[test]
fn an_unbroken_mutant_passes() {
    assert_eq!(caught_by("nothing").0, Vec::<&str>::new());
}
