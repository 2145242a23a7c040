//! The simulated world: the reconciler keeps every promise in it, and broken orchestrators are caught.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use futures::stream::BoxStream;
use jiff::Timestamp;
use outpost_core::model::{
    AcceptorId, Boot, SandboxId, Session, SessionId, SessionStatus, SnapshotPurpose, SnapshotRef,
};
use outpost_core::ports::{
    Capabilities, Claimed, Cursor, Error, Inventory, Listing, Removed, SandboxProvider, Saving,
    SessionSource, StartSpec, Started, Stopped, WatchEvent,
};
use outpost_testkit::world::{Assemble, Failure, Parts, Scenario, reconciler, simulate, simulate_with};

#[test]
fn seeded_worlds_keep_every_promise() {
    for seed in 0..12 {
        let outcome = simulate(Scenario::from_seed(seed));
        if let Err(failure) = outcome.result {
            panic!("seed {seed}: {failure}\n{}", outcome.log.join("\n"));
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_log() {
    for seed in [1, 2] {
        let (first, second) = (simulate(Scenario::from_seed(seed)), simulate(Scenario::from_seed(seed)));
        assert!(first.log.len() > 50, "hardly anything happens: {:#?}", first.log);
        assert_eq!(first.log, second.log);
    }
}

/// What the worlds of a few seeds say of the orchestrators that `assemble` makes: the numbers of the broken promises.
fn caught(assemble: &Assemble) -> Vec<u8> {
    let mut numbers = Vec::new();
    for seed in 0..8 {
        let mut scenario = Scenario::from_seed(seed);
        scenario.turmoil = Duration::from_secs(15 * 60);
        match simulate_with(scenario, assemble.clone()).result {
            Ok(()) => {}
            Err(Failure::Broken(violation)) => numbers.push(violation.number),
            Err(Failure::Unrest(_)) => numbers.push(8),
            Err(Failure::Surplus { number, .. }) => numbers.push(number),
            Err(other) => panic!("{other}"),
        }
    }
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

fn with_provider(fault: Fault) -> Assemble {
    let inner = reconciler();
    Arc::new(move |mut parts: Parts| {
        parts.ports.provider = Arc::new(Broken { inner: parts.ports.provider, fault });
        inner(parts)
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Every start makes a second sandbox.
    StartsTwice,
    /// Saving answers with the snapshot of another boot's disk: here, the sandbox is removed instead.
    RemovesInsteadOfSaving,
    /// Restores nothing, and says nothing.
    NeverRestores,
    /// Deletes each snapshot as soon as it is taken.
    DeletesSnapshots,
    /// Never removes.
    NeverRemoves,
}

#[derive(Debug)]
struct Broken {
    inner: Arc<dyn SandboxProvider>,
    fault: Fault,
}

#[async_trait]
impl SandboxProvider for Broken {
    fn name(&self) -> &'static str {
        "broken"
    }
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
    async fn list(&self) -> Result<Inventory, Error> {
        self.inner.list().await
    }
    async fn start(&self, mut spec: StartSpec) -> Result<Started, Error> {
        if self.fault == Fault::NeverRestores {
            spec.restore = None;
        }
        if self.fault == Fault::StartsTwice {
            let mut second = spec.clone();
            second.id.boot = Boot::new(second.id.boot.number() + 100);
            self.inner.start(second).await?;
        }
        self.inner.start(spec).await
    }
    async fn stop_worker(&self, id: &SandboxId, grace: Duration) -> Result<Stopped, Error> {
        self.inner.stop_worker(id, grace).await
    }
    async fn save(&self, id: &SandboxId, purpose: SnapshotPurpose) -> Result<Saving, Error> {
        if self.fault == Fault::RemovesInsteadOfSaving {
            self.inner.remove(id).await?;
        }
        let saving = self.inner.save(id, purpose).await?;
        if let (Fault::DeletesSnapshots, Saving::Done(snapshot)) = (self.fault, &saving) {
            self.inner.delete_snapshot(&snapshot.reference).await?;
        }
        Ok(saving)
    }
    async fn remove(&self, id: &SandboxId) -> Result<Removed, Error> {
        if self.fault == Fault::NeverRemoves { Ok(Removed::Done) } else { self.inner.remove(id).await }
    }
    async fn extend(&self, id: &SandboxId) -> Result<Option<Timestamp>, Error> {
        self.inner.extend(id).await
    }
    async fn delete_snapshot(&self, snapshot: &SnapshotRef) -> Result<(), Error> {
        self.inner.delete_snapshot(snapshot).await
    }
}

#[test]
fn a_second_sandbox_of_a_session_is_caught() {
    assert!(caught(&with_provider(Fault::StartsTwice)).contains(&1));
}

#[test]
fn work_that_is_removed_unsaved_is_caught() {
    assert!(caught(&with_provider(Fault::RemovesInsteadOfSaving)).contains(&2));
}

#[test]
fn a_silent_cold_start_is_caught() {
    assert!(caught(&with_provider(Fault::NeverRestores)).contains(&3));
}

#[test]
fn a_deleted_newest_snapshot_is_caught() {
    assert!(caught(&with_provider(Fault::DeletesSnapshots)).contains(&4));
}

#[test]
fn a_sandbox_that_is_never_removed_is_caught() {
    let caught = caught(&with_provider(Fault::NeverRemoves));
    assert!(caught.contains(&8) || caught.contains(&1), "{caught:?}");
}

#[test]
fn an_orchestrator_that_does_nothing_is_caught() {
    assert_eq!(caught(&(Arc::new(|_| futures::future::pending().boxed()) as Assemble)), [8]);
}

/// A queue whose every finished session looks live, and whose releases name somebody else.
#[derive(Debug)]
struct Confused {
    inner: Arc<dyn SessionSource>,
    releases_as: Option<AcceptorId>,
}

#[async_trait]
impl SessionSource for Confused {
    async fn list(&self) -> Result<Listing, Error> {
        self.inner.list().await
    }
    fn watch(&self, from: Option<Cursor>) -> BoxStream<'_, WatchEvent> {
        self.inner.watch(from)
    }
    async fn get(&self, session: &SessionId) -> Result<Option<Session>, Error> {
        let mut row = self.inner.get(session).await?;
        if self.releases_as.is_none()
            && let Some(row) = &mut row
        {
            row.status = SessionStatus::Running;
        }
        Ok(row)
    }
    async fn claim(&self, session: &SessionId, acceptor: &AcceptorId) -> Result<Claimed, Error> {
        self.inner.claim(session, acceptor).await
    }
    async fn renew(&self, session: &SessionId, acceptor: &AcceptorId) -> Result<Session, Error> {
        self.inner.renew(session, acceptor).await
    }
    async fn release(&self, session: &SessionId, acceptor: &AcceptorId) -> Result<(), Error> {
        self.inner.release(session, self.releases_as.as_ref().unwrap_or(acceptor)).await
    }
}

#[test]
fn the_release_of_anothers_claim_is_caught() {
    let inner = reconciler();
    let assemble: Assemble = Arc::new(move |mut parts: Parts| {
        let releases_as = Some(AcceptorId::new("somebody-else").unwrap());
        parts.ports.source = Arc::new(Confused { inner: parts.ports.source, releases_as });
        inner(parts)
    });
    assert!(caught(&assemble).contains(&7));
}

#[test]
fn a_limit_that_is_not_kept_is_caught() {
    let inner = reconciler();
    let assemble: Assemble = Arc::new(move |mut parts: Parts| {
        parts.policy.limit += 5;
        inner(parts)
    });
    assert!(caught(&assemble).contains(&6));
}
