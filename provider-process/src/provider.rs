//! The provider: who may do what when, and the port's answers.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use outpost_core::model::{
    InstanceId, Sandbox, SandboxId, SandboxState, Snapshot, SnapshotPurpose, SnapshotRef, WorkerEnding,
};
use outpost_core::ports::{
    Capabilities, Error, ErrorKind, Inventory, Removed, SandboxProvider, Saving, StartSpec, Started, Stopped,
};
use outpost_provider_kit::{Cancel, Fault, Tasks, Turns, blocking};

use crate::boot::{self, BootDir, Damaged, names_in};
use crate::durable::make_durable;
use crate::ending::end_all;
use crate::layout::Layout;
use crate::meta::SnapshotMeta;
use crate::remove::remove;
use crate::save::save;
use crate::settings::{BuildError, Builder, Settings};
use crate::start::start;
use crate::sweep::sweep;
use crate::{NAME, lock};

/// Sandboxes as process groups in directories of this machine. What it does and does not do stands at the head of this
/// crate.
///
/// One process an instance and state directory: it holds a lock. Dropping it ends no worker; saves and starts that are
/// under way are called off and leave nothing half-done. It needs a tokio runtime with time and I/O.
#[derive(Debug)]
pub struct ProcessProvider {
    inner: Arc<Inner>,
}

impl ProcessProvider {
    /// Begins to make a provider for `instance` that keeps everything under `state_dir`.
    pub fn builder(state_dir: impl AsRef<Path>, instance: InstanceId) -> Builder {
        Builder::new(state_dir.as_ref(), instance)
    }

    pub(crate) fn open(builder: Builder) -> Result<Self, BuildError> {
        let Builder { state_dir, instance, settings } = builder;
        let usable = state_dir.is_absolute() && state_dir.to_str().is_some_and(|text| !text.contains('\n'));
        if !usable {
            return Err(BuildError::Path { path: state_dir });
        }
        let unusable = |why: String| BuildError::Unusable { path: state_dir.clone(), why };
        let layout = Layout::new(state_dir.clone(), instance.clone());
        layout.prepare().map_err(|error| unusable(error.to_string()))?;
        // Working directories are seen without links, so the paths that they are compared with have none.
        let resolved = state_dir.canonicalize().map_err(|error| unusable(error.to_string()))?;
        let layout = Layout::new(resolved, instance);
        let held = lock::take(&layout, &state_dir)?;
        let make = || {
            sweep(&layout)?;
            let (mut restored, _) = boot::all(&layout)?;
            // What cannot be looked at now is looked at when it is listed.
            restored.retain(|boot| boot.awaits_durability().unwrap_or(false));
            make_durable(restored);
            Ok(())
        };
        make().map_err(|fault: Fault| unusable(fault.message))?;
        let inner = Inner {
            layout,
            settings,
            moving: RwLock::default(),
            turns: Turns::default(),
            starts: Tasks::default(),
            stops: Tasks::default(),
            saves: Tasks::default(),
            removals: Tasks::default(),
            warned: Mutex::default(),
            _held: held,
        };
        Ok(Self { inner: Arc::new(inner) })
    }
}

impl Drop for ProcessProvider {
    fn drop(&mut self) {
        self.inner.starts.cancel_all();
        self.inner.saves.cancel_all();
    }
}

/// What the provider and its tasks share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) layout: Layout,
    pub(crate) settings: Settings,
    /// Held for reading while directories are listed, for writing while one changes its name.
    moving: RwLock<()>,
    pub(crate) turns: Turns,
    starts: Tasks<SandboxId, Started>,
    stops: Tasks<SandboxId, WorkerEnding>,
    saves: Tasks<(SandboxId, SnapshotPurpose), Snapshot>,
    removals: Tasks<SandboxId, ()>,
    /// Damaged files that were spoken of.
    warned: Mutex<HashSet<PathBuf>>,
    _held: File,
}

impl Inner {
    /// Finds a sandbox.
    pub(crate) fn find(&self, id: &SandboxId) -> Result<Option<BootDir>, Fault> {
        let _listing = self.listing();
        BootDir::find(&self.layout, id)
    }

    pub(crate) fn moving(&self) -> RwLockWriteGuard<'_, ()> {
        self.moving.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn listing(&self) -> RwLockReadGuard<'_, ()> {
        self.moving.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a start, a save and the grace of a stop of a sandbox that nobody wants any more.
    pub(crate) async fn call_off(&self, id: &SandboxId) {
        self.starts.cancel(id).await;
        self.stops.cancel(id).await;
        for purpose in [SnapshotPurpose::Resume, SnapshotPurpose::Detached] {
            self.saves.cancel(&(id.clone(), purpose)).await;
        }
    }

    fn inventory(&self, starting: Vec<SandboxId>) -> Result<Inventory, Fault> {
        let mut sandboxes = {
            let _listing = self.listing();
            let (boots, damaged) = boot::all(&self.layout)?;
            for Damaged { dir, why } in damaged {
                self.warn_once(dir.join("meta.json"), &why);
            }
            boots.iter().map(BootDir::sandbox).collect::<Result<Vec<_>, _>>()?
        };
        for id in starting {
            if !sandboxes.iter().any(|sandbox| sandbox.id == id) {
                sandboxes.push(under_way(id));
            }
        }
        Ok(Inventory { sandboxes, snapshots: self.snapshots()? })
    }

    fn snapshots(&self) -> Result<Vec<Snapshot>, Fault> {
        let mut snapshots = Vec::new();
        for name in names_in(&self.layout.snapshots())? {
            let reference = name.strip_suffix(".json").filter(|name| self.layout.owns_reference(name));
            let Some(reference) = reference.and_then(SnapshotRef::new) else { continue };
            snapshots.extend(self.snapshot(reference)?);
        }
        Ok(snapshots)
    }

    /// Says of a damaged file that it is passed over.
    pub(crate) fn warn_once(&self, file: PathBuf, why: &str) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if !warned.contains(&file) {
            tracing::warn!(
                "{} is damaged and is passed over, with what it stands for: {why}",
                file.display()
            );
            warned.insert(file);
        }
    }

    /// A snapshot of this instance. One whose archive somebody took away or cut is none: it could be restored by nobody,
    /// and while its sandbox is there it can be taken again.
    pub(crate) fn snapshot(&self, reference: SnapshotRef) -> Result<Option<Snapshot>, Fault> {
        let sidecar = self.layout.sidecar(reference.as_str());
        let meta = match SnapshotMeta::read(&sidecar) {
            Err(fault) if fault.kind == ErrorKind::Invalid => {
                self.warn_once(sidecar, &fault.message);
                None
            }
            meta => meta?,
        };
        let Some(meta) = meta.filter(|meta| meta.instance == *self.layout.instance()) else {
            return Ok(None);
        };
        let archive = self.layout.archive(reference.as_str());
        let size = match fs::metadata(&archive) {
            Ok(metadata) => Some(metadata.len()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(Fault::io(format_args!("look at {}", archive.display()), &error)),
        };
        Ok((size == Some(meta.size_bytes)).then(|| meta.listed(reference)))
    }
}

/// A sandbox whose directory is still being prepared.
fn under_way(id: SandboxId) -> Sandbox {
    let state = SandboxState::Starting;
    Sandbox { id, state, started_at: Timestamp::now(), expires_at: None, restored_from: None }
}

#[async_trait]
impl SandboxProvider for ProcessProvider {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    async fn list(&self) -> Result<Inventory, Error> {
        let inner = self.inner.clone();
        // Before the look at the disk: what has become a sandbox in between is seen there.
        let starting = inner.starts.keys();
        blocking(move || inner.inventory(starting)).await.map_err(|fault| fault.in_operation(NAME, "list"))
    }

    async fn start(&self, spec: StartSpec) -> Result<Started, Error> {
        let inner = self.inner.clone();
        let id = spec.id.clone();
        let started = self.inner.starts.run(&id, None, |cancel| start(inner, spec, cancel)).await;
        match started {
            Some(result) => result.map_err(|fault| fault.in_operation(NAME, "start")),
            None => {
                Err(Error::new(ErrorKind::Unavailable, NAME, "start", "still under way")
                    .may_have_been_applied())
            }
        }
    }

    async fn stop_worker(&self, id: &SandboxId, grace: Duration) -> Result<Stopped, Error> {
        let (inner, of) = (self.inner.clone(), id.clone());
        let stopped = self
            .inner
            .stops
            .run(id, Some(self.inner.settings.patience), |cancel| stop(inner, of, grace, cancel));
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
        let (inner, of) = (self.inner.clone(), id.clone());
        let found =
            blocking(move || inner.find(&of)).await.map_err(|fault| fault.in_operation(NAME, "extend"))?;
        match found {
            Some(_) => Ok(None),
            None => Err(Error::new(ErrorKind::NotFound, NAME, "extend", format!("{id} does not exist"))),
        }
    }

    async fn delete_snapshot(&self, snapshot: &SnapshotRef) -> Result<(), Error> {
        let (inner, snapshot) = (self.inner.clone(), snapshot.clone());
        let deleted = blocking(move || inner.delete_snapshot_now(&snapshot)).await;
        deleted.map_err(|fault| fault.in_operation(NAME, "delete snapshot"))
    }
}

async fn stop(
    inner: Arc<Inner>,
    id: SandboxId,
    grace: Duration,
    cancel: Cancel,
) -> Result<WorkerEnding, Fault> {
    let _turn = inner.turns.take(&id.session).await;
    let found = {
        let inner = inner.clone();
        blocking(move || inner.find(&id)).await?
    };
    match found {
        Some(boot) => end_all(boot, grace, cancel).await,
        None => Ok(WorkerEnding::Clean),
    }
}
