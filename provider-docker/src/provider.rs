//! The provider: who may do what when, and the port's answers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bollard::query_parameters::{ListContainersOptionsBuilder, ListImagesOptionsBuilder};
use jiff::Timestamp;
use outpost_core::model::{
    InstanceId, Sandbox, SandboxId, SandboxState, Snapshot, SnapshotPurpose, SnapshotRef, WorkerEnding,
};
use outpost_core::ports::{
    Capabilities, Error, ErrorKind, Inventory, Removed, SandboxProvider, Saving, StartSpec, Started, Stopped,
    Support,
};
use outpost_provider_kit::{Fault, Tasks, Turns};

use crate::NAME;
use crate::account::Account;
use crate::container::{Container, Life, understood};
use crate::engine::Engine;
use crate::fault::Asking as _;
use crate::names::{INSTANCE, Names, ROLE, Role};
use crate::program::Checksums;
use crate::remove::{delete_snapshot, remove, stop};
use crate::save::{save, snapshot};
use crate::settings::{BuildError, Builder, OnStep, Settings};
use crate::start::{refuse_volumes, start};
use crate::step::Step;

/// Sandboxes as containers of an engine. What it does and does not do stands at the head of this crate.
///
/// One process an instance: two that share an engine have different instances. Dropping it ends no worker; saves and
/// starts that are under way are called off. It needs a tokio runtime with time and I/O.
#[derive(Debug)]
pub struct DockerProvider {
    inner: Arc<Inner>,
}

impl DockerProvider {
    /// Begins to make a provider for `instance`.
    pub fn builder(instance: InstanceId) -> Builder {
        Builder::new(instance)
    }

    pub(crate) async fn open(builder: Builder) -> Result<Self, BuildError> {
        let Builder { instance, settings, on_step } = builder;
        crate::check::check(&settings)?;
        let engine = Engine::connect(&settings).await?;
        let of_image = |fault: Fault| BuildError::Image { image: settings.image.clone(), why: fault.message };
        let image = engine.base_image(&settings, settings.pull).await.map_err(of_image)?;
        refuse_volumes(&image).map_err(of_image)?;
        let inner = Inner {
            engine,
            names: Names::new(instance),
            settings,
            turns: Turns::default(),
            checksums: Checksums::default(),
            filling: tokio::sync::Mutex::default(),
            accounts: Mutex::default(),
            guard: tokio::sync::OnceCell::default(),
            starts: Tasks::default(),
            stops: Tasks::default(),
            saves: Tasks::default(),
            removals: Tasks::default(),
            on_step: Hook(on_step),
        };
        let broken = |fault: Fault| BuildError::Engine { why: fault.message };
        inner.prepare_guard().await.map_err(broken)?;
        inner.sweep().await.map_err(broken)?;
        Ok(Self { inner: Arc::new(inner) })
    }
}

impl Drop for DockerProvider {
    fn drop(&mut self) {
        self.inner.starts.cancel_all();
        self.inner.saves.cancel_all();
    }
}

/// What the provider and its tasks share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) engine: Engine,
    pub(crate) names: Names,
    pub(crate) settings: Settings,
    pub(crate) turns: Turns,
    pub(crate) checksums: Checksums,
    /// Held by whoever uses a helper whose name others use, too.
    pub(crate) filling: tokio::sync::Mutex<()>,
    accounts: Mutex<HashMap<(String, String), Account>>,
    /// What guards are made from.
    pub(crate) guard: tokio::sync::OnceCell<crate::guard::Prepared>,
    starts: Tasks<SandboxId, Started>,
    stops: Tasks<SandboxId, WorkerEnding>,
    saves: Tasks<(SandboxId, SnapshotPurpose), Snapshot>,
    removals: Tasks<SandboxId, ()>,
    on_step: Hook,
}

struct Hook(Option<OnStep>);

impl std::fmt::Debug for Hook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hook")
    }
}

impl Inner {
    /// Says that a step is reached.
    pub(crate) fn reached(&self, step: Step) {
        if let Some(hook) = &self.on_step.0 {
            hook(step);
        }
    }

    /// Finds a sandbox's container.
    pub(crate) async fn find(&self, id: &SandboxId) -> Result<Option<Container>, Fault> {
        self.engine.sandbox(&self.names, id).await
    }

    pub(crate) fn accounts(&self) -> MutexGuard<'_, HashMap<(String, String), Account>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a start and a save of a sandbox that nobody wants any more.
    pub(crate) async fn call_off(&self, id: &SandboxId) {
        self.starts.cancel(id).await;
        for purpose in [SnapshotPurpose::Resume, SnapshotPurpose::Detached] {
            self.saves.cancel(&(id.clone(), purpose)).await;
        }
    }

    async fn inventory(&self) -> Result<Inventory, Fault> {
        // Before the look at the engine: what has become a sandbox in between is seen there.
        let starting = self.starts.keys();
        let removing = self.removals.keys();
        // Sandboxes first: one that is saved and removed in between is seen at least once.
        let mut sandboxes: Vec<_> = self.containers().await?.into_iter().map(Container::listed).collect();
        for id in starting {
            match sandboxes.iter_mut().find(|sandbox| sandbox.id == id) {
                Some(sandbox) => sandbox.state = SandboxState::Starting,
                None => sandboxes.push(under_way(id)),
            }
        }
        for sandbox in &mut sandboxes {
            if removing.contains(&sandbox.id) {
                sandbox.state = SandboxState::Stopping;
            }
        }
        Ok(Inventory { sandboxes, snapshots: self.snapshots().await? })
    }

    pub(crate) async fn containers(&self) -> Result<Vec<Container>, Fault> {
        let listed = self.list_containers(Role::Session).await?;
        let listed = listed.into_iter().filter_map(|summary| Container::of_list(&self.names, summary));
        let mut containers = Vec::new();
        for container in listed {
            // The list may be silent upon the code.
            if container.life == (Life::Ended { code: None }) {
                containers.extend(self.find(&container.sandbox.id).await?);
            } else {
                containers.push(container);
            }
        }
        Ok(containers)
    }

    pub(crate) async fn list_containers(
        &self,
        role: Role,
    ) -> Result<Vec<bollard::models::ContainerSummary>, Fault> {
        let labels =
            vec![format!("{INSTANCE}={}", self.names.instance()), format!("{ROLE}={}", role.as_str())];
        let filters = HashMap::from([("label".to_owned(), labels)]);
        let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
        understood(self.engine.quick.list_containers(Some(options)).await).asking("list containers")
    }

    pub(crate) async fn list_images(&self) -> Result<Vec<bollard::models::ImageSummary>, Fault> {
        let labels = vec![format!("{INSTANCE}={}", self.names.instance())];
        let filters = HashMap::from([("label".to_owned(), labels)]);
        let options = ListImagesOptionsBuilder::default().filters(&filters).build();
        self.engine.quick.list_images(Some(options)).await.asking("list images")
    }

    async fn snapshots(&self) -> Result<Vec<Snapshot>, Fault> {
        let listed = self.list_images().await?;
        let snapshots = listed.into_iter().filter_map(|image| {
            let labels = self.names.as_snapshot(&image.repo_tags, &image.labels)?;
            snapshot(labels, &crate::image::with_algorithm(image.id), image.size.try_into().unwrap_or(0))
        });
        Ok(snapshots.collect())
    }
}

/// A sandbox whose container is not made yet.
fn under_way(id: SandboxId) -> Sandbox {
    let state = SandboxState::Starting;
    Sandbox { id, state, started_at: Timestamp::now(), expires_at: None, restored_from: None }
}

#[async_trait]
impl SandboxProvider for DockerProvider {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::default();
        if self.inner.enforces_policies() {
            capabilities.network_policy = Support::Yes;
        }
        capabilities
    }

    async fn list(&self) -> Result<Inventory, Error> {
        self.inner.inventory().await.map_err(|fault| fault.in_operation(NAME, "list"))
    }

    async fn start(&self, spec: StartSpec) -> Result<Started, Error> {
        let inner = self.inner.clone();
        let id = spec.id.clone();
        let started = self.inner.starts.run(&id, None, |cancel| start(inner, spec, cancel)).await;
        match started {
            Some(result) => result.map_err(|fault| fault.in_operation(NAME, "start")),
            None => {
                let fault = Fault::new(ErrorKind::Unavailable, "still under way").may_have_been_applied();
                Err(fault.in_operation(NAME, "start"))
            }
        }
    }

    async fn stop_worker(&self, id: &SandboxId, grace: Duration) -> Result<Stopped, Error> {
        let (inner, of) = (self.inner.clone(), id.clone());
        let patience = Some(self.inner.settings.patience);
        let stopped = self.inner.stops.run(id, patience, |cancel| stop(inner, of, grace, cancel));
        match stopped.await {
            None => Ok(Stopped::InProgress),
            Some(Ok(ending)) => Ok(Stopped::Done { ending }),
            Some(Err(fault)) => Err(fault.in_operation(NAME, "stop worker")),
        }
    }

    async fn save(&self, id: &SandboxId, purpose: SnapshotPurpose) -> Result<Saving, Error> {
        let (inner, of) = (self.inner.clone(), id.clone());
        let key = (id.clone(), purpose);
        let patience = Some(self.inner.settings.patience);
        let saved = self.inner.saves.run(&key, patience, |cancel| save(inner, of, purpose, cancel));
        match saved.await {
            None => Ok(Saving::InProgress),
            Some(Ok(snapshot)) => Ok(Saving::Done(snapshot)),
            Some(Err(fault)) => Err(fault.in_operation(NAME, "save")),
        }
    }

    async fn remove(&self, id: &SandboxId) -> Result<Removed, Error> {
        let (inner, of) = (self.inner.clone(), id.clone());
        let patience = Some(self.inner.settings.patience);
        let removed = self.inner.removals.run(id, patience, |cancel| remove(inner, of, cancel));
        match removed.await {
            None => Ok(Removed::InProgress),
            Some(Ok(())) => Ok(Removed::Done),
            Some(Err(fault)) => Err(fault.in_operation(NAME, "remove")),
        }
    }

    async fn extend(&self, id: &SandboxId) -> Result<Option<Timestamp>, Error> {
        match self.inner.find(id).await.map_err(|fault| fault.in_operation(NAME, "extend"))? {
            Some(_) => Ok(None),
            None => Err(Error::new(ErrorKind::NotFound, NAME, "extend", format!("{id} does not exist"))),
        }
    }

    async fn delete_snapshot(&self, snapshot: &SnapshotRef) -> Result<(), Error> {
        let deleted = delete_snapshot(&self.inner, snapshot).await;
        deleted.map_err(|fault| fault.in_operation(NAME, "delete snapshot"))
    }
}
