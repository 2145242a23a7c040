use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use outpost_core::invariants::Fact;
use outpost_core::model::{InstanceId, Record, SessionId};
use outpost_core::ports::{Error, ErrorKind, SnapshotStore, Stored, Version};

use crate::journal::Journal;

/// A [`SnapshotStore`] in memory. Clones share the records, as a process that was started again does.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore(Arc<Mutex<Records>>);

#[derive(Debug, Default)]
struct Records {
    /// Whose records, and where it is written down which snapshots they name.
    journal: Option<(InstanceId, Journal)>,
    stored: BTreeMap<SessionId, Stored>,
    spoiled: BTreeSet<SessionId>,
    read_only: bool,
    next: u64,
}

const NAME: &str = "store";

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty store of `instance`, which writes down the snapshots that its records name.
    #[must_use]
    pub fn with_journal(instance: InstanceId, journal: Journal) -> Self {
        let store = Self::default();
        store.lock().journal = Some((instance, journal));
        store
    }

    /// Loses every record.
    pub fn wipe(&self) {
        self.lock().stored.clear();
    }

    /// Makes a record unreadable.
    pub fn spoil(&self, session: &SessionId) {
        self.lock().spoiled.insert(session.clone());
    }

    /// Makes writing impossible until [`heal`](Self::heal).
    pub fn hinder_writes(&self) {
        self.lock().read_only = true;
    }

    /// Ends the hindrance.
    pub fn heal(&self) {
        self.lock().read_only = false;
    }

    /// Every record as it truly is.
    #[must_use]
    pub fn true_records(&self) -> BTreeMap<SessionId, Record> {
        let records = self.lock();
        records.stored.iter().map(|(session, stored)| (session.clone(), stored.record.clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Records> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Records {
    fn readable(&self, session: &SessionId, operation: &'static str) -> Result<(), Error> {
        if self.spoiled.contains(session) {
            return Err(Error::new(ErrorKind::Invalid, NAME, operation, "the record cannot be decoded"));
        }
        Ok(())
    }

    fn writable(&self, operation: &'static str) -> Result<(), Error> {
        if self.read_only {
            return Err(Error::new(ErrorKind::Capacity, NAME, operation, "the store is read-only"));
        }
        Ok(())
    }
}

fn changed(operation: &'static str) -> Error {
    Error::new(ErrorKind::Conflict, NAME, operation, "the record has changed")
}

#[async_trait]
impl SnapshotStore for MemoryStore {
    async fn get(&self, session: &SessionId) -> Result<Option<Stored>, Error> {
        let records = self.lock();
        records.readable(session, "get")?;
        Ok(records.stored.get(session).cloned())
    }

    async fn put(
        &self,
        session: &SessionId,
        record: &Record,
        expected: Option<Version>,
    ) -> Result<Version, Error> {
        let mut records = self.lock();
        if records.stored.get(session).map(|stored| stored.version) != expected {
            return Err(changed("put"));
        }
        records.writable("put")?;
        if let (Some((instance, journal)), Some(newest)) = (&records.journal, &record.newest_snapshot) {
            let (session, reference) = (session.clone(), newest.reference.clone());
            journal.note(instance, Fact::SnapshotRecorded { session, reference });
        }
        records.next += 1;
        let version = Version(records.next);
        records.stored.insert(session.clone(), Stored { record: record.clone(), version });
        records.spoiled.remove(session);
        Ok(version)
    }

    async fn list(&self) -> Result<Vec<(SessionId, Stored)>, Error> {
        let records = self.lock();
        for session in records.stored.keys() {
            records.readable(session, "list")?;
        }
        Ok(records.stored.iter().map(|(session, stored)| (session.clone(), stored.clone())).collect())
    }

    async fn delete(&self, session: &SessionId, expected: Version) -> Result<(), Error> {
        let mut records = self.lock();
        match records.stored.get(session) {
            None => Ok(()),
            Some(stored) if stored.version != expected => Err(changed("delete")),
            Some(_) => {
                records.writable("delete")?;
                records.stored.remove(session);
                Ok(())
            }
        }
    }
}
