use async_trait::async_trait;
use outpost_core::model::{Record, SessionId};
use outpost_core::ports::{Error, SnapshotStore, Stored, Version};

use super::faults::{Call, Faults};

/// A store whose calls fail as the plan says. Its lists are never stale: what it keeps, it knows.
#[derive(Debug)]
pub struct FaultyStore<S> {
    inner: S,
    faults: Faults,
}

impl<S> FaultyStore<S> {
    /// Around `inner`.
    pub const fn new(inner: S, faults: Faults) -> Self {
        Self { inner, faults }
    }

    /// What is inside.
    pub const fn inner(&self) -> &S {
        &self.inner
    }
}

const fn call(operation: &'static str) -> Call {
    Call { who: "store", operation, never: &[] }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl<S: SnapshotStore> SnapshotStore for FaultyStore<S> {
    async fn get(&self, session: &SessionId) -> Result<Option<Stored>, Error> {
        self.faults.around(call("get"), self.inner.get(session)).await
    }

    async fn put(
        &self,
        session: &SessionId,
        record: &Record,
        expected: Option<Version>,
    ) -> Result<Version, Error> {
        self.faults.around(call("put"), self.inner.put(session, record, expected)).await
    }

    async fn list(&self) -> Result<Vec<(SessionId, Stored)>, Error> {
        self.faults.around(call("list"), self.inner.list()).await
    }

    async fn delete(&self, session: &SessionId, expected: Version) -> Result<(), Error> {
        self.faults.around(call("delete"), self.inner.delete(session, expected)).await
    }
}
