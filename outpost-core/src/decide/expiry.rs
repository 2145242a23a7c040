//! What becomes of snapshots and records that nobody needs any more.

use std::time::Duration;

use jiff::Timestamp;

use super::evidence::Sight;
use super::rows::{Cell, act, wait};
use super::step::Step;
use super::time::{after, since};
use super::view::{Situation, Wish};
use crate::model::{PinnedSnapshot, Snapshot, SnapshotPurpose, SnapshotRef};

/// How exactly a record notes when its session was last seen.
const LAST_SEEN_STEP: Duration = Duration::from_secs(24 * 60 * 60);

/// A session that has terminated: its snapshots are deleted, its record forgotten, and last of all its claim released.
/// What was detached for people stays for its time to live.
pub(crate) fn forget(s: &Situation<'_>, ours: bool) -> Cell {
    if let Some(reference) = deletable(s, |snapshot| snapshot.purpose == SnapshotPurpose::Resume) {
        return act(Step::DeleteSnapshot { reference }, "the session has terminated");
    }
    if s.recorded && s.record.undeletable.is_empty() && s.snapshots.is_empty() {
        return act(Step::Forget, "the session has terminated");
    }
    if ours && s.policy.worker_mode.claims() {
        return act(Step::Release, "the session has terminated, and nothing of it is left here");
    }
    wait("the session has terminated")
}

/// A snapshot that is complete although no record knows it: its process was killed in between. It is recorded before
/// anything else is decided.
pub(crate) fn unrecorded(s: &Situation<'_>) -> Option<Cell> {
    if s.wish() == Wish::End {
        return None;
    }
    let recorded = s.record.newest_snapshot.as_ref().map(|snapshot| snapshot.boot);
    let known = recorded.into_iter().chain(s.record.pinned.iter().map(|pinned| pinned.snapshot.boot)).max();
    let live = |boot| s.sandboxes.iter().any(|sandbox| sandbox.id.boot == boot && sandbox.state.is_live());
    let newer = s.snapshots.iter().filter(|snapshot| {
        snapshot.purpose == SnapshotPurpose::Resume
            && known.is_none_or(|known| snapshot.boot > known)
            && !live(snapshot.boot)
    });
    newer.max_by_key(|snapshot| snapshot.boot).map(|snapshot| s.adopt(snapshot))
}

/// What can be done when nothing else is to be done.
pub(crate) fn housekeeping(s: &Situation<'_>) -> Option<Cell> {
    let newest = s.record.newest_snapshot.as_ref();
    let newest =
        newest.filter(|newest| s.snapshots.iter().any(|listed| listed.reference == newest.reference));
    let superseded = |snapshot: &Snapshot| {
        snapshot.purpose == SnapshotPurpose::Resume
            && newest
                .is_some_and(|newest| snapshot.boot < newest.boot && snapshot.reference != newest.reference)
            && !is_pinned(s, snapshot)
    };
    if let Some(reference) = deletable(s, superseded) {
        return Some(act(Step::DeleteSnapshot { reference }, "a newer snapshot is recorded"));
    }
    let over = |snapshot: &Snapshot| kept_for_people_until(s, snapshot).is_some_and(|until| until <= s.now);
    if let Some(reference) = deletable(s, over) {
        return Some(act(Step::DeleteSnapshot { reference }, "its time to live is over"));
    }
    last_seen(s).or_else(|| expired(s))
}

/// When housekeeping has something to do at the earliest, after now. Nothing else wakes up a session that sleeps.
pub(crate) fn due(s: &Situation<'_>) -> Option<Timestamp> {
    let people = s.snapshots.iter().filter_map(|snapshot| kept_for_people_until(s, snapshot));
    let listed = matches!(s.sight, Sight::Listed(_));
    let next = if listed && is_kept(s) {
        s.record.last_seen.map(|seen| after(seen, LAST_SEEN_STEP))
    } else if listed {
        None
    } else {
        kept_until(s)
    };
    people.chain(next).filter(|at| *at > s.now).min()
}

/// Until when a snapshot is kept that is only kept for people.
fn kept_for_people_until(s: &Situation<'_>, snapshot: &Snapshot) -> Option<Timestamp> {
    let since = match pinned(s, snapshot) {
        Some(pinned) => Some(pinned.since.max(snapshot.taken_at)),
        None => (snapshot.purpose == SnapshotPurpose::Detached).then_some(snapshot.taken_at),
    };
    since.map(|since| after(since, s.policy.snapshot_ttl))
}

/// Until when what is recorded is kept, if the session is not seen again.
fn kept_until(s: &Situation<'_>) -> Option<Timestamp> {
    let taken_at = s.record.newest_snapshot.as_ref().map(|newest| newest.taken_at);
    let seen = taken_at.max(s.record.last_seen)?;
    Some(after(seen, s.policy.snapshot_ttl + LAST_SEEN_STEP))
}

fn is_kept(s: &Situation<'_>) -> bool {
    s.recorded && s.record.newest_snapshot.is_some() && s.wish() != Wish::End
}

/// Notes, once a day, that a session whose snapshot is kept is still in the queue.
fn last_seen(s: &Situation<'_>) -> Option<Cell> {
    let listed = matches!(s.sight, Sight::Listed(_));
    let stale = s.record.last_seen.is_none_or(|seen| since(s.now, seen) >= LAST_SEEN_STEP);
    (is_kept(s) && listed && stale).then(|| {
        let mut record = s.record.clone();
        record.last_seen = Some(s.now);
        act(Step::Write(record), "the session is still in the queue")
    })
}

/// The newest snapshot of a session that has not been seen for the whole time to live. A single look comes first.
fn expired(s: &Situation<'_>) -> Option<Cell> {
    if !s.sandboxes.is_empty() || s.record.newest_boot > s.record.closed_boot {
        return None;
    }
    if kept_until(s)? > s.now || s.evidence.absent.count == 0 {
        return None;
    }
    match s.sight {
        Sight::Listed(_) => None,
        Sight::Unseen | Sight::Missing { .. } => Some(act(Step::Look, "its snapshot's time to live is over")),
        Sight::Gone { .. } => {
            let gone = |snapshot: &Snapshot| snapshot.purpose == SnapshotPurpose::Resume;
            if let Some(reference) = deletable(s, gone) {
                return Some(act(Step::DeleteSnapshot { reference }, "its time to live is over"));
            }
            let empty = s.recorded && s.record.undeletable.is_empty() && s.snapshots.is_empty();
            empty.then(|| act(Step::Forget, "its time to live is over"))
        }
    }
}

fn pinned<'a>(s: &Situation<'a>, snapshot: &Snapshot) -> Option<&'a PinnedSnapshot> {
    s.record.pinned.iter().find(|pinned| pinned.snapshot.reference == snapshot.reference)
}

fn is_pinned(s: &Situation<'_>, snapshot: &Snapshot) -> bool {
    pinned(s, snapshot).is_some()
}

/// The first of the listed snapshots that `wanted` takes and the backend has not refused to delete.
fn deletable(s: &Situation<'_>, wanted: impl Fn(&Snapshot) -> bool) -> Option<SnapshotRef> {
    let refused = |snapshot: &Snapshot| s.record.undeletable.contains(&snapshot.reference);
    let candidates = s.snapshots.iter().filter(|snapshot| wanted(snapshot) && !refused(snapshot));
    let first = candidates.min_by_key(|snapshot| (snapshot.boot, snapshot.reference.clone()))?;
    Some(first.reference.clone())
}
