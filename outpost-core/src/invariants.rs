//! The promises, as a checker that hears what really happens and says when one is broken.
//!
//! It is fed by whoever owns the truth, such as a simulated backend and a simulated queue, never by the orchestrator that is
//! being checked. The numbers are those of the list in ARCHITECTURE.md.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

use crate::decide::time::since;
use crate::model::{
    AcceptorId, Boot, InstanceId, SandboxId, SessionId, SessionStatus, Snapshot, SnapshotPurpose, SnapshotRef,
};

/// Something that has really happened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fact {
    /// An orchestrator was told a session's status.
    StatusSeen {
        /// Which session.
        session: SessionId,
        /// What it was told.
        status: SessionStatus,
    },
    /// The queue gave a claim, or renewed it.
    Claimed {
        /// Which session.
        session: SessionId,
        /// To whom.
        acceptor: AcceptorId,
    },
    /// An orchestrator asked to release a claim.
    ReleaseAsked {
        /// Which session.
        session: SessionId,
        /// Whose claim.
        acceptor: AcceptorId,
    },
    /// A sandbox has come into being.
    SandboxStarted {
        /// Which.
        id: SandboxId,
        /// What its disk comes from.
        restored_from: Option<SnapshotRef>,
    },
    /// A sandbox has done work that only its disk holds.
    SandboxServed(SandboxId),
    /// A sandbox's worker has ended.
    WorkerEnded(SandboxId),
    /// An orchestrator had a sandbox removed.
    SandboxRemoved(SandboxId),
    /// A sandbox is gone without an orchestrator's doing.
    SandboxLost(SandboxId),
    /// A snapshot is complete and durable.
    SnapshotTaken(Snapshot),
    /// A snapshot is in the record of its session.
    SnapshotRecorded {
        /// Whose.
        session: SessionId,
        /// Which.
        reference: SnapshotRef,
    },
    /// An orchestrator had a snapshot deleted.
    SnapshotDeleted(SnapshotRef),
    /// A snapshot is gone, or damaged, without an orchestrator's doing.
    SnapshotLost(SnapshotRef),
    /// People were told that a session's disk may not be what they expect.
    Reported(SessionId),
}

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invariant {number} is broken by {instance}: {what}")]
pub struct Violation {
    /// Which promise.
    pub number: u8,
    /// By which orchestrator.
    pub instance: InstanceId,
    /// How.
    pub what: String,
}

/// Hears what one orchestrator and its backend do, and checks every promise that can be broken in a single step.
#[derive(Debug)]
pub struct Checker {
    instance: InstanceId,
    limit: usize,
    snapshot_ttl: Duration,
    sessions: BTreeMap<SessionId, Seen>,
    snapshots: BTreeMap<SnapshotRef, Snapshot>,
    /// Those among the snapshots that are gone or damaged, which an orchestrator finds out only by restoring them.
    lost: BTreeSet<SnapshotRef>,
}

#[derive(Debug, Default)]
struct Seen {
    status: Option<SessionStatus>,
    /// `terminated` was seen at some time.
    terminated: bool,
    last_seen: Option<Timestamp>,
    /// Our claim was given back, and not taken again.
    released: bool,
    sandboxes: BTreeMap<Boot, Known>,
    recorded: BTreeSet<SnapshotRef>,
    /// Something was reported since the last start.
    reported: bool,
    /// A start whose disk was not what it should have been, and for which a report is still due.
    unreported: Option<String>,
}

#[derive(Debug, Default)]
struct Known {
    served: bool,
    ended: bool,
}

impl Checker {
    /// A checker of `instance`, which may have `limit` sandboxes and keeps snapshots for `snapshot_ttl`.
    pub const fn new(instance: InstanceId, limit: usize, snapshot_ttl: Duration) -> Self {
        Self {
            instance,
            limit,
            snapshot_ttl,
            sessions: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            lost: BTreeSet::new(),
        }
    }

    /// Hears a fact.
    ///
    /// # Errors
    /// The promise that it breaks.
    pub fn hear(&mut self, now: Timestamp, fact: &Fact) -> Result<(), Violation> {
        match fact {
            Fact::StatusSeen { session, status } => {
                let seen = self.seen(session);
                seen.terminated |= *status == SessionStatus::Terminated;
                seen.status = Some(status.clone());
                seen.last_seen = Some(now);
                Ok(())
            }
            Fact::Claimed { session, acceptor } => self.claimed(session, acceptor),
            Fact::ReleaseAsked { session, acceptor } => self.release_asked(session, acceptor),
            Fact::SandboxStarted { id, restored_from } => self.started(id, restored_from.as_ref()),
            Fact::SandboxServed(id) => {
                self.seen(&id.session).sandboxes.entry(id.boot).or_default().served = true;
                Ok(())
            }
            Fact::WorkerEnded(id) => {
                self.seen(&id.session).sandboxes.entry(id.boot).or_default().ended = true;
                Ok(())
            }
            Fact::SandboxRemoved(id) => self.removed(id),
            Fact::SandboxLost(id) => {
                self.seen(&id.session).sandboxes.remove(&id.boot);
                Ok(())
            }
            Fact::SnapshotTaken(snapshot) => {
                self.snapshots.insert(snapshot.reference.clone(), snapshot.clone());
                Ok(())
            }
            Fact::SnapshotRecorded { session, reference } => {
                self.seen(session).recorded.insert(reference.clone());
                Ok(())
            }
            Fact::SnapshotDeleted(reference) => self.deleted(now, reference),
            Fact::SnapshotLost(reference) => {
                self.lost.insert(reference.clone());
                Ok(())
            }
            Fact::Reported(session) => {
                let seen = self.seen(session);
                seen.reported = true;
                seen.unreported = None;
                Ok(())
            }
        }
    }

    /// Checks what must hold when nothing is under way: every start that was not from the newest snapshot was reported.
    ///
    /// # Errors
    /// The promise that is broken.
    pub fn settle(&self) -> Result<(), Violation> {
        for (session, seen) in &self.sessions {
            if let Some(what) = &seen.unreported {
                return Err(self.broken(3, format!("{session}: {what}, and nobody was told")));
            }
        }
        Ok(())
    }

    fn seen(&mut self, session: &SessionId) -> &mut Seen {
        self.sessions.entry(session.clone()).or_default()
    }

    fn broken(&self, number: u8, what: impl fmt::Display) -> Violation {
        Violation { number, instance: self.instance.clone(), what: what.to_string() }
    }

    fn claimed(&mut self, session: &SessionId, acceptor: &AcceptorId) -> Result<(), Violation> {
        if *acceptor != self.instance.acceptor(session) {
            return Ok(());
        }
        let seen = self.seen(session);
        let over = matches!(seen.status, Some(SessionStatus::Suspended | SessionStatus::Terminated));
        let again = seen.released && over;
        seen.released = false;
        if again {
            return Err(self.broken(7, format!("{session} was released, is not live, and was claimed again")));
        }
        Ok(())
    }

    fn release_asked(&mut self, session: &SessionId, acceptor: &AcceptorId) -> Result<(), Violation> {
        if *acceptor != self.instance.acceptor(session) {
            return Err(self.broken(7, format!("{session}: the claim of {acceptor} is not ours to release")));
        }
        let terminated = self.seen(session).terminated;
        let unsaved = self.unsaved(session);
        self.seen(session).released = true;
        match unsaved {
            Some(boot) if !terminated => {
                Err(self.broken(2, format!("{session} was released before boot {boot} was saved")))
            }
            _ => Ok(()),
        }
    }

    /// A boot that is here, has served, and of which no snapshot is recorded.
    fn unsaved(&mut self, session: &SessionId) -> Option<Boot> {
        let boots: Vec<Boot> = {
            let seen = self.seen(session);
            seen.sandboxes.iter().filter(|(_, sandbox)| sandbox.served).map(|(boot, _)| *boot).collect()
        };
        boots.into_iter().find(|boot| !self.is_saved(session, *boot))
    }

    /// Whether a snapshot of the boot is durable and recorded; one that is kept for people needs no record.
    fn is_saved(&self, session: &SessionId, boot: Boot) -> bool {
        let recorded = self.sessions.get(session).map(|seen| &seen.recorded);
        self.snapshots.values().any(|snapshot| {
            snapshot.session == *session
                && snapshot.boot == boot
                && (snapshot.purpose == SnapshotPurpose::Detached
                    || recorded.is_some_and(|recorded| recorded.contains(&snapshot.reference)))
        })
    }

    fn newest<'a>(
        &'a self,
        session: &SessionId,
        counts: impl Fn(&SnapshotRef) -> bool,
    ) -> Option<&'a Snapshot> {
        let of_session = self.snapshots.values().filter(|snapshot| {
            snapshot.session == *session
                && snapshot.purpose == SnapshotPurpose::Resume
                && counts(&snapshot.reference)
        });
        of_session.max_by_key(|snapshot| snapshot.boot)
    }

    fn started(&mut self, id: &SandboxId, restored_from: Option<&SnapshotRef>) -> Result<(), Violation> {
        let whole = |reference: &SnapshotRef| !self.lost.contains(reference);
        let newest = self.newest(&id.session, whole).map(|snapshot| snapshot.reference.clone());
        let seen = self.seen(&id.session);
        let other = seen.sandboxes.iter().find(|(boot, sandbox)| **boot != id.boot && !sandbox.ended);
        if let Some((other, _)) = other {
            let other = *other;
            return Err(self.broken(1, format!("{id} was started while boot {other} was alive")));
        }
        seen.sandboxes.insert(id.boot, Known::default());
        let reported = std::mem::take(&mut seen.reported);
        if restored_from != newest.as_ref() && !reported {
            let show =
                |snapshot: Option<&SnapshotRef>| snapshot.map_or("the image".to_owned(), ToString::to_string);
            seen.unreported = Some(format!(
                "boot {} started from {} instead of {}",
                id.boot,
                show(restored_from),
                show(newest.as_ref())
            ));
        }
        let all: usize = self.sessions.values().map(|seen| seen.sandboxes.len()).sum();
        if all > self.limit {
            return Err(self.broken(6, format!("{all} sandboxes with {id}, {} allowed", self.limit)));
        }
        Ok(())
    }

    fn removed(&mut self, id: &SandboxId) -> Result<(), Violation> {
        let Some(sandbox) = self.seen(&id.session).sandboxes.remove(&id.boot) else { return Ok(()) };
        let saved = self.is_saved(&id.session, id.boot);
        let terminated = self.seen(&id.session).terminated;
        if sandbox.served && !saved && !terminated {
            return Err(
                self.broken(2, format!("{id} had served and was removed before it was saved and recorded"))
            );
        }
        Ok(())
    }

    fn deleted(&mut self, now: Timestamp, reference: &SnapshotRef) -> Result<(), Violation> {
        let Some(snapshot) = self.snapshots.get(reference).cloned() else { return Ok(()) };
        let newest =
            self.newest(&snapshot.session, |_| true).is_some_and(|newest| newest.reference == *reference);
        self.snapshots.remove(reference);
        let ttl = self.snapshot_ttl;
        let seen = self.seen(&snapshot.session);
        let fresh = seen.last_seen.is_some_and(|seen| since(now, seen) < ttl);
        if newest && fresh && !seen.terminated {
            return Err(self.broken(4, format!("the newest snapshot of {} was deleted", snapshot.session)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::WorkerEnding;

    fn session() -> SessionId {
        SessionId::new("devin-1").unwrap()
    }

    fn sandbox(boot: u64) -> SandboxId {
        SandboxId::new(session(), Boot::new(boot))
    }

    fn snapshot(boot: u64) -> Snapshot {
        Snapshot {
            reference: SnapshotRef::new(format!("s{boot}")).unwrap(),
            session: session(),
            boot: Boot::new(boot),
            taken_at: Timestamp::UNIX_EPOCH,
            size_bytes: None,
            ending: WorkerEnding::Clean,
            purpose: SnapshotPurpose::Resume,
        }
    }

    fn started(boot: u64, from: Option<u64>) -> Fact {
        Fact::SandboxStarted { id: sandbox(boot), restored_from: from.map(|boot| snapshot(boot).reference) }
    }

    fn recorded(boot: u64) -> Fact {
        Fact::SnapshotRecorded { session: session(), reference: snapshot(boot).reference }
    }

    fn seen(status: SessionStatus) -> Fact {
        Fact::StatusSeen { session: session(), status }
    }

    /// The number of the promise that the last of the facts breaks; the ones before must break none.
    fn broken_by(facts: &[Fact]) -> Option<u8> {
        let instance = InstanceId::new("us").unwrap();
        let mut checker = Checker::new(instance, 1, Duration::from_secs(60));
        let (last, before) = facts.split_last().unwrap();
        for fact in before {
            checker.hear(Timestamp::UNIX_EPOCH, fact).unwrap();
        }
        let heard = checker.hear(Timestamp::UNIX_EPOCH, last);
        heard.and_then(|()| checker.settle()).err().map(|violation| violation.number)
    }

    #[test]
    fn a_second_live_sandbox_breaks_the_first_promise() {
        assert_eq!(broken_by(&[started(1, None), started(2, None)]), Some(1));
        assert_eq!(broken_by(&[started(1, None), Fact::SandboxRemoved(sandbox(1)), started(2, None)]), None);
    }

    #[test]
    fn removing_unsaved_work_breaks_the_second_promise() {
        let served = [started(1, None), Fact::SandboxServed(sandbox(1)), Fact::WorkerEnded(sandbox(1))];
        let with = |more: &[Fact]| broken_by(&[&served, more].concat());
        let removed = Fact::SandboxRemoved(sandbox(1));
        assert_eq!(with(std::slice::from_ref(&removed)), Some(2));
        assert_eq!(
            with(&[Fact::SnapshotTaken(snapshot(1)), removed.clone()]),
            Some(2),
            "durable, but not recorded"
        );
        assert_eq!(with(&[Fact::SnapshotTaken(snapshot(1)), recorded(1), removed.clone()]), None);
        assert_eq!(with(&[seen(SessionStatus::Terminated), removed]), None);
        let release = Fact::ReleaseAsked {
            session: session(),
            acceptor: InstanceId::new("us").unwrap().acceptor(&session()),
        };
        assert_eq!(with(&[release]), Some(2), "release is last");
    }

    #[test]
    fn a_silent_start_from_anything_but_the_newest_snapshot_breaks_the_third_promise() {
        let before = [Fact::SnapshotTaken(snapshot(1)), Fact::SnapshotTaken(snapshot(2))];
        let with = |more: &[Fact]| broken_by(&[&before, more].concat());
        assert_eq!(with(&[started(3, Some(2))]), None);
        assert_eq!(with(&[started(3, Some(1))]), Some(3));
        assert_eq!(with(&[started(3, None)]), Some(3));
        assert_eq!(with(&[Fact::Reported(session()), started(3, None)]), None);
    }

    #[test]
    fn deleting_the_newest_snapshot_breaks_the_fourth_promise_unless_devin_said_terminated() {
        let before = [
            Fact::SnapshotTaken(snapshot(1)),
            Fact::SnapshotTaken(snapshot(2)),
            seen(SessionStatus::Suspended),
        ];
        let with = |more: &[Fact]| broken_by(&[&before, more].concat());
        let deleted = |boot| Fact::SnapshotDeleted(snapshot(boot).reference);
        assert_eq!(with(&[deleted(1)]), None);
        assert_eq!(with(&[Fact::SnapshotLost(snapshot(2).reference), deleted(1)]), None, "it could not know");
        assert_eq!(with(&[deleted(2)]), Some(4));
        assert_eq!(with(&[seen(SessionStatus::Terminated), deleted(2)]), None);
    }

    #[test]
    fn more_sandboxes_than_allowed_break_the_sixth_promise() {
        let other = SandboxId::new(SessionId::new("devin-2").unwrap(), Boot::new(1));
        let second = Fact::SandboxStarted { id: other, restored_from: None };
        assert_eq!(broken_by(&[started(1, None), second]), Some(6));
    }

    #[test]
    fn touching_a_claim_that_is_not_ours_to_touch_breaks_the_seventh_promise() {
        let ours = InstanceId::new("us").unwrap().acceptor(&session());
        let theirs = InstanceId::new("them").unwrap().acceptor(&session());
        let claim = |acceptor: &AcceptorId| Fact::Claimed { session: session(), acceptor: acceptor.clone() };
        let release =
            |acceptor: &AcceptorId| Fact::ReleaseAsked { session: session(), acceptor: acceptor.clone() };
        assert_eq!(broken_by(&[release(&theirs)]), Some(7));
        assert_eq!(broken_by(&[release(&ours), seen(SessionStatus::Suspended), claim(&ours)]), Some(7));
        assert_eq!(broken_by(&[release(&ours), seen(SessionStatus::Running), claim(&ours)]), None);
    }
}
