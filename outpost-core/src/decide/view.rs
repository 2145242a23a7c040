//! A session's situation, in the terms of the state table.

use std::time::Duration;

use jiff::Timestamp;

use super::evidence::{Evidence, SAVED_AFTER, Sight};
use super::time::after;
use crate::model::{
    Boot, Owner, Phase, Policy, Record, Sandbox, SandboxState, Session, SessionId, SessionStatus, Snapshot,
};
use crate::ports::{Capabilities, Support};

const REPEAT_REMOVAL_AFTER: Duration = Duration::from_secs(60);

/// Everything that a decision depends on.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    /// The time.
    pub now: Timestamp,
    /// Which session.
    pub session: &'a SessionId,
    /// What is known of its row.
    pub sight: &'a Sight,
    /// What has been seen of it.
    pub evidence: &'a Evidence,
    /// Its sandboxes, in any order.
    pub sandboxes: &'a [Sandbox],
    /// Its snapshots, in any order.
    pub snapshots: &'a [Snapshot],
    /// Its record; the default when it has none.
    pub record: &'a Record,
    /// Whether a record is stored.
    pub recorded: bool,
    /// What the person who runs Outpost has decided.
    pub policy: &'a Policy,
    /// What the backend can do.
    pub capabilities: &'a Capabilities,
    /// In `0.0..1.0`: spreads sessions that failed together.
    pub jitter: f64,
}

/// The rows of the state table: what Devin wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wish {
    /// A machine.
    Work,
    /// A saved disk and no machine, for now.
    Sleep,
    /// Nothing any more, ever.
    End,
    /// Something that this version does not know, or that was not read yet: nothing is done that cannot be undone.
    Unclear,
    /// Gone from the queue, which is no reason to lose its work.
    Gone,
    /// A machine that this orchestrator cannot give.
    Elsewhere,
}

/// The columns of the state table: what exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column<'a> {
    /// No sandbox.
    None,
    /// A boot is not known to be over, but is not listed.
    Unlisted(Boot),
    /// A sandbox, its state taken from the listing.
    Sandbox(&'a Sandbox),
    /// A sandbox that is known to be over, but is listed: its removal goes on.
    Closed(&'a Sandbox),
    /// A sandbox although a newer one exists.
    Leftover(&'a Sandbox),
}

impl<'a> Situation<'a> {
    /// Which row.
    pub fn wish(&self) -> Wish {
        let session = match self.sight {
            Sight::Gone { .. } => return Wish::Gone,
            Sight::Unseen | Sight::Missing { .. } => return Wish::Unclear,
            Sight::Listed(session) => session,
        };
        if session.outpost != self.policy.outpost {
            return Wish::Elsewhere;
        }
        match (&session.status, &session.phase) {
            (SessionStatus::Terminated, _) => Wish::End,
            (SessionStatus::Suspended, _) => Wish::Sleep,
            (SessionStatus::Unknown(_), _) | (_, Phase::Unknown(_)) => Wish::Unclear,
            (SessionStatus::Pending | SessionStatus::Running, _) if self.wrong_platform(session) => {
                Wish::Elsewhere
            }
            (SessionStatus::Pending | SessionStatus::Running, _) => Wish::Work,
        }
    }

    fn wrong_platform(&self, session: &Session) -> bool {
        session.platform.as_ref().is_some_and(|platform| *platform != self.policy.platform)
    }

    /// Whose the session is. Another's only when that is confirmed: the queue refused our claim, or two complete lists
    /// said so; until then, `None`.
    pub fn owner(&self) -> Option<Owner> {
        let owner =
            self.sight.row().map_or(Owner::Nobody, |row| row.owner(&self.policy.acceptor(self.session)));
        match owner {
            _ if self.evidence.claim_lost => Some(Owner::Another),
            Owner::Another if self.evidence.foreign.count >= 2 => Some(Owner::Another),
            Owner::Another => None,
            Owner::Us | Owner::Nobody => Some(owner),
        }
    }

    /// Which column. Where there are several sandboxes, the oldest is dealt with first; one that is being removed blocks
    /// no other.
    pub fn column(&self) -> Column<'a> {
        let record = self.record;
        let over = |sandbox: &&Sandbox| sandbox.id.boot <= record.closed_boot;
        let oldest_over = self.sandboxes.iter().filter(over).min_by_key(|sandbox| sandbox.id.boot);
        let oldest =
            self.sandboxes.iter().filter(|sandbox| !over(sandbox)).min_by_key(|sandbox| sandbox.id.boot);
        match (oldest_over, oldest) {
            (Some(sandbox), _) if self.removal_due(sandbox.id.boot) => Column::Closed(sandbox),
            (_, Some(sandbox)) if sandbox.id.boot < record.newest_boot => Column::Leftover(sandbox),
            (_, Some(sandbox)) => Column::Sandbox(sandbox),
            (Some(sandbox), None) => Column::Closed(sandbox),
            (None, None) if record.newest_boot > record.closed_boot => Column::Unlisted(record.newest_boot),
            (None, None) => Column::None,
        }
    }

    /// Whether a removal that goes on is to be asked for again.
    pub(crate) fn removal_due(&self, boot: Boot) -> bool {
        self.removal_repeats_at(boot).is_none_or(|at| at <= self.now)
    }

    /// When a removal that goes on is asked for again; `None` = it was never asked for.
    pub(crate) fn removal_repeats_at(&self, boot: Boot) -> Option<Timestamp> {
        let asked = self.evidence.removal_asked.filter(|(asked, _)| *asked == boot);
        asked.map(|(_, at)| after(at, REPEAT_REMOVAL_AFTER))
    }

    /// Whether a disk may hold work that no snapshot and no image holds.
    pub fn may_hold_work(&self, sandbox: &Sandbox) -> bool {
        let known = self.evidence.boot.boot == sandbox.id.boot;
        // A worker that left by itself and content was done with something.
        let content = sandbox.state == SandboxState::Exited { code: Some(0) };
        let cheap = self.capabilities.delete_snapshots == Support::Yes;
        let worked = cheap && self.evidence.boot.served_for >= SAVED_AFTER;
        !known || content || worked || self.evidence.boot.may_have_served()
    }
}
