//! What people and monitors are told.

use std::borrow::Cow;
use std::time::Duration;

use jiff::Timestamp;

use super::Engine;
use crate::decide::time::since;
use crate::decide::{Sight, Step};
use crate::model::{Owner, Policy, SandboxState, SessionId};
use crate::ports::ErrorKind;

/// The state of an orchestrator at one moment.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// When.
    pub at: Timestamp,
    /// Sessions in the queue.
    pub listed: usize,
    /// Sessions whose claim is ours.
    pub claimed: usize,
    /// Sessions that wait for room.
    pub waiting: usize,
    /// How long the oldest of them has waited. Devin abandons a session after about five minutes (observed).
    pub oldest_waiting: Option<Duration>,
    /// Sandboxes by state.
    pub sandboxes: SandboxCounts,
    /// The most sandboxes that may exist at once.
    pub limit: usize,
    /// Snapshots that the backend holds.
    pub snapshots: usize,
    /// Snapshots that the backend cannot delete.
    pub undeletable: usize,
    /// Steps that are under way.
    pub steps: usize,
    /// How the queue's list fares.
    pub queue: Health,
    /// How the backend's list fares.
    pub backend: Health,
    /// How the records fare.
    pub records: Health,
    /// How old a complete list may be while the orchestrator counts as ready.
    pub fresh_for: Duration,
    /// What has happened since the start.
    pub counters: Counters,
    /// A line for each session that has something here, waits, or is in trouble.
    pub lines: Vec<SessionLine>,
}

/// Sandboxes by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SandboxCounts {
    /// Their worker does not run yet.
    pub starting: usize,
    /// Their worker is alive.
    pub running: usize,
    /// Their worker has ended.
    pub exited: usize,
    /// They are being removed.
    pub stopping: usize,
    /// They have no disk.
    pub failed: usize,
}

impl SandboxCounts {
    /// All of them.
    pub const fn total(&self) -> usize {
        self.starting + self.running + self.exited + self.stopping + self.failed
    }
}

/// How something that is read again and again fares.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Health {
    /// When it was last read completely.
    pub last_success: Option<Timestamp>,
    /// Why the last try failed, if it did.
    pub error: Option<(ErrorKind, String)>,
}

/// What has happened since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Starts that succeeded.
    pub starts: u64,
    /// Starts that failed.
    pub start_failures: u64,
    /// Starts that restored a snapshot.
    pub restores: u64,
    /// Restores that can never succeed.
    pub unusable_snapshots: u64,
    /// Saves that were recorded.
    pub saves: u64,
    /// Sandboxes that were removed.
    pub removals: u64,
    /// Workers that ended although their session went on.
    pub crashes: u64,
    /// Claims that were lost to another.
    pub claims_lost: u64,
    /// Steps that failed, of any kind.
    pub step_failures: u64,
    /// Complete lists of the queue.
    pub lists: u64,
    /// Rows that were ignored because they are another outpost's.
    pub foreign_rows: u64,
}

/// One session, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionLine {
    /// Which.
    pub session: SessionId,
    /// The state of its newest sandbox, if it has one.
    pub sandbox: Option<SandboxState>,
    /// The step that is under way.
    pub step: Option<&'static str>,
    /// Why.
    pub why: Cow<'static, str>,
}

/// Something that people should be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Which session it is about.
    pub session: Option<SessionId>,
    /// What kind of thing.
    pub kind: NoticeKind,
    /// In words, one line.
    pub text: String,
}

/// What kind of thing people are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoticeKind {
    /// A session has a new sandbox.
    Started,
    /// Its disk may not be what people expect.
    Caveat,
    /// A snapshot can never be restored from.
    SnapshotUnusable,
    /// A disk was saved.
    Saved,
    /// A sandbox was removed.
    Removed,
    /// A worker ended although its session goes on.
    WorkerEnded,
    /// A sandbox was lost before it could be saved, or never came to be.
    SandboxLost,
    /// A session's workers keep failing.
    GivenUp,
    /// Another has the session.
    ClaimLost,
    /// A save takes far longer than it should.
    SaveOverdue,
    /// Its status is not known to this version.
    Unclear,
    /// It asks for another platform or outpost.
    Elsewhere,
    /// A step failed and is tried again.
    StepFailed,
    /// The queue, the backend or the records cannot be read.
    Unreadable,
    /// They can be read again.
    Readable,
}

impl NoticeKind {
    /// Whether somebody should look at it.
    pub const fn is_warning(self) -> bool {
        !matches!(self, Self::Started | Self::Saved | Self::Removed | Self::Readable)
    }
}

impl Report {
    /// `Ok` when the queue and the backend were read completely not long ago; else why not, in words.
    ///
    /// # Errors
    /// One line that says what is wrong.
    pub fn ready(&self) -> Result<(), String> {
        for (what, health) in
            [("the queue", &self.queue), ("the backend", &self.backend), ("the records", &self.records)]
        {
            if let Some((kind, error)) = &health.error {
                return Err(match kind {
                    ErrorKind::Unauthorized => format!("{what} refuses our credentials: {error}"),
                    _ => format!("{what} cannot be read: {error}"),
                });
            }
            match health.last_success {
                None => return Err(format!("{what} has not been read yet")),
                Some(at) if what != "the records" && since(self.at, at) > self.fresh_for => {
                    return Err(format!("{what} was last read completely at {at}"));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

impl Engine {
    /// The state of things at `now`.
    pub fn report(&self, now: Timestamp) -> Report {
        let mut sandboxes = SandboxCounts::default();
        let (mut listed, mut claimed, mut snapshots, mut undeletable, mut steps) = (0, 0, 0, 0, 0);
        let mut lines = Vec::new();
        for (session, tracked) in &self.sessions {
            if let Sight::Listed(row) = &tracked.sight {
                listed += 1;
                claimed += usize::from(row.owner(&self.policy.acceptor(session)) == Owner::Us);
            }
            for sandbox in &tracked.sandboxes {
                *match sandbox.state {
                    SandboxState::Starting => &mut sandboxes.starting,
                    SandboxState::Running => &mut sandboxes.running,
                    SandboxState::Exited { .. } => &mut sandboxes.exited,
                    SandboxState::Stopping => &mut sandboxes.stopping,
                    SandboxState::Failed { .. } => &mut sandboxes.failed,
                } += 1;
            }
            snapshots += tracked.snapshots.len();
            undeletable += tracked.record.record.undeletable.len();
            steps += usize::from(tracked.busy.is_some());
            if tracked.is_here() || self.candidates.contains(session) {
                lines.push(SessionLine {
                    session: session.clone(),
                    sandbox: tracked.sandboxes.iter().max_by_key(|s| s.id.boot).map(|s| s.state.clone()),
                    step: tracked.busy.as_ref().map(Step::name),
                    why: tracked.decision.as_ref().map_or("".into(), |decision| decision.why.clone()),
                });
            }
        }
        let oldest = self.candidates.iter().filter_map(|session| self.waiting_since(session)).min();
        Report {
            at: now,
            listed,
            claimed,
            waiting: self.candidates.len(),
            oldest_waiting: oldest.map(|oldest| since(now, oldest)),
            sandboxes,
            limit: self.policy.limit,
            snapshots,
            undeletable,
            steps,
            queue: self.queue.health(),
            backend: self.inventory.health(),
            records: self.records.health(),
            fresh_for: fresh_for(&self.policy),
            counters: self.counters,
            lines,
        }
    }
}

fn fresh_for(policy: &Policy) -> Duration {
    policy.list_interval.max(policy.inventory_interval) * 3 + Duration::from_secs(30)
}
