use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use outpost_core::model::{SandboxId, SnapshotPurpose, SnapshotRef};
use outpost_core::ports::{
    Capabilities, Error, ErrorKind, Inventory, Removed, SandboxProvider, Saving, StartSpec, Started, Stopped,
};

use super::faults::{Call, Faults};

/// A provider whose calls fail as the plan says.
#[derive(Debug)]
pub struct Faulty<P> {
    inner: P,
    faults: Faults,
    older: Older<Inventory>,
}

impl<P> Faulty<P> {
    /// Around `inner`.
    pub fn new(inner: P, faults: Faults) -> Self {
        Self { inner, faults, older: Older::default() }
    }

    /// What is inside.
    pub const fn inner(&self) -> &P {
        &self.inner
    }
}

impl<P: SandboxProvider> Faulty<P> {
    /// Errors that would settle something which is not so are left out: that the backend cannot delete, for one, is
    /// remembered for good.
    fn call(&self, operation: &'static str, never: &'static [ErrorKind]) -> Call {
        Call { who: self.inner.name(), operation, never }
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl<P: SandboxProvider> SandboxProvider for Faulty<P> {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn list(&self) -> Result<Inventory, Error> {
        let call = self.call("list", &[]);
        let work = async {
            self.older.or(self.faults.staleness(call), self.faults.clock().now(), self.inner.list().await)
        };
        self.faults.around(call, work).await
    }

    async fn start(&self, spec: StartSpec) -> Result<Started, Error> {
        self.faults.around(self.call("start", &[]), self.inner.start(spec)).await
    }

    async fn stop_worker(&self, id: &SandboxId, grace: Duration) -> Result<Stopped, Error> {
        self.faults.around(self.call("stop_worker", &[]), self.inner.stop_worker(id, grace)).await
    }

    async fn save(&self, id: &SandboxId, purpose: SnapshotPurpose) -> Result<Saving, Error> {
        self.faults.around(self.call("save", &[]), self.inner.save(id, purpose)).await
    }

    async fn remove(&self, id: &SandboxId) -> Result<Removed, Error> {
        self.faults.around(self.call("remove", &[]), self.inner.remove(id)).await
    }

    async fn extend(&self, id: &SandboxId) -> Result<Option<Timestamp>, Error> {
        self.faults.around(self.call("extend", &[]), self.inner.extend(id)).await
    }

    async fn delete_snapshot(&self, snapshot: &SnapshotRef) -> Result<(), Error> {
        let call = self.call("delete_snapshot", &[ErrorKind::Unsupported]);
        self.faults.around(call, self.inner.delete_snapshot(snapshot)).await
    }
}

/// The last few answers of a list, for stale ones.
#[derive(Debug)]
pub(super) struct Older<T>(Mutex<VecDeque<(Timestamp, T)>>);

impl<T> Default for Older<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Older<T> {
    const KEPT: usize = 8;

    /// The oldest answer that is not older than `not_before`, or this one; which is kept.
    pub(super) fn or(
        &self,
        not_before: Option<Timestamp>,
        now: Timestamp,
        answer: Result<T, Error>,
    ) -> Result<T, Error> {
        let answer = answer?;
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let stale =
            not_before.and_then(|since| kept.iter().find(|(at, _)| *at >= since).map(|(_, old)| old.clone()));
        kept.push_back((now, answer.clone()));
        if kept.len() > Self::KEPT {
            kept.pop_front();
        }
        Ok(stale.unwrap_or(answer))
    }
}
