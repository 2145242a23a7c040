//! The state table, row by row.

use std::borrow::Cow;
use std::time::Duration;

use jiff::Timestamp;

use super::backoff::BootEnd;
use super::evidence::Sight;
use super::expiry;
use super::step::{Caveat, Decision, StartPlan, Step, StopReason, Upkeep};
use super::time::{after, before, since};
use super::view::{Column, Situation, Wish};
use crate::model::{
    Boot, Owner, RecordedSnapshot, Sandbox, SandboxState, SessionKind, Snapshot, SnapshotPurpose, Standing,
};

/// Readings of `suspended` in a row before a living worker is ended: Devin reports it for a moment while a session runs on
/// (observed).
const SUSPENDED_READINGS: u32 = 3;
/// Looks at the row after a worker left with 0, for its status lags by seconds, and the pause between them.
const REREADS: u32 = 3;
const REREAD_PAUSE: Duration = Duration::from_secs(2);
/// Inventories in a row, and the time over them, without a boot that is not known to be over, before it counts as lost.
const UNLISTED_INVENTORIES: u32 = 3;
const UNLISTED_FOR: Duration = Duration::from_secs(3);
/// A sandbox's life is extended, or it is rolled over, when so much is left.
const LIFE_LEFT: Duration = Duration::from_secs(10 * 60);

/// What one cell of the table says: a step or waiting, until when, and why.
pub(crate) struct Cell {
    step: Option<Step>,
    look_again: Option<Timestamp>,
    why: Cow<'static, str>,
}

pub(crate) fn act(step: Step, why: impl Into<Cow<'static, str>>) -> Cell {
    Cell { step: Some(step), look_again: None, why: why.into() }
}

pub(crate) fn wait(why: impl Into<Cow<'static, str>>) -> Cell {
    Cell { step: None, look_again: None, why: why.into() }
}

impl Cell {
    fn until(mut self, time: Timestamp) -> Self {
        self.look_again = Some(self.look_again.map_or(time, |earlier| earlier.min(time)));
        self
    }
}

/// What to do for one session, now. Pure: the same situation always gives the same decision.
pub fn decide(s: &Situation<'_>) -> Decision {
    let cell = expiry::unrecorded(s).unwrap_or_else(|| s.cell());
    let cell = if cell.step.is_none() { expiry::housekeeping(s).unwrap_or(cell) } else { cell };
    let (upkeep, upkeep_at) = s.upkeep();
    // What was due before now waits for a reading, not for the time: a time that is over would be looked at in a tight loop.
    let due = if cell.step.is_none() { expiry::due(s) } else { None };
    let look_again = [cell.look_again, upkeep_at, due].into_iter().flatten().filter(|at| *at > s.now).min();
    Decision { step: cell.step, upkeep, look_again, why: cell.why }
}

impl Situation<'_> {
    fn cell(&self) -> Cell {
        match self.column() {
            Column::Closed(sandbox) => self.repeat_removal(sandbox.id.boot),
            Column::Leftover(sandbox) => self.leftover(sandbox),
            Column::Unlisted(boot) => self.unlisted(boot),
            Column::None => self.without_sandbox(),
            Column::Sandbox(sandbox) => self.life_over(sandbox).unwrap_or_else(|| match self.wish() {
                Wish::Work => self.work(sandbox),
                Wish::Sleep => self.sleep(sandbox),
                Wish::End => self.end(sandbox),
                Wish::Unclear | Wish::Elsewhere => self.unclear(sandbox),
                Wish::Gone => self.gone(sandbox),
            }),
        }
    }

    /// A sandbox that its backend would end soon, unsaved: its worker is ended first, also while nothing is clear.
    fn life_over(&self, sandbox: &Sandbox) -> Option<Cell> {
        let limit = self.capabilities.lifetime_limit?;
        let until = before(after(sandbox.started_at, limit), LIFE_LEFT.min(limit / 4));
        let lost = self.wish() == Wish::Work && self.owner() == Some(Owner::Another);
        let due = sandbox.state == SandboxState::Running && until <= self.now;
        (due && !lost && self.wish() != Wish::End)
            .then(|| self.stop(sandbox.id.boot, self.policy.stop_grace, StopReason::Lifetime))
    }

    fn without_sandbox(&self) -> Cell {
        match (self.wish(), self.owner()) {
            (Wish::Work, Some(Owner::Nobody | Owner::Us)) => self.start(),
            (Wish::Work, Some(Owner::Another)) => self.superseded(),
            (Wish::Work, None) => wait("another acceptor seems to have the session"),
            (Wish::Sleep, Some(Owner::Us)) if self.policy.worker_mode.claims() => {
                act(Step::Release, "the session sleeps, and nothing of it is left here")
            }
            (Wish::Sleep, Some(Owner::Another)) => self.superseded(),
            (Wish::Sleep, _) => wait("the session sleeps"),
            (Wish::End, owner) => expiry::forget(self, owner == Some(Owner::Us)),
            (Wish::Unclear, _) => wait("the session's status is not known"),
            (Wish::Gone, _) => {
                wait("the session has left the queue; its snapshot is kept for its time to live")
            }
            (Wish::Elsewhere, _) => wait("the session asks for another platform or outpost"),
        }
    }

    fn start(&self) -> Cell {
        let ours = self.owner() == Some(Owner::Us);
        if let Some(retry_at) = self.record.retry_at.filter(|retry_at| *retry_at > self.now) {
            return if self.record.given_up() && ours && self.policy.worker_mode.claims() {
                act(Step::Release, "its workers keep failing: it cools down, and others may try")
            } else {
                wait("its worker failed; it is started again after a pause").until(retry_at)
            };
        }
        let restore = self.record.newest_snapshot.clone();
        let resumes = self.sight.row().is_some_and(|row| row.kind == SessionKind::Resume);
        let cold_resume = resumes && restore.is_none();
        // Where a snapshot is pinned, no other host has a better one.
        let patient = cold_resume && self.record.pinned.is_empty();
        if patient && !ours && self.policy.worker_mode.claims() {
            let free_since = self.evidence.free_since.unwrap_or(self.now);
            let until = after(free_since, self.policy.resume_courtesy);
            if until > self.now {
                return wait("it resumes, and another host may have its snapshot").until(until);
            }
        }
        let caveat = match &restore {
            Some(snapshot) => StartPlan::caveat_of(snapshot),
            None => cold_resume.then_some(Caveat::ColdResume),
        };
        let boot = self.record.newest_boot.next();
        act(Step::Start(StartPlan { boot, restore, caveat }), "the session wants a machine")
    }

    fn superseded(&self) -> Cell {
        let mut record = self.record.clone();
        match &mut record.newest_snapshot {
            Some(snapshot) if snapshot.standing != Standing::Superseded => {
                snapshot.standing = Standing::Superseded;
                act(
                    Step::Write(record),
                    "another acceptor serves the session: our snapshot may be older than its work",
                )
            }
            _ => wait("another acceptor serves the session"),
        }
    }

    fn work(&self, sandbox: &Sandbox) -> Cell {
        let boot = sandbox.id.boot;
        match (&sandbox.state, self.owner()) {
            (SandboxState::Starting, _) => self.starting(sandbox),
            (SandboxState::Running, Some(Owner::Another)) => {
                self.stop(boot, self.policy.stop_grace, StopReason::ClaimLost)
            }
            (SandboxState::Running, None) => {
                wait("another acceptor seems to have the session; looking again")
            }
            (SandboxState::Running, Some(owner)) => self.running(sandbox, owner),
            (SandboxState::Exited { .. }, Some(Owner::Another)) => {
                self.finish(sandbox, SnapshotPurpose::Detached, BootEnd::Wanted)
            }
            (SandboxState::Exited { .. }, None) => {
                wait("its worker has ended and another acceptor seems to have the session; looking again")
            }
            (SandboxState::Exited { code: Some(0) }, Some(_)) if self.evidence.boot.rereads < REREADS => {
                self.reread()
            }
            (SandboxState::Exited { .. }, Some(_)) => {
                self.finish(sandbox, SnapshotPurpose::Resume, self.unwanted_end(sandbox))
            }
            (SandboxState::Stopping, _) => self.repeat_removal(boot),
            (SandboxState::Failed { why }, Some(Owner::Another)) => {
                self.remove(boot, BootEnd::Wanted, format!("its sandbox failed: {why}"))
            }
            (SandboxState::Failed { why }, _) => {
                self.remove(boot, BootEnd::WithoutServing, format!("its sandbox failed: {why}"))
            }
        }
    }

    fn starting(&self, sandbox: &Sandbox) -> Cell {
        let until = after(sandbox.started_at, self.policy.start_timeout);
        if until <= self.now {
            return self.stop(sandbox.id.boot, Duration::ZERO, StopReason::StartTimeout);
        }
        wait("its worker is starting").until(until)
    }

    fn running(&self, sandbox: &Sandbox, owner: Owner) -> Cell {
        let boot = sandbox.id.boot;
        let claims = self.policy.worker_mode.claims();
        let evidence = &self.evidence.boot;
        if !claims && owner == Owner::Nobody && !evidence.served && evidence.serving_since.is_none() {
            let first_seen = evidence.first_seen.unwrap_or(self.now);
            let until = after(first_seen.max(sandbox.started_at), self.policy.start_timeout);
            if until <= self.now {
                return self.stop(boot, self.policy.stop_grace, StopReason::Unclaimed);
            }
            return wait("the worker has not claimed its session yet").until(until);
        }
        let served_at = evidence.serving_since.filter(|_| !evidence.served);
        let cell = wait("it works");
        match served_at {
            Some(first) => cell.until(after(first, super::SERVED_AFTER)),
            None => cell,
        }
    }

    fn reread(&self) -> Cell {
        let why = "its worker left with 0; its status may lag";
        match self.evidence.boot.reread_at.map(|at| after(at, REREAD_PAUSE)) {
            Some(next) if next > self.now => wait(why).until(next),
            _ => act(Step::Look, why),
        }
    }

    fn sleep(&self, sandbox: &Sandbox) -> Cell {
        let boot = sandbox.id.boot;
        match &sandbox.state {
            SandboxState::Starting => self.starting(sandbox),
            SandboxState::Running => {
                let seen = self.evidence.suspended;
                let until = after(seen.since.unwrap_or(self.now), self.policy.suspend_grace);
                if seen.count >= SUSPENDED_READINGS && until <= self.now {
                    return self.stop(boot, self.policy.stop_grace, StopReason::Suspended);
                }
                let cell = wait("the session sleeps; its worker has a little time to end by itself");
                // When only readings are missing, the next list brings them.
                if until > self.now { cell.until(until) } else { cell }
            }
            SandboxState::Exited { .. } => {
                // The session has gone on elsewhere: what is here must not be restored as if it were its newest state.
                let another = self.owner() == Some(Owner::Another);
                let purpose = if another { SnapshotPurpose::Detached } else { SnapshotPurpose::Resume };
                self.finish(sandbox, purpose, BootEnd::Wanted)
            }
            SandboxState::Stopping => self.repeat_removal(boot),
            SandboxState::Failed { why } => {
                self.remove(boot, BootEnd::Wanted, format!("its sandbox failed: {why}"))
            }
        }
    }

    fn gone(&self, sandbox: &Sandbox) -> Cell {
        let boot = sandbox.id.boot;
        match &sandbox.state {
            SandboxState::Starting => self.starting(sandbox),
            SandboxState::Running => {
                let Sight::Gone { since } = self.sight else { return wait("the session may be gone") };
                let until = after(*since, self.policy.suspend_grace);
                if until <= self.now {
                    return self.stop(boot, self.policy.stop_grace, StopReason::Gone);
                }
                wait("the session has left the queue; its worker has a little time to end by itself")
                    .until(until)
            }
            SandboxState::Exited { .. } => self.finish(sandbox, SnapshotPurpose::Resume, BootEnd::Wanted),
            SandboxState::Stopping => self.repeat_removal(boot),
            SandboxState::Failed { why } => {
                self.remove(boot, BootEnd::Wanted, format!("its sandbox failed: {why}"))
            }
        }
    }

    fn end(&self, sandbox: &Sandbox) -> Cell {
        let boot = sandbox.id.boot;
        match sandbox.state {
            SandboxState::Starting => self.starting(sandbox),
            SandboxState::Running => self.stop(boot, self.policy.stop_grace, StopReason::Terminated),
            SandboxState::Stopping => self.repeat_removal(boot),
            SandboxState::Exited { .. } | SandboxState::Failed { .. } => {
                self.remove(boot, BootEnd::Wanted, "the session has terminated")
            }
        }
    }

    fn unclear(&self, sandbox: &Sandbox) -> Cell {
        match sandbox.state {
            SandboxState::Running => {
                self.absence().unwrap_or_else(|| wait("nothing is known to be wanted; it goes on"))
            }
            SandboxState::Exited { .. } => match self.save_first(sandbox, SnapshotPurpose::Resume) {
                Some(cell) => cell,
                None => {
                    self.absence().unwrap_or_else(|| wait("its disk is saved; nothing is known to be wanted"))
                }
            },
            _ => self.absence().unwrap_or_else(|| wait("nothing is known to be wanted")),
        }
    }

    /// A session that is absent from complete lists for long enough is looked at by itself; only that proves it gone.
    fn absence(&self) -> Option<Cell> {
        const LISTS: u32 = 3;
        const LASTING: Duration = Duration::from_secs(60);
        let absent = self.evidence.absent;
        let missing = matches!(self.sight, Sight::Missing { .. } | Sight::Unseen);
        if !missing || absent.count == 0 {
            return None;
        }
        if absent.count >= LISTS && absent.lasting(self.now) >= LASTING {
            return Some(act(Step::Look, "the session is absent from the list"));
        }
        Some(wait("the session is absent from the list; looking again"))
    }

    fn leftover(&self, sandbox: &Sandbox) -> Cell {
        let boot = sandbox.id.boot;
        match &sandbox.state {
            SandboxState::Starting | SandboxState::Running => {
                self.stop(boot, self.policy.stop_grace, StopReason::Leftover)
            }
            SandboxState::Exited { .. } => match self.save_first(sandbox, SnapshotPurpose::Detached) {
                Some(cell) if self.wish() != Wish::End => cell,
                _ => act(
                    Step::Remove { boot, listed: self.listed_state(boot), record: self.record.clone() },
                    "a newer sandbox of the session exists",
                ),
            },
            SandboxState::Stopping if !self.removal_due(boot) => wait("an older sandbox is being removed"),
            SandboxState::Stopping | SandboxState::Failed { .. } => act(
                Step::Remove { boot, listed: self.listed_state(boot), record: self.record.clone() },
                "a newer sandbox of the session exists",
            ),
        }
    }

    /// A boot that is not known to be over and is not listed: its start was cut off, or it was lost. Whatever may still be
    /// on its way is removed before anything else is started.
    fn unlisted(&self, boot: Boot) -> Cell {
        let unlisted = self.evidence.boot.unlisted;
        let enough = unlisted.count >= UNLISTED_INVENTORIES && unlisted.lasting(self.now) >= UNLISTED_FOR;
        if self.is_recorded(boot) {
            return self.remove(boot, BootEnd::Wanted, "its sandbox has become its snapshot");
        }
        if !enough {
            return wait("its sandbox is not listed; looking again")
                .until(after(self.now, Duration::from_secs(1)));
        }
        let end = match self.wish() {
            Wish::Work if self.evidence.boot.is_from_before_and_unseen() => BootEnd::CutOff,
            Wish::Work if self.evidence.boot.may_have_served() => BootEnd::AfterServing,
            Wish::Work => BootEnd::WithoutServing,
            _ => BootEnd::Wanted,
        };
        self.remove(boot, end, "its sandbox was lost")
    }

    fn unwanted_end(&self, sandbox: &Sandbox) -> BootEnd {
        let evidence = &self.evidence.boot;
        let rolled_over = self
            .capabilities
            .lifetime_limit
            .is_some_and(|limit| since(self.now, sandbox.started_at) >= limit - LIFE_LEFT.min(limit / 4));
        if rolled_over {
            BootEnd::Wanted
        } else if evidence.boot == sandbox.id.boot && evidence.may_have_served() {
            BootEnd::AfterServing
        } else {
            BootEnd::WithoutServing
        }
    }

    /// Ends a boot whose worker has ended: saved and recorded first if it may hold work, then removed.
    fn finish(&self, sandbox: &Sandbox, purpose: SnapshotPurpose, end: BootEnd) -> Cell {
        self.save_first(sandbox, purpose).unwrap_or_else(|| {
            let why = if self.may_hold_work(sandbox) { "its disk is saved" } else { "it has done no work" };
            self.remove(sandbox.id.boot, end, why)
        })
    }

    /// The step towards a recorded snapshot of this boot; `None` when there is one, or when none is needed.
    fn save_first(&self, sandbox: &Sandbox, purpose: SnapshotPurpose) -> Option<Cell> {
        let boot = sandbox.id.boot;
        if !self.may_hold_work(sandbox) || self.is_recorded(boot) {
            return None;
        }
        match self.listed(boot, purpose) {
            Some(_) if purpose == SnapshotPurpose::Detached => None,
            Some(snapshot) => Some(self.adopt(snapshot)),
            None => Some(self.save(boot, purpose)),
        }
    }

    fn is_recorded(&self, boot: Boot) -> bool {
        let is = |snapshot: &RecordedSnapshot| snapshot.boot == boot;
        self.record.newest_snapshot.as_ref().is_some_and(is)
            || self.record.pinned.iter().any(|pinned| is(&pinned.snapshot))
    }

    fn listed(&self, boot: Boot, purpose: SnapshotPurpose) -> Option<&Snapshot> {
        let mut snapshots = self.snapshots.iter();
        snapshots.find(|snapshot| snapshot.boot == boot && snapshot.purpose == purpose)
    }

    pub(crate) fn adopt(&self, snapshot: &Snapshot) -> Cell {
        let mut record = self.record.clone();
        record.newest_snapshot = Some(RecordedSnapshot::of(snapshot, Standing::Verified));
        act(Step::Write(record), "its snapshot is durable")
    }

    fn save(&self, boot: Boot, purpose: SnapshotPurpose) -> Cell {
        let lasting = self.evidence.boot.saving_since.map_or(Duration::ZERO, |first| since(self.now, first));
        let why = if lasting >= self.policy.save_timeout {
            "saving its disk takes far longer than it should; its sandbox is kept"
        } else {
            "its worker has ended and its disk is to be saved"
        };
        act(Step::Save { boot, purpose }, why)
    }

    fn stop(&self, boot: Boot, grace: Duration, reason: StopReason) -> Cell {
        act(Step::StopWorker { boot, grace, reason }, reason.to_string())
    }

    fn remove(&self, boot: Boot, end: BootEnd, why: impl Into<Cow<'static, str>>) -> Cell {
        let record = self.record.after(boot, end, self.now, self.jitter);
        act(Step::Remove { boot, listed: self.listed_state(boot), record }, why)
    }

    fn listed_state(&self, boot: Boot) -> Option<SandboxState> {
        self.sandboxes.iter().find(|sandbox| sandbox.id.boot == boot).map(|sandbox| sandbox.state.clone())
    }

    fn repeat_removal(&self, boot: Boot) -> Cell {
        match self.removal_repeats_at(boot) {
            Some(at) if at > self.now => wait("its sandbox is being removed").until(at),
            _ => self.remove(boot, BootEnd::Wanted, "its sandbox is being removed"),
        }
    }

    /// What is kept up beside a step, and when the next of it is due.
    fn upkeep(&self) -> (Upkeep, Option<Timestamp>) {
        let mut upkeep = Upkeep::default();
        let mut next = None;
        if self.keeps_claim() {
            let due = self.evidence.renew_at.unwrap_or(self.now);
            upkeep.renew = due <= self.now;
            next = Some(due);
        }
        let newest = self.sandboxes.iter().max_by_key(|sandbox| sandbox.id.boot);
        let living = newest.filter(|sandbox| sandbox.state != SandboxState::Stopping);
        if let Some((boot, expires)) = living.and_then(|sandbox| Some((sandbox.id.boot, sandbox.expires_at?)))
        {
            let due = before(expires, LIFE_LEFT);
            if due <= self.now {
                upkeep.extend = Some(boot);
            } else {
                next = Some(next.map_or(due, |earlier: Timestamp| earlier.min(due)));
            }
        }
        (upkeep, next.filter(|next| *next > self.now))
    }

    /// Whether a claim of ours is kept alive: it is ours, and something of the session is here or about to be; or it has
    /// lapsed while its worker works on.
    fn keeps_claim(&self) -> bool {
        if !self.policy.worker_mode.claims() || self.evidence.claim_lost {
            return false;
        }
        let Some(row) = self.sight.row() else { return false };
        let wish = self.wish();
        let here = !self.sandboxes.is_empty() || self.record.newest_boot > self.record.closed_boot;
        match row.owner(&self.policy.acceptor(self.session)) {
            Owner::Us => here || (wish == Wish::Work && !self.record.given_up()),
            Owner::Nobody => {
                wish == Wish::Work && self.sandboxes.iter().any(|sandbox| sandbox.state.is_live())
            }
            Owner::Another => false,
        }
    }
}
