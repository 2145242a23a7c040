//! A world that answers the engine's effects at once, from a model: a queue, a backend, a store, and a time that only
//! passes when nothing is left to do.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use crate::decide::time::{after, since};
use crate::decide::{StartPlan, Step};
use crate::engine::{ClaimChange, Effect, Engine, Input, Notice, NoticeKind, Performed, StepEnd, Work};
use crate::model::{
    AcceptorId, Boot, Claim, InstanceId, OutpostId, Owner, Phase, Policy, Record, Sandbox, SandboxId,
    SandboxState, Session, SessionId, SessionKind, SessionStatus, Snapshot, SnapshotPurpose, SnapshotRef,
    WorkerEnding,
};
use crate::ports::{Capabilities, Error, ErrorKind, Inventory, Listing, Stored, Version, WatchEvent};

pub(super) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(super) const HOUR: Duration = secs(3600);

pub(super) fn id(name: &str) -> SessionId {
    SessionId::new(name).unwrap()
}

/// What a session's workers do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Worker {
    /// They work until they are ended.
    Lives,
    /// They end at once, with this code.
    Exits(i32),
    /// They never come up.
    Starts,
}

/// Something that the engine asked for.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) at: Timestamp,
    pub(super) session: Option<SessionId>,
    pub(super) name: &'static str,
    pub(super) step: Option<Step>,
}

/// What goes wrong. Nothing, unless a test says so.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// Every call to the queue.
    pub(super) queue: Option<ErrorKind>,
    /// Only the list: a page of it fails.
    pub(super) list: Option<ErrorKind>,
    pub(super) start: BTreeSet<SessionId>,
    /// So many starts fail before one succeeds.
    pub(super) flaky_starts: u32,
    /// Saves go on for ever.
    pub(super) endless_saves: bool,
    /// No snapshot can be restored from.
    pub(super) unusable: bool,
    pub(super) extend: bool,
}

#[derive(Debug)]
pub(super) struct Fake {
    pub(super) engine: Engine,
    pub(super) now: Timestamp,
    pub(super) capabilities: Capabilities,
    pub(super) rows: BTreeMap<SessionId, Session>,
    pub(super) workers: BTreeMap<SessionId, Worker>,
    pub(super) sandboxes: Vec<Sandbox>,
    pub(super) snapshots: Vec<Snapshot>,
    pub(super) records: BTreeMap<SessionId, Stored>,
    pub(super) faults: Faults,
    pub(super) calls: Vec<Call>,
    pub(super) notices: Vec<Notice>,
    /// Steps of this name are not answered until `let_go`.
    pub(super) hold: Option<&'static str>,
    held: Vec<Effect>,
    versions: u64,
}

pub(super) fn policy() -> Policy {
    Policy::new(OutpostId::new("outpost_env-1").unwrap(), InstanceId::new("desk").unwrap())
}

impl Fake {
    pub(super) fn new() -> Self {
        Self::with(policy(), Capabilities::default())
    }

    /// What nobody needs any more is deleted after two days.
    pub(super) fn forgetful() -> Self {
        let mut policy = policy();
        policy.snapshot_ttl = HOUR * 48;
        Self::with(policy, Capabilities::default())
    }

    pub(super) fn with(policy: Policy, capabilities: Capabilities) -> Self {
        Self {
            engine: Engine::new(policy, capabilities.clone()),
            now: Timestamp::from_second(2_000_000_000).unwrap(),
            capabilities,
            rows: BTreeMap::new(),
            workers: BTreeMap::new(),
            sandboxes: Vec::new(),
            snapshots: Vec::new(),
            records: BTreeMap::new(),
            faults: Faults::default(),
            calls: Vec::new(),
            notices: Vec::new(),
            hold: None,
            held: Vec::new(),
            versions: 0,
        }
    }

    /// The process ends at once and another takes its place.
    pub(super) fn restart(&mut self) {
        self.held.clear();
        self.engine = Engine::new(self.engine.policy().clone(), self.capabilities.clone());
    }

    /// The queue shows a session so. Its claim stays as it is.
    pub(super) fn set(&mut self, name: &str, status: SessionStatus) {
        let (id, outpost) = (id(name), self.engine.policy().outpost.clone());
        let updated_at = Some(self.now);
        let row = self.rows.entry(id.clone()).or_insert_with(|| Session::pending(id, outpost));
        row.status = status;
        row.updated_at = updated_at;
    }

    pub(super) fn row(&mut self, name: &str) -> &mut Session {
        self.rows.get_mut(&id(name)).expect("the session is in the queue")
    }

    /// A session that works here.
    pub(super) fn serve(&mut self, name: &str) {
        self.set(name, SessionStatus::Running);
        self.run_for(secs(60));
        assert!(self.is_live(name), "it is served: {:?}", self.sandboxes);
    }

    /// A session that has slept, and wakes up.
    pub(super) fn wake(&mut self, name: &str) {
        self.set(name, SessionStatus::Pending);
        self.row(name).kind = SessionKind::Resume;
    }

    pub(super) fn take_over(&mut self, name: &str) {
        let another = AcceptorId::new("another-desk").unwrap();
        let row = self.row(name);
        row.phase = Phase::Claimed;
        row.claim = Some(Claim { acceptor: another, deadline: None });
    }

    pub(super) fn exit(&mut self, name: &str, code: i32) {
        let id = id(name);
        for sandbox in self.sandboxes.iter_mut().filter(|sandbox| sandbox.id.session == id) {
            if sandbox.state.is_live() {
                sandbox.state = SandboxState::Exited { code: Some(code) };
            }
        }
    }

    pub(super) fn watch(&mut self, event: WatchEvent) {
        self.engine.handle(self.now, Input::Watched(event));
    }

    pub(super) fn watch_row(&mut self, name: &str) {
        let row = self.rows[&id(name)].clone();
        self.watch(WatchEvent::Changed(Box::new(row)));
    }

    pub(super) fn run_for(&mut self, time: Duration) {
        let end = after(self.now, time);
        let mut rounds = 0;
        loop {
            let effects = self.engine.poll(self.now);
            self.notices.extend(self.engine.take_notices());
            if !effects.is_empty() {
                rounds += 1;
                assert!(rounds < 200, "it never rests: {effects:?}");
                for effect in effects {
                    self.take(effect);
                }
                continue;
            }
            let next = self.engine.wake_at().filter(|at| *at <= end);
            let Some(next) = next else { break };
            assert!(next > self.now, "it wakes up for nothing at {next}: {:?}", self.engine.agenda);
            (self.now, rounds) = (next, 0);
        }
        self.now = end;
    }

    /// Everything that was held is carried out now.
    pub(super) fn let_go(&mut self) {
        self.hold = None;
        for effect in std::mem::take(&mut self.held) {
            let input = self.answer(effect);
            self.engine.handle(self.now, input);
        }
    }

    fn take(&mut self, effect: Effect) {
        let (session, name, step) = match &effect {
            Effect::LoadRecords => (None, "load_records", None),
            Effect::LoadRecord(session) => (Some(session.clone()), "load_record", None),
            Effect::ListSessions => (None, "list", None),
            Effect::ListInventory => (None, "inventory", None),
            Effect::Renew(session) => (Some(session.clone()), "renew", None),
            Effect::Extend(session, _) => (Some(session.clone()), "extend", None),
            Effect::Perform(work) => (Some(work.session.clone()), work.step.name(), Some(work.step.clone())),
        };
        self.calls.push(Call { at: self.now, session, name, step });
        if self.hold == Some(name) {
            self.held.push(effect);
            return;
        }
        let input = self.answer(effect);
        self.engine.handle(self.now, input);
    }

    fn answer(&mut self, effect: Effect) -> Input {
        match effect {
            Effect::LoadRecords => Input::Records(Ok(self.records.clone().into_iter().collect())),
            Effect::LoadRecord(session) => {
                let result = Ok(self.records.get(&session).cloned());
                Input::Record { session, result }
            }
            Effect::ListSessions => {
                let fault = self.faults.list.or(self.faults.queue);
                Input::Sessions(match fault {
                    Some(kind) => Err(error(kind, "list")),
                    None => Ok(Listing::new(self.rows.values().cloned().collect(), None)),
                })
            }
            Effect::ListInventory => {
                self.work();
                let (sandboxes, snapshots) = (self.sandboxes.clone(), self.snapshots.clone());
                Input::Inventory(Ok(Inventory { sandboxes, snapshots }))
            }
            Effect::Renew(session) => Input::Renewed { result: self.claim(&session), session },
            Effect::Extend(session, boot) => {
                Input::Extended { result: self.extend(&session, boot), session, boot }
            }
            Effect::Perform(work) => {
                let session = work.session.clone();
                Input::Performed { session, performed: Box::new(self.perform(*work)) }
            }
        }
    }

    /// What workers do by themselves.
    fn work(&mut self) {
        for sandbox in &mut self.sandboxes {
            let worker = self.workers.get(&sandbox.id.session).copied().unwrap_or(Worker::Lives);
            let over = sandbox.expires_at.is_some_and(|at| at <= self.now);
            assert!(!over, "the backend has ended {:?}, unsaved", sandbox.id);
            match (worker, &sandbox.state) {
                (Worker::Exits(code), SandboxState::Starting | SandboxState::Running) => {
                    sandbox.state = SandboxState::Exited { code: Some(code) };
                }
                (Worker::Lives, SandboxState::Starting) => sandbox.state = SandboxState::Running,
                _ => {}
            }
        }
    }

    fn acceptor(&self, session: &SessionId) -> AcceptorId {
        self.engine.policy().acceptor(session)
    }

    /// Claims or renews: the queue does not tell these apart.
    fn claim(&mut self, session: &SessionId) -> Result<Session, Error> {
        if let Some(kind) = self.faults.queue {
            return Err(error(kind, "claim"));
        }
        let (ours, deadline) = (self.acceptor(session), Some(after(self.now, secs(300))));
        let row = self.rows.get_mut(session).ok_or_else(|| error(ErrorKind::NotFound, "claim"))?;
        if row.owner(&ours) == Owner::Another {
            return Err(error(ErrorKind::Conflict, "claim"));
        }
        row.phase = Phase::Claimed;
        row.claim = Some(Claim { acceptor: ours, deadline });
        row.updated_at = Some(self.now);
        Ok(row.clone())
    }

    fn release(&mut self, session: &SessionId) -> Result<(), Error> {
        if let Some(kind) = self.faults.queue {
            return Err(error(kind, "release"));
        }
        let ours = self.acceptor(session);
        if let Some(row) = self.rows.get_mut(session).filter(|row| row.owner(&ours) == Owner::Us) {
            row.phase = Phase::Pending;
            row.claim = None;
            row.updated_at = Some(self.now);
        }
        Ok(())
    }

    fn extend(&mut self, session: &SessionId, boot: Boot) -> Result<Option<Timestamp>, Error> {
        if self.faults.extend {
            return Err(error(ErrorKind::Unavailable, "extend"));
        }
        let limit = self.capabilities.lifetime_limit;
        let asked = after(self.now, secs(1800));
        let mut found = self.sandboxes.iter_mut();
        let sandbox = found.find(|sandbox| sandbox.id.session == *session && sandbox.id.boot == boot);
        let sandbox = sandbox.ok_or_else(|| error(ErrorKind::NotFound, "extend"))?;
        sandbox.expires_at = Some(limit.map_or(asked, |limit| asked.min(after(sandbox.started_at, limit))));
        Ok(sandbox.expires_at)
    }

    fn put(
        &mut self,
        session: &SessionId,
        record: Record,
    ) -> Option<Result<Option<Stored>, super::super::RecordLost>> {
        self.versions += 1;
        let stored = Stored { record, version: Version(self.versions) };
        self.records.insert(session.clone(), stored.clone());
        Some(Ok(Some(stored)))
    }

    fn perform(&mut self, work: Work) -> Performed {
        let Work { session, step, record, jitter, .. } = work;
        let mut performed = Performed::new(StepEnd::Done);
        match step {
            Step::Look => match self.faults.queue {
                Some(kind) => performed.end = StepEnd::Failed(error(kind, "get")),
                None => performed.row = Some(self.rows.get(&session).cloned()),
            },
            Step::Start(plan) => return self.start(&session, &plan, record, jitter),
            Step::StopWorker { boot, .. } => {
                let sandbox = self.sandbox(&session, boot);
                sandbox.state = SandboxState::Exited { code: Some(143) };
            }
            Step::Save { .. } if self.faults.endless_saves => performed.end = StepEnd::InProgress,
            Step::Save { boot, purpose } => {
                assert!(!self.sandbox(&session, boot).state.is_live(), "a live worker is saved");
                let snapshot = self.snapshot(&session, boot, purpose);
                performed.stored = self.put(&session, record.with_snapshot(&snapshot));
            }
            Step::Remove { boot, record, .. } => {
                self.sandboxes.retain(|sandbox| sandbox.id.session != session || sandbox.id.boot != boot);
                performed.stored = self.put(&session, record);
            }
            Step::Write(record) => performed.stored = self.put(&session, record),
            Step::DeleteSnapshot { reference } => {
                self.snapshots.retain(|snapshot| snapshot.reference != reference);
            }
            Step::Forget => {
                self.records.remove(&session);
                performed.stored = Some(Ok(None));
            }
            Step::Release => match self.release(&session) {
                Ok(()) => performed.claim = ClaimChange::Released,
                Err(error) => performed.end = StepEnd::Failed(error),
            },
        }
        performed
    }

    fn sandbox(&mut self, session: &SessionId, boot: Boot) -> &mut Sandbox {
        let mut found = self.sandboxes.iter_mut();
        found.find(|sandbox| sandbox.id.session == *session && sandbox.id.boot == boot).expect("it is listed")
    }

    /// There is at most one snapshot a boot and purpose.
    fn snapshot(&mut self, session: &SessionId, boot: Boot, purpose: SnapshotPurpose) -> Snapshot {
        let reference = SnapshotRef::new(format!("{session}/{boot}/{purpose:?}")).unwrap();
        if let Some(known) = self.snapshots.iter().find(|snapshot| snapshot.reference == reference) {
            return known.clone();
        }
        let (session, taken_at, ending) = (session.clone(), self.now, WorkerEnding::Clean);
        self.snapshots.push(Snapshot {
            reference,
            session,
            boot,
            taken_at,
            size_bytes: None,
            ending,
            purpose,
        });
        self.snapshots.last().cloned().expect("just pushed")
    }

    /// As the shell does it: re-read, claim, write the boot down, start; on failure release.
    fn start(&mut self, session: &SessionId, plan: &StartPlan, record: Record, jitter: f64) -> Performed {
        let mut performed = Performed::new(StepEnd::NotWanted);
        if let Some(kind) = self.faults.queue {
            return Performed::new(StepEnd::Failed(error(kind, "get")));
        }
        performed.row = Some(self.rows.get(session).cloned());
        let wanted = self
            .rows
            .get(session)
            .is_some_and(|row| matches!(row.status, SessionStatus::Pending | SessionStatus::Running));
        if !wanted {
            return performed;
        }
        let row = match self.claim(session) {
            Ok(row) => row,
            Err(_) => return Performed { claim: ClaimChange::Lost, ..performed },
        };
        assert!(self.sandboxes.iter().all(|sandbox| sandbox.id.session != *session), "a second sandbox");
        performed.claim = ClaimChange::Held(row.claim.as_ref().and_then(|claim| claim.deadline));
        performed.row = Some(Some(row));
        let mut record = Record { newest_boot: plan.boot, ..record };
        let listed = |reference| self.snapshots.iter().any(|snapshot| snapshot.reference == reference);
        let missing = plan.restore.as_ref().is_some_and(|from| !listed(from.reference.clone()));
        if plan.restore.is_some() && (missing || self.faults.unusable) {
            record.closed_boot = plan.boot;
            performed.stored = self.put(session, record.with_pinned("it is corrupt".into(), self.now));
            performed.end = StepEnd::SnapshotUnusable;
            return performed;
        }
        let flaky = self.faults.flaky_starts > 0;
        self.faults.flaky_starts = self.faults.flaky_starts.saturating_sub(1);
        if flaky || self.faults.start.contains(session) {
            record.closed_boot = plan.boot;
            record.failed(self.now, jitter);
            performed.stored = self.put(session, record);
            performed.end = StepEnd::Failed(error(ErrorKind::Unavailable, "start"));
            self.release(session).expect("the queue answers");
            performed.claim = ClaimChange::Released;
            return performed;
        }
        performed.stored = self.put(session, record);
        self.sandboxes.push(Sandbox {
            id: SandboxId { session: session.clone(), boot: plan.boot },
            state: SandboxState::Starting,
            started_at: self.now,
            expires_at: self.capabilities.lifetime_limit.map(|limit| after(self.now, limit.min(secs(1800)))),
            restored_from: plan.restore.as_ref().map(|from| from.reference.clone()),
        });
        Performed { end: StepEnd::Done, ..performed }
    }

    /// The steps that were taken for a session, in order, but for the writing of its record.
    pub(super) fn steps(&self, name: &str) -> Vec<&'static str> {
        let id = id(name);
        let steps =
            self.calls.iter().filter(|call| call.session.as_ref() == Some(&id) && call.step.is_some());
        steps.map(|call| call.name).filter(|name| *name != "write_record").collect()
    }

    pub(super) fn count(&self, name: &str) -> usize {
        self.calls.iter().filter(|call| call.name == name).count()
    }

    pub(super) fn starts_of(&self, name: &str) -> Vec<Duration> {
        let id = id(name);
        let starts =
            self.calls.iter().filter(|call| call.name == "start" && call.session.as_ref() == Some(&id));
        starts.map(|call| since(call.at, Timestamp::from_second(2_000_000_000).unwrap())).collect()
    }

    pub(super) fn is_live(&self, name: &str) -> bool {
        self.of(name).any(|sandbox| sandbox.state.is_live())
    }

    pub(super) fn of(&self, name: &str) -> impl Iterator<Item = &Sandbox> {
        let id = id(name);
        self.sandboxes.iter().filter(move |sandbox| sandbox.id.session == id)
    }

    pub(super) fn snapshots_of(&self, name: &str) -> Vec<&Snapshot> {
        let id = id(name);
        self.snapshots.iter().filter(|snapshot| snapshot.session == id).collect()
    }

    pub(super) fn owner(&self, name: &str) -> Owner {
        let id = id(name);
        self.rows[&id].owner(&self.acceptor(&id))
    }

    pub(super) fn told(&self, kind: NoticeKind) -> usize {
        self.notices.iter().filter(|notice| notice.kind == kind).count()
    }
}

pub(super) fn error(kind: ErrorKind, operation: &'static str) -> Error {
    Error::new(kind, "fake", operation, "it was told to fail")
}
