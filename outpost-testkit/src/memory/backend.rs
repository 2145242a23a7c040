use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use outpost_core::model::{
    InstanceId, Sandbox, SandboxId, SandboxState, Snapshot, SnapshotPurpose, SnapshotRef, WorkerEnding,
    WorkerProgram,
};
use outpost_core::ports::Clock;

use super::disk::Disk;
use super::options::{BackendOptions, Expiry};
use super::provider::MemoryProvider;
use super::worker::{Behavior, KILL_CODE, Network, Worker};
use crate::clock::VirtualClock;
use crate::conformance::Task;
use crate::conformance::provider::Hindrance;

/// A backend in memory, shared by every [`MemoryProvider`] over it. Clones are the same backend.
///
/// It is also the way behind the providers' backs: a test plays the worker's part and the world's through it, and sees what
/// truly exists.
#[derive(Clone)]
pub struct MemoryBackend {
    clock: VirtualClock,
    state: Arc<Mutex<State>>,
}

/// Whose sandbox: the same session and boot can exist once for each instance.
pub(super) type Key = (InstanceId, SandboxId);

#[derive(Debug)]
pub(super) struct State {
    pub(super) options: BackendOptions,
    pub(super) machines: BTreeMap<Key, Machine>,
    pub(super) saved: BTreeMap<SnapshotRef, Saved>,
    pub(super) programs: BTreeMap<String, Task>,
    pub(super) hindered: BTreeSet<Hindrance>,
    /// What was left behind by broken removals.
    pub(super) debris: BTreeMap<Key, Vec<String>>,
    pub(super) next: u64,
}

#[derive(Debug)]
pub(super) struct Machine {
    pub(super) behavior: Behavior,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) network: Network,
    pub(super) worker: Worker,
    pub(super) disk: Disk,
    pub(super) role: Role,
    pub(super) started_at: Timestamp,
    pub(super) expires_at: Option<Timestamp>,
    pub(super) restored_from: Option<SnapshotRef>,
    pub(super) removed_at: Option<Timestamp>,
    pub(super) saving: Option<(Timestamp, SnapshotPurpose)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Session,
    Console,
}

#[derive(Debug, Clone)]
pub(super) struct Saved {
    pub(super) instance: InstanceId,
    pub(super) snapshot: Snapshot,
    pub(super) disk: Disk,
    pub(super) corrupt: bool,
}

/// A sandbox as it truly is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TrueSandbox {
    /// Whose it is.
    pub instance: InstanceId,
    /// As its provider lists it.
    pub sandbox: Sandbox,
    /// How much work is on its disk.
    pub work: u64,
}

/// A snapshot as it truly is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TrueSnapshot {
    /// Whose it is.
    pub instance: InstanceId,
    /// As its provider lists it.
    pub snapshot: Snapshot,
    /// How much work is on its disk.
    pub work: u64,
}

impl MemoryBackend {
    /// An empty backend.
    #[must_use]
    pub fn new(clock: VirtualClock, options: BackendOptions) -> Self {
        let state = State {
            options,
            machines: BTreeMap::new(),
            saved: BTreeMap::new(),
            programs: BTreeMap::new(),
            hindered: BTreeSet::new(),
            debris: BTreeMap::new(),
            next: 0,
        };
        Self { clock, state: Arc::new(Mutex::new(state)) }
    }

    /// A provider of `instance` over this backend.
    #[must_use]
    pub fn provider(&self, instance: InstanceId) -> MemoryProvider {
        MemoryProvider::new(self.clone(), instance)
    }

    /// The program whose workers live until [`exit_worker`](Self::exit_worker) or a stop. Every program that the backend does
    /// not know is one, too.
    #[must_use]
    pub fn puppet() -> WorkerProgram {
        WorkerProgram::Installed { path: "puppet".to_owned() }
    }

    /// A program whose workers do `task`.
    #[must_use]
    pub fn program(&self, task: &Task) -> WorkerProgram {
        let mut state = self.settled();
        state.next += 1;
        let path = format!("task-{}", state.next);
        state.programs.insert(path.clone(), task.clone());
        WorkerProgram::Installed { path }
    }

    /// The worker ends by itself. Nothing happens when it is not alive.
    pub fn exit_worker(&self, instance: &InstanceId, id: &SandboxId, code: i32) {
        self.end_worker(instance, id, Worker::Ended { code: Some(code), ending: WorkerEnding::Clean });
    }

    /// The worker is killed from outside. Nothing happens when it is not alive.
    pub fn kill_worker(&self, instance: &InstanceId, id: &SandboxId) {
        let killed = Worker::Ended { code: Some(KILL_CODE), ending: WorkerEnding::Clean };
        self.end_worker(instance, id, killed);
    }

    fn end_worker(&self, instance: &InstanceId, id: &SandboxId, end: Worker) {
        self.with_machine(instance, id, |found| {
            if matches!(found.worker, Worker::Alive(_)) {
                found.worker = end;
            }
        });
    }

    /// From now on the worker does nothing about TERM.
    pub fn make_worker_stubborn(&self, instance: &InstanceId, id: &SandboxId) {
        self.with_machine(instance, id, |found| {
            if let Worker::Alive(alive) = &mut found.worker {
                alive.ignores_term = true;
            }
        });
    }

    /// The worker does some work: the disk's counter grows. Nothing happens when it is not alive.
    pub fn work(&self, instance: &InstanceId, id: &SandboxId) {
        self.with_machine(instance, id, |found| {
            if matches!(found.worker, Worker::Alive(_)) {
                found.disk.work += 1;
            }
        });
    }

    /// The sandbox vanishes from outside, with its disk.
    pub fn destroy(&self, instance: &InstanceId, id: &SandboxId) {
        self.settled().machines.remove(&(instance.clone(), id.clone()));
    }

    /// Changes the disk of a sandbox, behind everybody's back.
    pub fn edit_disk(&self, instance: &InstanceId, id: &SandboxId, edit: impl FnOnce(&mut Disk)) {
        self.with_machine(instance, id, |found| edit(&mut found.disk));
    }

    /// Changes a snapshot, behind everybody's back: what is listed of it, and its disk.
    pub fn edit_snapshot(&self, reference: &SnapshotRef, edit: impl FnOnce(&mut Snapshot, &mut Disk)) {
        if let Some(saved) = self.settled().saved.get_mut(reference) {
            edit(&mut saved.snapshot, &mut saved.disk);
        }
    }

    /// Makes a snapshot unreadable.
    pub fn corrupt_snapshot(&self, reference: &SnapshotRef) {
        if let Some(saved) = self.settled().saved.get_mut(reference) {
            saved.corrupt = true;
        }
    }

    /// Makes a snapshot disappear.
    pub fn lose_snapshot(&self, reference: &SnapshotRef) {
        self.settled().saved.remove(reference);
    }

    /// Makes a second snapshot that differs from `reference` in its name only.
    pub fn duplicate_snapshot(&self, reference: &SnapshotRef) -> Option<Snapshot> {
        let mut state = self.settled();
        let mut copy = state.saved.get(reference)?.clone();
        copy.snapshot.reference = state.next_reference();
        let snapshot = copy.snapshot.clone();
        state.saved.insert(snapshot.reference.clone(), copy);
        Some(snapshot)
    }

    /// Puts a console's sandbox beside the sessions'.
    pub fn plant_console(&self, instance: &InstanceId, id: &SandboxId) {
        let now = self.clock.now();
        let mut console = Machine::new(now, now);
        console.role = Role::Console;
        self.settled().machines.insert((instance.clone(), id.clone()), console);
    }

    /// Puts a session's sandbox there, without anybody having started it.
    pub fn plant_session(&self, instance: &InstanceId, id: &SandboxId) {
        let now = self.clock.now();
        self.settled().machines.insert((instance.clone(), id.clone()), Machine::new(now, now));
    }

    /// Leaves something of a sandbox behind that only [`debris`](Self::debris) shows.
    pub fn litter(&self, instance: &InstanceId, id: &SandboxId, what: &str) {
        self.settled().debris.entry((instance.clone(), id.clone())).or_default().push(what.to_owned());
    }

    /// What is left of a sandbox, apart from snapshots.
    #[must_use]
    pub fn debris(&self, instance: &InstanceId, id: &SandboxId) -> Vec<String> {
        let state = self.settled();
        let key = (instance.clone(), id.clone());
        let mut left = state.debris.get(&key).cloned().unwrap_or_default();
        left.extend(state.machines.contains_key(&key).then(|| "the sandbox".to_owned()));
        left
    }

    /// The marks of the live processes of a sandbox.
    #[must_use]
    pub fn processes(&self, instance: &InstanceId, id: &SandboxId) -> Vec<String> {
        let state = self.settled();
        match state.machines.get(&(instance.clone(), id.clone())).map(|found| &found.worker) {
            Some(Worker::Alive(alive)) => alive.processes.clone(),
            _ => Vec::new(),
        }
    }

    /// How many live processes carry a mark.
    #[must_use]
    pub fn count_processes(&self, mark: &str) -> usize {
        let state = self.settled();
        let alive = state.machines.values().filter_map(|found| match &found.worker {
            Worker::Alive(alive) => Some(&alive.processes),
            _ => None,
        });
        alive.chain(state.debris.values()).flatten().filter(|found| *found == mark).count()
    }

    /// Where a text stands, of all that is kept but the workers' environments.
    #[must_use]
    pub fn search(&self, needle: &str) -> Vec<String> {
        let state = self.settled();
        let mut found = Vec::new();
        for ((_, id), place) in &state.machines {
            found.extend(place.disk.find(needle).map(|path| format!("{id}: {path}")));
            if let Worker::Alive(alive) = &place.worker {
                found.extend(alive.processes.iter().filter(|mark| mark.contains(needle)).cloned());
            }
        }
        for (reference, saved) in &state.saved {
            found.extend(saved.disk.find(needle).map(|path| format!("{reference}: {path}")));
        }
        found
    }

    /// Makes an operation impossible until [`heal`](Self::heal).
    pub fn hinder(&self, what: Hindrance) {
        self.settled().hindered.insert(what);
    }

    /// Ends every hindrance.
    pub fn heal(&self) {
        self.settled().hindered.clear();
    }

    /// Every sandbox of the role `session`, as it truly is.
    #[must_use]
    pub fn true_sandboxes(&self) -> Vec<TrueSandbox> {
        let state = self.settled();
        let sessions = state.machines.iter().filter(|(_, found)| found.role == Role::Session);
        sessions
            .map(|((instance, id), found)| TrueSandbox {
                instance: instance.clone(),
                sandbox: found.listed(id),
                work: found.disk.work,
            })
            .collect()
    }

    /// Every snapshot, as it truly is.
    #[must_use]
    pub fn true_snapshots(&self) -> Vec<TrueSnapshot> {
        let state = self.settled();
        let truth = |saved: &Saved| TrueSnapshot {
            instance: saved.instance.clone(),
            snapshot: saved.snapshot.clone(),
            work: saved.disk.work,
        };
        state.saved.values().map(truth).collect()
    }

    /// The time on the backend's clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn with_machine(&self, instance: &InstanceId, id: &SandboxId, change: impl FnOnce(&mut Machine)) {
        if let Some(found) = self.settled().machines.get_mut(&(instance.clone(), id.clone())) {
            change(found);
        }
    }

    /// The state as it is now: what time brings about has been brought about.
    pub(super) fn settled(&self) -> MutexGuard<'_, State> {
        let now = self.clock.now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.settle(now);
        state
    }
}

impl fmt::Debug for MemoryBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBackend").finish_non_exhaustive()
    }
}

impl Machine {
    pub(super) fn new(now: Timestamp, runs_at: Timestamp) -> Self {
        Self {
            behavior: Behavior::Puppet,
            environment: BTreeMap::new(),
            network: Network::Open,
            worker: Worker::Waiting { until: runs_at },
            disk: Disk::default(),
            role: Role::Session,
            started_at: now,
            expires_at: None,
            restored_from: None,
            removed_at: None,
            saving: None,
        }
    }

    pub(super) fn listed(&self, id: &SandboxId) -> Sandbox {
        let state = match &self.worker {
            _ if self.removed_at.is_some() => SandboxState::Stopping,
            Worker::Waiting { .. } => SandboxState::Starting,
            Worker::Alive(_) => SandboxState::Running,
            Worker::Ended { code, .. } => SandboxState::Exited { code: *code },
        };
        Sandbox {
            id: id.clone(),
            state,
            started_at: self.started_at,
            expires_at: self.expires_at,
            restored_from: self.restored_from.clone(),
        }
    }

    fn settle_worker(&mut self, now: Timestamp) {
        if let Worker::Waiting { until } = self.worker
            && until <= now
        {
            self.worker = self.behavior.begin(&mut self.disk, &self.environment, self.network);
        }
        if let Worker::Alive(alive) = &self.worker
            && let Some((at, ending)) = alive.dies
            && at <= now
        {
            let code = match ending {
                WorkerEnding::Clean => super::worker::TERM_CODE,
                WorkerEnding::Forced => KILL_CODE,
            };
            self.worker = Worker::Ended { code: Some(code), ending };
        }
    }
}

impl State {
    pub(super) fn settle(&mut self, now: Timestamp) {
        self.machines.retain(|_, found| found.removed_at.is_none_or(|at| at > now));
        let mut expired = Vec::new();
        let mut done = Vec::new();
        for (key, found) in &mut self.machines {
            found.settle_worker(now);
            match found.expires_at {
                Some(at) if at <= now && !matches!(found.worker, Worker::Ended { .. }) => {
                    expired.push(key.clone());
                }
                _ => {}
            }
            if found.saving.is_some_and(|(at, _)| at <= now) {
                done.push(key.clone());
            }
        }
        for key in done {
            self.finish_save(&key);
        }
        for key in expired {
            self.expire(&key, now);
        }
    }

    fn expire(&mut self, key: &Key, now: Timestamp) {
        let Some(found) = self.machines.get_mut(key) else { return };
        found.worker = Worker::Ended { code: None, ending: WorkerEnding::Forced };
        match self.options.expiry {
            Expiry::Exits => {}
            Expiry::Vanishes => {
                self.machines.remove(key);
            }
            Expiry::Snapshots => {
                found.saving = Some((now, SnapshotPurpose::Resume));
                self.finish_save(key);
                self.machines.remove(key);
            }
        }
    }

    /// Makes the snapshot that a sandbox's save has come to.
    pub(super) fn finish_save(&mut self, key: &Key) {
        let reference = self.next_reference();
        let Some(found) = self.machines.get_mut(key) else { return };
        let Some((at, purpose)) = found.saving.take() else { return };
        let ending = match found.worker {
            Worker::Ended { ending, .. } => ending,
            _ => WorkerEnding::Forced,
        };
        let snapshot = Snapshot {
            reference: reference.clone(),
            session: key.1.session.clone(),
            boot: key.1.boot,
            taken_at: at,
            size_bytes: Some(found.disk.nodes.len() as u64),
            ending,
            purpose,
        };
        let saved = Saved { instance: key.0.clone(), snapshot, disk: found.disk.clone(), corrupt: false };
        self.saved.insert(reference, saved);
        if self.options.after_save == outpost_core::ports::AfterSave::Consumed {
            self.machines.remove(key);
        }
    }

    pub(super) fn saved_of(&self, key: &Key, purpose: SnapshotPurpose) -> Option<&Saved> {
        self.saved.values().find(|saved| {
            saved.instance == key.0
                && saved.snapshot.session == key.1.session
                && saved.snapshot.boot == key.1.boot
                && saved.snapshot.purpose == purpose
        })
    }

    fn next_reference(&mut self) -> SnapshotRef {
        self.next += 1;
        SnapshotRef::new(format!("memory-{:06}", self.next)).expect("not empty")
    }
}
