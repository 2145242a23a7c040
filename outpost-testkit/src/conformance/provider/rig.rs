use std::sync::Arc;

use outpost_core::model::{
    AcceptorId, Boot, NetworkPolicy, OutpostId, Sandbox, SandboxId, SandboxState, SessionId, Snapshot,
    SnapshotPurpose, SnapshotRef, WorkerCredentials, WorkerMode, WorkerSettings, WorkerSpec,
};
use outpost_core::ports::{Inventory, Removed, SandboxProvider, Saving, StartSpec, Started, Stopped};
use secrecy::SecretString;

use super::fixture::{ProviderFixture, SUITE_TOKEN};
use crate::conformance::{Task, Verdict, fail};

/// A fixture, the provider under test, and what the cases do with it.
pub(super) struct Rig<'a> {
    pub(super) fixture: &'a dyn ProviderFixture,
    pub(super) provider: Arc<dyn SandboxProvider>,
}

impl<'a> Rig<'a> {
    pub(super) async fn new(fixture: &'a dyn ProviderFixture) -> Self {
        Self { fixture, provider: fixture.open().await }
    }

    /// The provider's process dies and comes back.
    pub(super) async fn restart(self) -> Self {
        let Self { fixture, provider } = self;
        Self { fixture, provider: fixture.restart(provider).await }
    }

    pub(super) async fn spec(&self, id: &SandboxId, task: &Task) -> StartSpec {
        StartSpec {
            id: id.clone(),
            restore: None,
            worker: WorkerSpec {
                mode: WorkerMode::DevinRemote,
                program: self.fixture.program(task).await,
                session: id.session.clone(),
                outpost: OutpostId::new("outpost_env-suite").expect("a valid id"),
                acceptor: AcceptorId::new(format!("suite-{}", id.session.stable_hash())).expect("a valid id"),
                credentials: WorkerCredentials::Connect {
                    gateway_url: "http://127.0.0.1:9/gateway".to_owned(),
                    token: SecretString::from(SUITE_TOKEN.to_owned()),
                },
                remote_sha: None,
                settings: WorkerSettings::default(),
            },
            network_policy: NetworkPolicy::Unrestricted,
        }
    }

    /// Starts a sandbox whose disk is fresh.
    pub(super) async fn start(&self, id: &SandboxId, task: &Task) -> Result<Sandbox, Verdict> {
        self.started(self.spec(id, task).await).await
    }

    /// Starts a sandbox from a snapshot.
    pub(super) async fn restore(
        &self,
        id: &SandboxId,
        from: &SnapshotRef,
        task: &Task,
    ) -> Result<Sandbox, Verdict> {
        let mut spec = self.spec(id, task).await;
        spec.restore = Some(from.clone());
        self.started(spec).await
    }

    async fn started(&self, spec: StartSpec) -> Result<Sandbox, Verdict> {
        let id = spec.id.clone();
        match self.provider.start(spec).await? {
            Started::Sandbox(sandbox) if sandbox.id == id => Ok(sandbox),
            Started::Sandbox(sandbox) => fail!("{id} was started and {} is the answer", sandbox.id),
            Started::SnapshotUnusable { why } => fail!("a good snapshot was found unusable: {why}"),
        }
    }

    /// Waits until the listing answers `what`.
    pub(super) async fn until<T: Send>(
        &self,
        waiting_for: &str,
        what: impl Fn(&Inventory) -> Option<T> + Send + Sync,
    ) -> Result<T, Verdict> {
        let mut last = Inventory::default();
        for _ in 0..self.fixture.patience() {
            last = self.provider.list().await?;
            if let Some(answer) = what(&last) {
                return Ok(answer);
            }
            self.fixture.pause().await;
        }
        fail!("waited in vain for {waiting_for}; listed last: {last:#?}")
    }

    pub(super) async fn until_running(&self, id: &SandboxId) -> Result<Sandbox, Verdict> {
        self.until(&format!("a live worker in {id}"), |inventory| {
            find(inventory, id).filter(|sandbox| sandbox.state == SandboxState::Running).cloned()
        })
        .await
    }

    /// Waits until the worker has ended; answers its code.
    pub(super) async fn until_exited(&self, id: &SandboxId) -> Result<Option<i32>, Verdict> {
        self.until(&format!("the end of the worker in {id}"), |inventory| {
            match find(inventory, id).map(|sandbox| &sandbox.state) {
                Some(SandboxState::Exited { code }) => Some(*code),
                _ => None,
            }
        })
        .await
    }

    pub(super) async fn until_gone(&self, id: &SandboxId) -> Result<(), Verdict> {
        self.until(&format!("{id} to be gone"), |inventory| find(inventory, id).is_none().then_some(())).await
    }

    /// Waits until the worker has ended, and fails with the expectation that it found not to hold, if that is why.
    pub(super) async fn until_content(&self, id: &SandboxId, task: &Task) -> Result<(), Verdict> {
        let code = self.until_exited(id).await?;
        if let Err(failed) = task.explain(code) {
            fail!("{failed}");
        }
        match code {
            Some(0) => Ok(()),
            Some(99) => fail!("the worker could not prepare its disk"),
            code => fail!("the worker of {id} ended with {code:?} and not with 0"),
        }
    }

    /// Runs a task to its end in a fresh sandbox.
    pub(super) async fn run(&self, id: &SandboxId, task: &Task) -> Result<(), Verdict> {
        self.start(id, task).await?;
        self.until_content(id, task).await
    }

    /// Runs a task to its end in a sandbox that comes from a snapshot.
    pub(super) async fn run_restored(
        &self,
        id: &SandboxId,
        from: &SnapshotRef,
        task: &Task,
    ) -> Result<(), Verdict> {
        self.restore(id, from, task).await?;
        self.until_content(id, task).await
    }

    /// Asks for the end of the worker until it has ended.
    pub(super) async fn stop(&self, id: &SandboxId) -> Result<Stopped, Verdict> {
        for _ in 0..self.fixture.patience() {
            match self.provider.stop_worker(id, self.fixture.grace()).await? {
                Stopped::InProgress => self.fixture.pause().await,
                done @ Stopped::Done { .. } => return Ok(done),
            }
        }
        fail!("the worker of {id} does not end")
    }

    pub(super) async fn save(&self, id: &SandboxId) -> Result<Snapshot, Verdict> {
        self.save_for(id, SnapshotPurpose::Resume).await
    }

    /// Asks for the save until it is done.
    pub(super) async fn save_for(
        &self,
        id: &SandboxId,
        purpose: SnapshotPurpose,
    ) -> Result<Snapshot, Verdict> {
        for _ in 0..self.fixture.patience() {
            match self.provider.save(id, purpose).await? {
                Saving::InProgress => self.fixture.pause().await,
                Saving::Done(snapshot) if snapshot.session == id.session && snapshot.boot == id.boot => {
                    return Ok(snapshot);
                }
                Saving::Done(other) => fail!("{id} was saved and the answer is {other:?}"),
            }
        }
        fail!("saving {id} does not end")
    }

    /// Asks for the removal until it is done.
    pub(super) async fn remove(&self, id: &SandboxId) -> Result<(), Verdict> {
        for _ in 0..self.fixture.patience() {
            match self.provider.remove(id).await? {
                Removed::InProgress => self.fixture.pause().await,
                Removed::Done => return Ok(()),
            }
        }
        fail!("removing {id} does not end")
    }

    /// Waits until `count` processes carry the mark.
    pub(super) async fn until_processes(&self, mark: &str, count: usize) -> Result<(), Verdict> {
        let mut last = 0;
        for _ in 0..self.fixture.patience() {
            last = self.fixture.processes(mark).await?;
            if last == count {
                return Ok(());
            }
            self.fixture.pause().await;
        }
        fail!("{last} processes carry the mark {mark} and not {count}")
    }

    pub(super) async fn sandboxes(&self) -> Result<Vec<Sandbox>, Verdict> {
        Ok(self.provider.list().await?.sandboxes)
    }

    pub(super) async fn snapshots(&self) -> Result<Vec<Snapshot>, Verdict> {
        Ok(self.provider.list().await?.snapshots)
    }
}

pub(super) fn find<'i>(inventory: &'i Inventory, id: &SandboxId) -> Option<&'i Sandbox> {
    inventory.sandboxes.iter().find(|sandbox| sandbox.id == *id)
}

/// The `boot`-th sandbox of the session of this name.
pub(super) fn id(session: &str, boot: u64) -> SandboxId {
    let session = SessionId::new(format!("devin-suite-{session}")).expect("a valid id");
    SandboxId::new(session, Boot::new(boot))
}
