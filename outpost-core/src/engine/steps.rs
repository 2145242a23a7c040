//! Taking in what was done: steps, renewals, extensions.

use std::time::Duration;

use jiff::Timestamp;

use super::input::{ClaimChange, Performed, StepEnd, pause_after};
use super::tracked::Tracked;
use super::{Engine, NoticeKind, QUEUE_GAP};
use crate::decide::time::after;
use crate::decide::{Reading, Sight, Step};
use crate::model::{Boot, Phase, SandboxState, Session, SessionId};
use crate::ports::{Error, ErrorKind};

impl Engine {
    pub(super) fn performed(&mut self, now: Timestamp, session: &SessionId, performed: Performed) {
        self.clock += 1;
        let clock = self.clock;
        let tracked = self.tracked(session);
        let Some(step) = tracked.busy.take() else { return };
        match performed.stored {
            Some(Ok(stored)) => tracked.record.set(stored),
            Some(Err(_)) => tracked.record.lost = true,
            None => {}
        }
        if touches_backend(&step) {
            tracked.needs_clock = clock;
            self.inventory.ask(now, Duration::ZERO);
        }
        self.take_row(now, session, &step, performed.row);
        self.take_claim(now, session, performed.claim);
        self.take_end(now, session, &step, &performed.end);
        if let Some(remark) = performed.remark {
            self.notice(Some(session), NoticeKind::Caveat, remark);
        }
        if self.sessions.get(session).is_some_and(|tracked| tracked.is_empty() && unseen(tracked)) {
            self.forget(session);
        } else {
            self.touch(session);
        }
    }

    fn take_row(&mut self, now: Timestamp, session: &SessionId, step: &Step, row: Option<Option<Session>>) {
        if matches!(step, Step::Look) {
            self.tracked(session).evidence.looked(now);
        }
        match row {
            Some(Some(row)) => self.row_read(now, row, Reading::Single, now),
            Some(None) => self.tracked(session).not_in_queue(now),
            None => {}
        }
    }

    fn take_claim(&mut self, now: Timestamp, session: &SessionId, change: ClaimChange) {
        let tracked = self.tracked(session);
        match change {
            ClaimChange::None => {}
            ClaimChange::Held(deadline) => tracked.evidence.claim_held(now, deadline),
            ClaimChange::Lost => self.claim_lost(session),
            ClaimChange::Released => {
                tracked.evidence.renew_at = None;
                if let Sight::Listed(row) | Sight::Missing { last: Some(row) } = &mut tracked.sight {
                    row.phase = Phase::Pending;
                    row.claim = None;
                    tracked.row_at = Some(now);
                }
            }
        }
    }

    fn claim_lost(&mut self, session: &SessionId) {
        let tracked = self.tracked(session);
        let before = std::mem::replace(&mut tracked.evidence.claim_lost, true);
        if !before {
            self.counters.claims_lost += 1;
            self.notice(Some(session), NoticeKind::ClaimLost, "another acceptor has the session");
        }
    }

    fn take_end(&mut self, now: Timestamp, session: &SessionId, step: &Step, end: &StepEnd) {
        let overdue = self.sessions.get(session).is_some_and(|tracked| self.is_save_overdue(now, tracked));
        let tracked = self.tracked(session);
        if let Step::Remove { boot, .. } = step {
            tracked.evidence.removal_asked = Some((*boot, now));
        }
        if matches!((step, end), (Step::Start(_), StepEnd::Done)) {
            tracked.evidence.boot.idle_at = Some(now);
        }
        match end {
            StepEnd::Done | StepEnd::SnapshotUnusable => {
                tracked.trouble = 0;
                tracked.not_before = None;
            }
            StepEnd::NotWanted => tracked.not_before = Some(after(now, Duration::from_secs(1))),
            StepEnd::InProgress => {
                let pause = if overdue { Duration::from_secs(60) } else { Duration::from_secs(1) };
                tracked.not_before = Some(after(now, pause));
            }
            StepEnd::Failed(error) => tracked.hold_back(now, error.retry_after()),
        }
        self.count(step, end);
        self.tell(session, step, end);
    }

    fn count(&mut self, step: &Step, end: &StepEnd) {
        let counters = &mut self.counters;
        match (step, end) {
            (Step::Start(plan), StepEnd::Done) => {
                counters.starts += 1;
                counters.restores += u64::from(plan.restore.is_some());
            }
            (Step::Start(_), StepEnd::SnapshotUnusable) => counters.unusable_snapshots += 1,
            (Step::Start(_), StepEnd::Failed(_)) => {
                counters.start_failures += 1;
                counters.step_failures += 1;
            }
            (_, StepEnd::Failed(_)) => counters.step_failures += 1,
            (Step::Save { .. }, StepEnd::Done) => counters.saves += 1,
            (Step::Remove { record, .. }, StepEnd::Done) => {
                counters.removals += 1;
                counters.crashes += u64::from(record.retry_at.is_some());
            }
            _ => {}
        }
    }

    fn tell(&mut self, session: &SessionId, step: &Step, end: &StepEnd) {
        let (kind, text) = match (step, end) {
            (Step::Start(plan), StepEnd::Done) => {
                let how = plan
                    .restore
                    .as_ref()
                    .map_or("started afresh".to_owned(), |s| format!("restored from {}", s.reference));
                if let Some(caveat) = plan.caveat {
                    self.notice(Some(session), NoticeKind::Caveat, caveat.to_string());
                }
                (NoticeKind::Started, format!("boot {} {how}", plan.boot))
            }
            (Step::Start(plan), StepEnd::SnapshotUnusable) => {
                let which = plan.restore.as_ref().map_or_else(String::new, |s| s.reference.to_string());
                let text = format!(
                    "snapshot {which} cannot be restored; it is kept for people, and the session starts from the image"
                );
                (NoticeKind::SnapshotUnusable, text)
            }
            (Step::Save { boot, .. }, StepEnd::Done) => (NoticeKind::Saved, format!("boot {boot} is saved")),
            (Step::Remove { boot, listed, record }, StepEnd::Done) => match listed {
                None if record.newest_snapshot.as_ref().is_none_or(|newest| newest.boot != *boot) => (
                    NoticeKind::SandboxLost,
                    format!("boot {boot} was lost; the session starts from its newest snapshot"),
                ),
                Some(SandboxState::Exited { code }) if record.retry_at.is_some() => {
                    let how =
                        code.map_or("for an unknown reason".to_owned(), |code| format!("with code {code}"));
                    let kind = if record.given_up() { NoticeKind::GivenUp } else { NoticeKind::WorkerEnded };
                    let again = match record.failures {
                        0 | 1 => String::new(),
                        failures => format!(", {failures} times in a row"),
                    };
                    (
                        kind,
                        format!("the worker of boot {boot} ended {how} although its session goes on{again}"),
                    )
                }
                Some(SandboxState::Failed { why }) => {
                    (NoticeKind::SandboxLost, format!("boot {boot} failed: {why}"))
                }
                _ => (NoticeKind::Removed, format!("boot {boot} is removed")),
            },
            (step, StepEnd::Failed(error)) => {
                (NoticeKind::StepFailed, format!("{} failed: {error}", step.name()))
            }
            _ => return,
        };
        self.notice(Some(session), kind, text);
    }

    pub(super) fn renewed(&mut self, now: Timestamp, session: &SessionId, result: Result<Session, Error>) {
        let tracked = self.tracked(session);
        tracked.renewing = false;
        match result {
            Ok(row) => {
                let deadline = row.claim.as_ref().and_then(|claim| claim.deadline);
                self.row_read(now, row, Reading::Single, now);
                self.tracked(session).evidence.claim_held(now, deadline);
            }
            Err(error) if error.kind() == ErrorKind::Conflict => self.claim_lost(session),
            Err(error) => {
                tracked.evidence.renewal_failed(now, error.retry_after());
                if error.kind() == ErrorKind::NotFound {
                    self.queue.ask(now, QUEUE_GAP);
                }
                self.notice(Some(session), NoticeKind::StepFailed, format!("renewing failed: {error}"));
            }
        }
        self.touch(session);
    }

    pub(super) fn extended(
        &mut self,
        now: Timestamp,
        session: &SessionId,
        boot: Boot,
        result: Result<Option<Timestamp>, Error>,
    ) {
        let tracked = self.tracked(session);
        tracked.extending = false;
        match result {
            Ok(expires_at) => {
                for sandbox in tracked.sandboxes.iter_mut().filter(|sandbox| sandbox.id.boot == boot) {
                    sandbox.expires_at = expires_at;
                }
            }
            Err(error) => {
                let asked = error.retry_after().map(|pause| after(now, pause));
                tracked.extend_at = tracked.extend_at.max(asked);
                self.notice(Some(session), NoticeKind::StepFailed, format!("extending failed: {error}"));
                self.inventory.ask(now, Duration::ZERO);
            }
        }
        self.touch(session);
    }
}

impl Tracked {
    /// After a failure the next step waits, longer each time.
    pub(super) fn hold_back(&mut self, now: Timestamp, asked: Option<Duration>) {
        self.trouble = self.trouble.saturating_add(1);
        self.not_before = Some(after(now, pause_after(self.trouble, asked)));
    }

    /// A single look answered that the session does not exist. Together with enough complete lists that proves it gone;
    /// by itself it only means that nothing is known to be wanted.
    fn not_in_queue(&mut self, now: Timestamp) {
        const LISTS: u32 = 3;
        const LASTING: Duration = Duration::from_secs(60);
        let absent = self.evidence.absent;
        let last = match std::mem::take(&mut self.sight) {
            Sight::Listed(row) => Some(row),
            Sight::Missing { last } => last,
            gone @ Sight::Gone { .. } => {
                self.sight = gone;
                return;
            }
            Sight::Unseen => None,
        };
        self.sight = if absent.count >= LISTS && absent.lasting(now) >= LASTING {
            Sight::Gone { since: now }
        } else {
            Sight::Missing { last }
        };
        self.row_at = Some(now);
    }
}

const fn unseen(tracked: &Tracked) -> bool {
    !matches!(tracked.sight, Sight::Listed(_))
}

pub(super) const fn touches_backend(step: &Step) -> bool {
    match step {
        Step::Look | Step::Write(_) | Step::Forget | Step::Release => false,
        Step::Start(_)
        | Step::StopWorker { .. }
        | Step::Save { .. }
        | Step::Remove { .. }
        | Step::DeleteSnapshot { .. } => true,
    }
}
