use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use outpost_core::invariants::Fact;
use outpost_core::model::{
    InstanceId, MachineEnv, NetworkPolicy, SandboxId, SnapshotPurpose, SnapshotRef, WorkerEnding,
    WorkerProgram,
};
use outpost_core::ports::{
    Capabilities, Error, ErrorKind, Inventory, ListScope, Removed, SandboxProvider, Saving, StartSpec,
    Started, Stopped, Support,
};
use secrecy::ExposeSecret;

use super::backend::MemoryBackend;
use super::state::{Key, Machine, Role, State};
use super::worker::{Behavior, Network, Worker};
use crate::clock::later;
use crate::conformance::provider::Hindrance;

/// A [`SandboxProvider`] over a [`MemoryBackend`], for one instance. Every answer is immediate; what takes time on the backend
/// is asked for again after the clock was moved on.
#[derive(Debug, Clone)]
pub struct MemoryProvider {
    backend: MemoryBackend,
    instance: InstanceId,
}

const NAME: &str = "memory";

impl MemoryProvider {
    pub(super) fn new(backend: MemoryBackend, instance: InstanceId) -> Self {
        Self { backend, instance }
    }

    /// Whose sandboxes it acts on.
    #[must_use]
    pub const fn instance(&self) -> &InstanceId {
        &self.instance
    }

    /// On which backend.
    #[must_use]
    pub const fn backend(&self) -> &MemoryBackend {
        &self.backend
    }

    fn key(&self, id: &SandboxId) -> Key {
        (self.instance.clone(), id.clone())
    }
}

fn not_found(operation: &'static str, id: &SandboxId) -> Error {
    Error::new(ErrorKind::NotFound, NAME, operation, format!("there is no {id}"))
}

impl State {
    fn unhindered(&self, what: Hindrance, operation: &'static str) -> Result<(), Error> {
        if self.hindered.contains(&what) {
            return Err(Error::new(ErrorKind::Unavailable, NAME, operation, "the backend is hindered"));
        }
        Ok(())
    }

    fn until_when(&self, started_at: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let limit = self.options.lifetime_limit.map(|limit| later(started_at, limit));
        let time_to_live = self.options.time_to_live.map(|ttl| later(now, ttl));
        limit.into_iter().chain(time_to_live).min()
    }
}

#[async_trait]
impl SandboxProvider for MemoryProvider {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        let options = self.backend.settled().options.clone();
        let mut capabilities = Capabilities::default();
        capabilities.lifetime_limit = options.lifetime_limit;
        capabilities.network_policy = options.network_policy;
        capabilities.delete_snapshots = options.delete_snapshots;
        capabilities.after_save = options.after_save;
        capabilities.scope = ListScope::Outpost;
        capabilities
    }

    async fn list(&self) -> Result<Inventory, Error> {
        let state = self.backend.settled();
        state.unhindered(Hindrance::List, "list")?;
        let sandboxes = state
            .machines
            .iter()
            .filter(|((instance, _), found)| *instance == self.instance && found.role == Role::Session)
            .map(|((_, id), found)| found.listed(id));
        let snapshots = state
            .saved
            .values()
            .filter(|saved| saved.instance == self.instance)
            .map(|saved| saved.snapshot.clone());
        Ok(Inventory { sandboxes: sandboxes.collect(), snapshots: snapshots.collect() })
    }

    async fn start(&self, spec: StartSpec) -> Result<Started, Error> {
        let now = self.backend.now();
        let mut state = self.backend.settled();
        let key = self.key(&spec.id);
        if let Some(found) = state.machines.get(&key) {
            if found.removed_at.is_some() {
                return Err(Error::new(ErrorKind::Conflict, NAME, "start", "the boot is being removed"));
            }
            return Ok(Started::Sandbox(found.listed(&spec.id)));
        }
        let network = match (&spec.network_policy, state.options.network_policy) {
            (NetworkPolicy::Unrestricted, _) => Network::Open,
            (NetworkPolicy::Allow(_), Support::Yes) => Network::Closed,
            (NetworkPolicy::Allow(_), Support::No) => {
                let why = "network policies are not enforced here";
                return Err(Error::new(ErrorKind::Unsupported, NAME, "start", why));
            }
        };
        state.unhindered(Hindrance::Start, "start")?;
        let mut new = Machine::new(now, later(now, state.options.start_takes));
        if let Some(reference) = &spec.restore {
            match state.saved.get(reference).filter(|saved| saved.instance == self.instance) {
                None => return Ok(Started::SnapshotUnusable { why: "it does not exist".to_owned() }),
                Some(saved) if saved.corrupt => {
                    return Ok(Started::SnapshotUnusable { why: "it is corrupt".to_owned() });
                }
                Some(saved) => new.disk = saved.disk.clone(),
            }
        }
        new.restored_from = spec.restore;
        new.network = network;
        new.environment = spec
            .worker
            .environment(&machine())
            .iter()
            .map(|(name, value)| (name.to_owned(), value.expose_secret().to_owned()))
            .collect();
        new.behavior = match &spec.worker.program {
            WorkerProgram::Installed { path } => match state.programs.get(path) {
                Some(task) => Behavior::Task(task.clone()),
                None => Behavior::Puppet,
            },
            _ => Behavior::Puppet,
        };
        new.expires_at = state.until_when(now, now);
        let id = spec.id.clone();
        let started = Fact::SandboxStarted { id, restored_from: new.restored_from.clone() };
        state.journal.note(&self.instance, started);
        state.machines.insert(key.clone(), new);
        state.settle(now);
        Ok(match state.machines.get(&key) {
            Some(found) => Started::Sandbox(found.listed(&spec.id)),
            None => return Err(not_found("start", &spec.id)),
        })
    }

    async fn stop_worker(&self, id: &SandboxId, grace: Duration) -> Result<Stopped, Error> {
        let now = self.backend.now();
        let mut state = self.backend.settled();
        let term_takes = state.options.term_takes;
        let Some(found) = state.machines.get_mut(&self.key(id)) else {
            return Ok(Stopped::Done { ending: WorkerEnding::Clean });
        };
        match &mut found.worker {
            Worker::Waiting { .. } => {
                found.worker = Worker::Ended { code: None, ending: WorkerEnding::Clean };
            }
            Worker::Alive(alive) => {
                let heeds = !alive.ignores_term && term_takes <= grace;
                alive.dies.get_or_insert_with(|| {
                    if heeds {
                        (later(now, term_takes), WorkerEnding::Clean)
                    } else {
                        (later(now, grace), WorkerEnding::Forced)
                    }
                });
            }
            Worker::Ended { .. } => {}
        }
        state.settle(now);
        Ok(match state.machines.get(&self.key(id)).map(|found| &found.worker) {
            Some(Worker::Ended { ending, .. }) => Stopped::Done { ending: *ending },
            Some(_) => Stopped::InProgress,
            None => Stopped::Done { ending: WorkerEnding::Clean },
        })
    }

    async fn save(&self, id: &SandboxId, purpose: SnapshotPurpose) -> Result<Saving, Error> {
        let now = self.backend.now();
        let mut state = self.backend.settled();
        let key = self.key(id);
        if let Some(saved) = state.saved_of(&key, purpose) {
            return Ok(Saving::Done(saved.snapshot.clone()));
        }
        let done_at = later(now, state.options.save_takes);
        let hindered = state.unhindered(Hindrance::Save, "save");
        let found = state.machines.get_mut(&key).ok_or_else(|| not_found("save", id))?;
        if !matches!(found.worker, Worker::Ended { .. }) {
            return Err(Error::new(
                ErrorKind::Conflict,
                NAME,
                "save",
                format!("the worker of {id} is alive"),
            ));
        }
        if found.removed_at.is_some() {
            return Err(Error::new(ErrorKind::Conflict, NAME, "save", format!("{id} is being removed")));
        }
        if hindered.is_err() {
            found.saving = None;
        }
        hindered?;
        found.saving.get_or_insert((done_at, purpose));
        state.settle(now);
        Ok(match state.saved_of(&key, purpose) {
            Some(saved) => Saving::Done(saved.snapshot.clone()),
            None => Saving::InProgress,
        })
    }

    async fn remove(&self, id: &SandboxId) -> Result<Removed, Error> {
        let now = self.backend.now();
        let mut state = self.backend.settled();
        let gone_at = later(now, state.options.remove_takes);
        let key = self.key(id);
        if let Some(found) = state.machines.get_mut(&key)
            && found.removed_at.is_none()
        {
            found.saving = None;
            if !found.has_ended() {
                found.worker = Worker::Ended { code: None, ending: WorkerEnding::Forced };
            }
            // The end of its worker is heard before its removal.
            state.settle(now);
            state.journal.note(&self.instance, Fact::SandboxRemoved(id.clone()));
            if let Some(found) = state.machines.get_mut(&key) {
                found.removed_at = Some(gone_at);
            }
        }
        state.settle(now);
        Ok(if state.machines.contains_key(&key) { Removed::InProgress } else { Removed::Done })
    }

    async fn extend(&self, id: &SandboxId) -> Result<Option<Timestamp>, Error> {
        let now = self.backend.now();
        let mut state = self.backend.settled();
        let key = self.key(id);
        let started_at = state.machines.get(&key).ok_or_else(|| not_found("extend", id))?.started_at;
        let until = state.until_when(started_at, now);
        let found = state.machines.get_mut(&key).ok_or_else(|| not_found("extend", id))?;
        found.expires_at = found.expires_at.max(until);
        Ok(found.expires_at)
    }

    async fn delete_snapshot(&self, snapshot: &SnapshotRef) -> Result<(), Error> {
        let mut state = self.backend.settled();
        if state.options.delete_snapshots == Support::No {
            let why = "snapshots cannot be deleted here";
            return Err(Error::new(ErrorKind::Unsupported, NAME, "delete_snapshot", why));
        }
        if state.saved.get(snapshot).is_some_and(|saved| saved.instance == self.instance) {
            state.journal.note(&self.instance, Fact::SnapshotDeleted(snapshot.clone()));
            state.saved.remove(snapshot);
        }
        Ok(())
    }
}

fn machine() -> MachineEnv {
    let mut machine = MachineEnv::default();
    machine.home = "/home/devin".to_owned();
    machine.user = "devin".to_owned();
    machine.path = "/usr/bin:/bin".to_owned();
    machine.tmpdir = "/tmp".to_owned();
    machine.lang = "C.UTF-8".to_owned();
    machine.state_dir = "/state".to_owned();
    machine
}
