//! What is on a backend in memory, and what time does to it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use outpost_core::invariants::Fact;
use outpost_core::model::{
    InstanceId, Sandbox, SandboxId, SandboxState, Snapshot, SnapshotPurpose, SnapshotRef, WorkerEnding,
};
use outpost_core::ports::AfterSave;

use super::disk::Disk;
use super::options::{BackendOptions, Expiry};
use super::worker::{Behavior, KILL_CODE, Network, TERM_CODE, Worker};
use crate::conformance::Task;
use crate::conformance::provider::Hindrance;
use crate::journal::Journal;

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
    pub(super) journal: Journal,
    next: u64,
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
    /// Whether the journal knows that the worker has ended.
    end_is_told: bool,
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
            end_is_told: false,
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

    pub(super) const fn has_ended(&self) -> bool {
        matches!(self.worker, Worker::Ended { .. })
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
                WorkerEnding::Clean => TERM_CODE,
                WorkerEnding::Forced => KILL_CODE,
            };
            self.worker = Worker::Ended { code: Some(code), ending };
        }
    }
}

impl State {
    pub(super) fn new(options: BackendOptions) -> Self {
        Self {
            options,
            machines: BTreeMap::new(),
            saved: BTreeMap::new(),
            programs: BTreeMap::new(),
            hindered: BTreeSet::new(),
            debris: BTreeMap::new(),
            journal: Journal::default(),
            next: 0,
        }
    }

    /// Brings about what time does.
    pub(super) fn settle(&mut self, now: Timestamp) {
        self.machines.retain(|_, found| found.removed_at.is_none_or(|at| at > now));
        let mut expired = Vec::new();
        let mut done = Vec::new();
        for (key, found) in &mut self.machines {
            found.settle_worker(now);
            let over = found.expires_at.is_some_and(|at| at <= now) && found.removed_at.is_none();
            if over && (self.options.expiry != Expiry::Exits || !found.has_ended()) {
                expired.push(key.clone());
            }
            if found.saving.is_some_and(|(at, _)| at <= now) {
                done.push(key.clone());
            }
            if found.has_ended() && !std::mem::replace(&mut found.end_is_told, true) {
                self.journal.note(&key.0, Fact::WorkerEnded(key.1.clone()));
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
        if !found.has_ended() {
            found.worker = Worker::Ended { code: None, ending: WorkerEnding::Forced };
        }
        if !std::mem::replace(&mut found.end_is_told, true) {
            self.journal.note(&key.0, Fact::WorkerEnded(key.1.clone()));
        }
        if self.options.expiry == Expiry::Snapshots && self.saved_of(key, SnapshotPurpose::Resume).is_none() {
            if let Some(found) = self.machines.get_mut(key) {
                found.saving = Some((now, SnapshotPurpose::Resume));
            }
            self.finish_save(key);
        }
        if self.options.expiry != Expiry::Exits {
            self.lose(key);
        }
    }

    /// A sandbox is gone without an orchestrator's doing.
    pub(super) fn lose(&mut self, key: &Key) {
        if self.machines.remove(key).is_some() {
            self.journal.note(&key.0, Fact::SandboxLost(key.1.clone()));
        }
    }

    /// A snapshot is gone, or worth nothing any more, without an orchestrator's doing.
    pub(super) fn tell_lost_snapshot(&self, reference: &SnapshotRef) {
        if let Some(saved) = self.saved.get(reference) {
            self.journal.note(&saved.instance, Fact::SnapshotLost(reference.clone()));
        }
    }

    /// Makes the snapshot that a sandbox's save has come to.
    fn finish_save(&mut self, key: &Key) {
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
        let disk = found.disk.clone();
        self.journal.note(&key.0, Fact::SnapshotTaken(snapshot.clone()));
        self.saved.insert(reference, Saved { instance: key.0.clone(), snapshot, disk, corrupt: false });
        if self.options.after_save == AfterSave::Consumed {
            self.lose(key);
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

    pub(super) fn next_reference(&mut self) -> SnapshotRef {
        SnapshotRef::new(format!("memory-{:06}", self.number())).expect("not empty")
    }

    /// A number that was never given out before.
    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}
