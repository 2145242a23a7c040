//! One session's world, built in a few words, and what becomes of it when a step is carried out.

use std::time::Duration;

use jiff::Timestamp;

use crate::decide::time::{after, before};
use crate::decide::{BootEvidence, Decision, Evidence, Reading, Sight, Situation, Step, decide, jitter};
use crate::model::{
    AcceptorId, Boot, Claim, InstanceId, OutpostId, Owner, Phase, Policy, Record, RecordedSnapshot, Sandbox,
    SandboxId, SandboxState, Session, SessionId, SessionStatus, Snapshot, SnapshotPurpose, SnapshotRef,
    Standing, WorkerEnding, WorkerMode,
};
use crate::ports::Capabilities;

/// The boot before `THIS`.
pub(super) const OLDER: Boot = Boot::new(1);
/// The boot that the situation is about.
pub(super) const THIS: Boot = Boot::new(2);

pub(super) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(super) const fn exited(code: i32) -> SandboxState {
    SandboxState::Exited { code: Some(code) }
}

/// Everything that `decide` looks at.
#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) now: Timestamp,
    pub(super) id: SessionId,
    pub(super) sight: Sight,
    pub(super) evidence: Evidence,
    pub(super) sandboxes: Vec<Sandbox>,
    pub(super) snapshots: Vec<Snapshot>,
    pub(super) record: Record,
    pub(super) recorded: bool,
    pub(super) policy: Policy,
    pub(super) capabilities: Capabilities,
}

/// A world in which the session was never seen.
pub(super) fn world() -> World {
    let outpost = OutpostId::new("outpost_env-1").unwrap();
    World {
        now: Timestamp::from_second(2_000_000_000).unwrap(),
        id: SessionId::new("devin-a").unwrap(),
        sight: Sight::Unseen,
        evidence: Evidence::default(),
        sandboxes: Vec::new(),
        snapshots: Vec::new(),
        record: Record::default(),
        recorded: false,
        policy: Policy::new(outpost, InstanceId::new("desk").unwrap()),
        capabilities: Capabilities::default(),
    }
}

impl World {
    pub(super) fn mode(mut self, mode: WorkerMode) -> Self {
        self.policy.worker_mode = mode;
        self
    }

    /// The queue shows the session so, claimed by nobody.
    pub(super) fn row(mut self, status: SessionStatus) -> Self {
        let mut row = Session::pending(self.id.clone(), self.policy.outpost.clone());
        row.status = status;
        self.sight = Sight::Listed(row);
        self.evidence.read_at = Some(self.now);
        self.evidence.free_since = Some(self.ago(600));
        self
    }

    /// Changes the row, if there is one.
    pub(super) fn with_row(mut self, change: impl FnOnce(&mut Session)) -> Self {
        if let Sight::Listed(row) | Sight::Missing { last: Some(row) } = &mut self.sight {
            change(row);
        }
        self
    }

    pub(super) fn claimed_by(self, acceptor: Option<&AcceptorId>) -> Self {
        let deadline = Some(after(self.now, secs(200)));
        let claim = acceptor.map(|acceptor| Claim { acceptor: acceptor.clone(), deadline });
        let mut world = self.with_row(|row| {
            row.phase = Phase::Claimed;
            row.claim = claim;
        });
        world.evidence.free_since = None;
        world
    }

    pub(super) fn ours(self) -> Self {
        let ours = self.acceptor();
        self.claimed_by(Some(&ours))
    }

    pub(super) fn acceptor(&self) -> AcceptorId {
        self.policy.acceptor(&self.id)
    }

    /// A sandbox, ten minutes old. The record knows it, and knows that the boots before it are over.
    pub(super) fn sandbox(mut self, boot: Boot, state: SandboxState) -> Self {
        let started_at = self.ago(600);
        let id = SandboxId { session: self.id.clone(), boot };
        let over = Boot::new(boot.number() - 1);
        self.record.newest_boot = self.record.newest_boot.max(boot);
        self.record.closed_boot = self.record.closed_boot.max(over);
        self.recorded = true;
        self.evidence.boot = BootEvidence {
            boot,
            first_seen: Some(started_at),
            ended_at: (!state.is_live()).then_some(started_at),
            ..BootEvidence::default()
        };
        self.sandboxes.push(Sandbox { id, state, started_at, expires_at: None, restored_from: None });
        self
    }

    /// A snapshot that the backend lists.
    pub(super) fn listed(mut self, boot: Boot, purpose: SnapshotPurpose) -> Self {
        self.snapshots.push(self.snapshot(boot, purpose));
        self
    }

    /// A snapshot that the backend lists and from which the session is to resume.
    pub(super) fn saved(self, boot: Boot, standing: Standing) -> Self {
        let mut world = self.listed(boot, SnapshotPurpose::Resume);
        world.record.newest_snapshot = world.snapshots.last().map(|of| RecordedSnapshot::of(of, standing));
        world.record.newest_boot = world.record.newest_boot.max(boot);
        world.record.last_seen = Some(world.now);
        world.recorded = true;
        world
    }

    pub(super) fn snapshot(&self, boot: Boot, purpose: SnapshotPurpose) -> Snapshot {
        Snapshot {
            reference: SnapshotRef::new(format!("{purpose:?}-{boot}")).unwrap(),
            session: self.id.clone(),
            boot,
            taken_at: self.ago(900),
            size_bytes: None,
            ending: WorkerEnding::Clean,
            purpose,
        }
    }

    pub(super) fn ago(&self, seconds: u64) -> Timestamp {
        before(self.now, secs(seconds))
    }

    pub(super) fn situation(&self) -> Situation<'_> {
        Situation {
            now: self.now,
            session: &self.id,
            sight: &self.sight,
            evidence: &self.evidence,
            sandboxes: &self.sandboxes,
            snapshots: &self.snapshots,
            record: &self.record,
            recorded: self.recorded,
            policy: &self.policy,
            capabilities: &self.capabilities,
            jitter: jitter(&self.policy.instance, &self.id, &self.record),
        }
    }

    pub(super) fn decide(&self) -> Decision {
        decide(&self.situation())
    }

    /// The step is carried out, and everything is read again.
    pub(super) fn apply(&mut self, step: &Step) {
        match step {
            Step::Look => self.look(),
            Step::Start(plan) => {
                self.record.newest_boot = plan.boot;
                self.recorded = true;
                let id = SandboxId { session: self.id.clone(), boot: plan.boot };
                self.sandboxes.push(Sandbox {
                    id,
                    state: SandboxState::Running,
                    started_at: self.now,
                    expires_at: None,
                    restored_from: plan.restore.as_ref().map(|snapshot| snapshot.reference.clone()),
                });
                self.evidence.boot = BootEvidence::started_here(plan.boot, self.now);
                self.renew();
            }
            Step::StopWorker { boot, .. } => {
                let stopped = self.sandboxes.iter_mut().find(|sandbox| sandbox.id.boot == *boot);
                stopped.expect("a worker that exists is stopped").state = exited(143);
            }
            Step::Save { boot, purpose } => {
                let snapshot = Snapshot { taken_at: self.now, ..self.snapshot(*boot, *purpose) };
                self.record = self.record.with_snapshot(&snapshot);
                self.recorded = true;
                self.snapshots.retain(|known| known.reference != snapshot.reference);
                self.snapshots.push(snapshot);
            }
            Step::Remove { boot, record, .. } => {
                self.sandboxes.retain(|sandbox| sandbox.id.boot != *boot);
                self.record = record.clone();
                self.recorded = true;
            }
            Step::Write(record) => {
                self.record = record.clone();
                self.recorded = true;
            }
            Step::DeleteSnapshot { reference } => {
                self.snapshots.retain(|snapshot| snapshot.reference != *reference);
            }
            Step::Forget => {
                self.record = Record::default();
                self.recorded = false;
            }
            Step::Release => {
                self.evidence.renew_at = None;
                *self = self.clone().with_row(|row| {
                    row.phase = Phase::Pending;
                    row.claim = None;
                });
            }
        }
        self.observe();
    }

    fn look(&mut self) {
        self.evidence.looked(self.now);
        if let Sight::Missing { .. } = self.sight {
            self.sight = Sight::Gone { since: self.now };
        }
    }

    /// Whoever claims in this mode holds the session now.
    pub(super) fn renew(&mut self) {
        *self = self.clone().ours();
        self.evidence.claim_held(self.now, Some(after(self.now, secs(300))));
    }

    /// A complete list and a complete inventory.
    pub(super) fn observe(&mut self) {
        let ours = self.acceptor();
        match &self.sight {
            Sight::Listed(row) => self.evidence.read(self.now, &row.clone(), Reading::List, &ours),
            Sight::Missing { .. } | Sight::Gone { .. } => self.evidence.missed(self.now),
            Sight::Unseen => {}
        }
        let owner = self.sight.row().map_or(Owner::Nobody, |row| row.owner(&ours));
        let newest = self.record.newest_boot;
        let sandbox = self.sandboxes.iter().find(|sandbox| sandbox.id.boot == newest);
        if newest > self.record.closed_boot || sandbox.is_some() {
            self.evidence.inventoried(self.now, newest, sandbox, owner);
        }
    }
}
