use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use outpost_core::model::{
    InstanceId, Sandbox, SandboxId, Snapshot, SnapshotRef, WorkerEnding, WorkerProgram,
};
use outpost_core::ports::Clock;

use super::disk::Disk;
use super::options::BackendOptions;
use super::provider::MemoryProvider;
use super::state::{Machine, Role, Saved, State};
use super::worker::{KILL_CODE, Worker};
use crate::clock::VirtualClock;
use crate::conformance::Task;
use crate::conformance::provider::Hindrance;
use crate::journal::Journal;

/// A backend in memory, shared by every [`MemoryProvider`] over it. Clones are the same backend.
///
/// It is also the way behind the providers' backs: a test plays the worker's part and the world's through it, and sees what
/// truly exists.
#[derive(Clone)]
pub struct MemoryBackend {
    clock: VirtualClock,
    state: Arc<Mutex<State>>,
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
        Self { clock, state: Arc::new(Mutex::new(State::new(options))) }
    }

    /// The same backend, which writes down what happens on it from now on.
    #[must_use]
    pub fn with_journal(self, journal: Journal) -> Self {
        self.settled().journal = journal;
        self
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
        let path = format!("task-{}", state.number());
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
        self.settled().lose(&(instance.clone(), id.clone()));
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
        let mut state = self.settled();
        state.tell_lost_snapshot(reference);
        if let Some(saved) = state.saved.get_mut(reference) {
            saved.corrupt = true;
        }
    }

    /// Makes a snapshot disappear.
    pub fn lose_snapshot(&self, reference: &SnapshotRef) {
        let mut state = self.settled();
        state.tell_lost_snapshot(reference);
        state.saved.remove(reference);
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

    /// Brings about what time does, so that the journal has heard of it.
    pub fn settle(&self) {
        drop(self.settled());
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
