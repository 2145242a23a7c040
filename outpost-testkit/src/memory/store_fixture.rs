use std::sync::Arc;

use async_trait::async_trait;
use outpost_core::model::SessionId;
use outpost_core::ports::SnapshotStore;

use super::store::MemoryStore;
use crate::conformance::Skip;
use crate::conformance::store::StoreFixture;

/// A fixture over a [`MemoryStore`].
#[derive(Debug, Clone, Default)]
pub struct MemoryStoreFixture {
    /// The records.
    pub store: MemoryStore,
}

impl MemoryStoreFixture {
    /// Over an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait]
impl StoreFixture for MemoryStoreFixture {
    async fn open(&self) -> Arc<dyn SnapshotStore> {
        Arc::new(self.store.clone())
    }

    async fn spoil(&self, session: &SessionId) -> Result<(), Skip> {
        self.store.spoil(session);
        Ok(())
    }

    async fn hinder_writes(&self) -> Result<(), Skip> {
        self.store.hinder_writes();
        Ok(())
    }

    async fn heal(&self) {
        self.store.heal();
    }
}
