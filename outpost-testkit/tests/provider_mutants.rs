//! The suite can fail: for each case there is a provider that is broken in just its way, and that case alone finds it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use outpost_core::model::{
    Boot, NetworkPolicy, SandboxId, SandboxState, Snapshot, SnapshotPurpose, SnapshotRef, WorkerCredentials,
    WorkerEnding, WorkerProgram,
};
use outpost_core::ports::{
    Capabilities, Error, ErrorKind, Inventory, Removed, SandboxProvider, Saving, StartSpec, Started, Stopped,
};
use outpost_testkit::conformance::provider::{CASES, Damage, Hindrance, ProviderFixture};
use outpost_testkit::conformance::{Skip, Task, run_cases};
use outpost_testkit::memory::{BackendOptions, MemoryBackend, MemoryFixture, MemoryProvider, Node};
use secrecy::ExposeSecret;

/// A provider that breaks the bullet `broken` and keeps the others.
#[derive(Debug)]
struct Mutant {
    broken: &'static str,
    inner: MemoryProvider,
    /// What this object has started.
    started: Mutex<BTreeSet<SandboxId>>,
    /// Snapshots whose deletion is pretended, or whose save was answered.
    pretended: Mutex<BTreeSet<SnapshotRef>>,
    early: Mutex<Vec<Snapshot>>,
    token: Mutex<String>,
}

impl Mutant {
    fn is(&self, broken: &str) -> bool {
        self.broken == broken
    }

    fn backend(&self) -> &MemoryBackend {
        self.inner.backend()
    }

    async fn state_of(&self, id: &SandboxId) -> Option<SandboxState> {
        let sandboxes = self.inner.list().await.ok()?.sandboxes;
        sandboxes.into_iter().find(|sandbox| sandbox.id == *id).map(|sandbox| sandbox.state)
    }
}

fn error(kind: ErrorKind) -> Error {
    Error::new(kind, "mutant", "call", "broken on purpose")
}

#[async_trait]
impl SandboxProvider for Mutant {
    fn name(&self) -> &'static str {
        "mutant"
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn list(&self) -> Result<Inventory, Error> {
        let mut listed = match self.inner.list().await {
            Err(_) if self.is("L1") => Inventory::default(),
            other => other?,
        };
        match self.broken {
            "L2" => listed.sandboxes.retain(|sandbox| sandbox.state != SandboxState::Starting),
            "L3" => listed.snapshots.extend(self.early.lock().unwrap().iter().cloned()),
            "L4" => {
                let theirs = self.backend().provider(MemoryFixture::neighbour());
                listed.sandboxes.extend(theirs.list().await?.sandboxes);
            }
            "L5" => listed.sandboxes.retain(|sandbox| self.started.lock().unwrap().contains(&sandbox.id)),
            "D1" => listed
                .snapshots
                .retain(|snapshot| !self.pretended.lock().unwrap().contains(&snapshot.reference)),
            _ => {}
        }
        Ok(listed)
    }

    async fn start(&self, mut spec: StartSpec) -> Result<Started, Error> {
        let id = spec.id.clone();
        self.started.lock().unwrap().insert(id.clone());
        if let WorkerCredentials::Connect { token, .. } = &spec.worker.credentials {
            *self.token.lock().unwrap() = token.expose_secret().to_owned();
        }
        let siblings: Vec<_> = self.inner.list().await?.sandboxes;
        let stopping = |boot: Boot| {
            siblings.iter().any(|other| {
                other.id.session == id.session
                    && other.id.boot < boot
                    && !matches!(other.state, SandboxState::Exited { .. })
            })
        };
        match self.broken {
            "S1" if siblings.iter().any(|other| other.id == id) => {
                self.backend().destroy(self.inner.instance(), &id);
            }
            "S2" if spec.restore.is_none() => {
                let snapshots = self.inner.list().await?.snapshots;
                let newest = snapshots.into_iter().filter(|snapshot| snapshot.session == id.session);
                spec.restore = newest.max_by_key(|snapshot| snapshot.boot).map(|snapshot| snapshot.reference);
            }
            "S5" => spec.worker.settings.extra_env.push(("CARGO_HOME".to_owned(), "/leaked".to_owned())),
            "S6" if stopping(id.boot) => return Err(error(ErrorKind::Conflict)),
            "S7" => spec.network_policy = NetworkPolicy::Unrestricted,
            _ => {}
        }
        let answer = self.inner.start(spec.clone()).await;
        match (self.broken, answer) {
            ("S3", Ok(Started::SnapshotUnusable { .. })) => Err(error(ErrorKind::NotFound)),
            ("S4", Err(failed)) if failed.kind() == ErrorKind::Unavailable => {
                self.backend().heal();
                self.inner.start(spec).await?;
                Err(failed)
            }
            (_, answer) => answer,
        }
    }

    async fn stop_worker(&self, id: &SandboxId, grace: Duration) -> Result<Stopped, Error> {
        let state = self.state_of(id).await;
        let marks = self.backend().processes(self.inner.instance(), id);
        if self.is("W2") && state.is_none() {
            return Err(error(ErrorKind::NotFound));
        }
        let stopped = self.inner.stop_worker(id, grace).await?;
        if self.is("W1") && marks.len() > 1 && matches!(stopped, Stopped::Done { .. }) {
            self.backend().litter(self.inner.instance(), id, &marks[0]);
        }
        Ok(stopped)
    }

    async fn save(&self, id: &SandboxId, purpose: SnapshotPurpose) -> Result<Saving, Error> {
        let instance = self.inner.instance();
        match self.broken {
            "V3" if self.state_of(id).await == Some(SandboxState::Running) => {
                self.inner.stop_worker(id, Duration::ZERO).await?;
            }
            "V5" => {
                let token = self.token.lock().unwrap().clone();
                self.backend().edit_disk(instance, id, |disk| disk.write(".env", &token));
            }
            "V6" => {
                self.backend().edit_disk(instance, id, |disk| disk.nodes.retain(|_, node| *node != Node::Dir))
            }
            _ => {}
        }
        let answer = self.inner.save(id, purpose).await;
        match (self.broken, answer) {
            ("V4", Err(failed)) if failed.kind() == ErrorKind::Unavailable => {
                self.backend().destroy(instance, id);
                Err(failed)
            }
            ("L3", Ok(Saving::InProgress)) => {
                let early = Snapshot {
                    reference: SnapshotRef::new("early").unwrap(),
                    session: id.session.clone(),
                    boot: id.boot,
                    taken_at: self.backend().now(),
                    size_bytes: None,
                    ending: WorkerEnding::Clean,
                    purpose,
                };
                *self.early.lock().unwrap() = vec![early];
                Ok(Saving::InProgress)
            }
            ("V1", Ok(Saving::Done(snapshot)))
                if !self.pretended.lock().unwrap().insert(snapshot.reference.clone()) =>
            {
                Ok(Saving::Done(self.backend().duplicate_snapshot(&snapshot.reference).unwrap()))
            }
            ("W3", Ok(Saving::Done(snapshot))) => {
                self.backend()
                    .edit_snapshot(&snapshot.reference, |snapshot, _| snapshot.ending = WorkerEnding::Clean);
                self.inner.save(id, purpose).await
            }
            (broken, Ok(Saving::Done(snapshot))) => {
                if broken == "L3" {
                    self.early.lock().unwrap().clear();
                }
                Ok(Saving::Done(snapshot))
            }
            (_, answer) => answer,
        }
    }

    async fn remove(&self, id: &SandboxId) -> Result<Removed, Error> {
        let instance = self.inner.instance();
        match self.broken {
            "R1" => self.backend().litter(instance, id, "a volume"),
            "R2" if !self.started.lock().unwrap().contains(id) => return Err(error(ErrorKind::NotFound)),
            "R3" => {
                for snapshot in self.inner.list().await?.snapshots {
                    let of_it = snapshot.session == id.session && snapshot.boot == id.boot;
                    if of_it && snapshot.purpose == SnapshotPurpose::Detached {
                        self.backend().lose_snapshot(&snapshot.reference);
                    }
                }
            }
            "R4" if self.state_of(id).await == Some(SandboxState::Starting) => return Ok(Removed::Done),
            _ => {}
        }
        self.inner.remove(id).await
    }

    async fn extend(&self, id: &SandboxId) -> Result<Option<Timestamp>, Error> {
        let until = self.inner.extend(id).await?;
        Ok(if self.is("E1") { until.map(|until| until + SignedDuration::from_secs(60)) } else { until })
    }

    async fn delete_snapshot(&self, snapshot: &SnapshotRef) -> Result<(), Error> {
        match self.broken {
            "D1" => {
                self.pretended.lock().unwrap().insert(snapshot.clone());
                return Ok(());
            }
            "D2" => {
                for sandbox in self.inner.list().await?.sandboxes {
                    if sandbox.restored_from.as_ref() == Some(snapshot) {
                        self.backend().destroy(self.inner.instance(), &sandbox.id);
                    }
                }
            }
            _ => {}
        }
        self.inner.delete_snapshot(snapshot).await
    }
}

struct MutantFixture {
    broken: &'static str,
    memory: MemoryFixture,
}

impl MutantFixture {
    fn new(broken: &'static str) -> Self {
        let mut options = BackendOptions::default();
        options.save_takes = Duration::from_millis(200);
        options.remove_takes = Duration::from_millis(200);
        options.lifetime_limit = Some(Duration::from_secs(3600));
        options.time_to_live = Some(Duration::from_secs(600));
        if broken == "S7" {
            options.network_policy = outpost_core::ports::Support::No;
        }
        Self { broken, memory: MemoryFixture::with(options) }
    }

    fn mutant(&self) -> Mutant {
        Mutant {
            broken: self.broken,
            inner: self.memory.backend.provider(MemoryFixture::instance()),
            started: Mutex::default(),
            pretended: Mutex::default(),
            early: Mutex::default(),
            token: Mutex::default(),
        }
    }
}

#[async_trait]
impl ProviderFixture for MutantFixture {
    async fn open(&self) -> Arc<dyn SandboxProvider> {
        Arc::new(self.mutant())
    }
    async fn restart(&self, old: Arc<dyn SandboxProvider>) -> Arc<dyn SandboxProvider> {
        if self.broken == "V2" {
            // What was not synced is cut when the process dies.
            for snapshot in old.list().await.unwrap().snapshots {
                self.memory.backend.corrupt_snapshot(&snapshot.reference);
            }
        }
        self.open().await
    }
    async fn open_neighbour(&self) -> Result<Arc<dyn SandboxProvider>, Skip> {
        self.memory.open_neighbour().await
    }
    async fn program(&self, task: &Task) -> WorkerProgram {
        self.memory.program(task).await
    }
    async fn pause(&self) {
        self.memory.pause().await;
    }
    fn patience(&self) -> u32 {
        200
    }
    async fn processes(&self, mark: &str) -> Result<usize, Skip> {
        self.memory.processes(mark).await
    }
    async fn search(&self, needle: &str) -> Result<Vec<String>, Skip> {
        self.memory.search(needle).await
    }
    async fn leftovers(&self, id: &SandboxId) -> Result<Vec<String>, Skip> {
        self.memory.leftovers(id).await
    }
    async fn damage(&self, snapshot: &SnapshotRef, damage: Damage) -> Result<(), Skip> {
        self.memory.damage(snapshot, damage).await
    }
    async fn hinder(&self, what: Hindrance) -> Result<(), Skip> {
        self.memory.hinder(what).await
    }
    async fn heal(&self) {
        self.memory.heal().await;
    }
    fn network_probe(&self) -> Result<String, Skip> {
        self.memory.network_probe()
    }
}

fn caught_by(broken: &'static str) -> (Vec<&'static str>, String) {
    let report = futures_block_on(run_cases(CASES, || async move {
        let fixture: Box<dyn ProviderFixture> = Box::new(MutantFixture::new(broken));
        fixture
    }));
    assert!(report.skipped.is_empty(), "{:?}", report.skipped);
    (report.failed.iter().map(|(id, _)| *id).collect(), format!("{:#?}", report.failed))
}

fn futures_block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[test]
fn each_broken_provider_is_caught_by_exactly_the_case_meant() {
    let wrong: Vec<_> = CASES
        .iter()
        .map(|case| (case.id, caught_by(case.id)))
        .filter(|(id, (caught, _))| caught[..] != [*id])
        .map(|(id, (caught, why))| format!("the mutant of {id} is caught by {caught:?}: {why}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_unbroken_mutant_passes() {
    assert_eq!(caught_by("nothing").0, Vec::<&str>::new());
}
