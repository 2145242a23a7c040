use std::sync::Arc;

use async_trait::async_trait;
use outpost_core::model::SessionId;
use outpost_core::ports::SnapshotStore;

use crate::conformance::Skip;
use crate::conformance::run::Skips;

/// One empty store, and the ways into it that the suite needs. Each case gets a fixture of its own.
#[async_trait]
pub trait StoreFixture: Send + Sync {
    /// The store, opened.
    async fn open(&self) -> Arc<dyn SnapshotStore>;

    /// The store after its process was killed and started again.
    async fn restart(&self, old: Arc<dyn SnapshotStore>) -> Arc<dyn SnapshotStore> {
        drop(old);
        self.open().await
    }

    /// Why a case is not played at all; `None` = it is.
    fn skip(&self, case: &str) -> Option<String> {
        let _ = case;
        None
    }

    /// Makes the stored record of a session undecodable, behind the store's back.
    async fn spoil(&self, session: &SessionId) -> Result<(), Skip> {
        let _ = session;
        Err(Skip::because("the fixture cannot spoil a record"))
    }

    /// Makes writing impossible until [`heal`](Self::heal): a full disk, a missing right.
    async fn hinder_writes(&self) -> Result<(), Skip> {
        Err(Skip::because("the fixture cannot hinder writes"))
    }

    /// Ends the hindrance.
    async fn heal(&self) {}
}

impl Skips for dyn StoreFixture {
    fn skips(&self, case: &str) -> Option<String> {
        self.skip(case)
    }
}
