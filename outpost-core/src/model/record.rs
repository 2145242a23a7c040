//! What must survive a restart and cannot be listed.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::ids::Boot;
use super::sandbox::{Snapshot, SnapshotPurpose, SnapshotRef};

/// One small value per session, kept in the `SnapshotStore`.
///
/// Losing it loses no work: [`Record::rebuilt`] makes it again from what the backend lists.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// The newest boot that was ever started; written before the start.
    pub newest_boot: Boot,
    /// The newest boot that is known to be over: its sandbox was removed, or found gone.
    pub closed_boot: Boot,
    /// The snapshot that the session resumes from.
    pub newest_snapshot: Option<RecordedSnapshot>,
    /// Snapshots from which a restore failed for good; kept for people until their time to live is over.
    pub pinned: Vec<PinnedSnapshot>,
    /// Snapshots that the backend cannot delete.
    pub undeletable: Vec<SnapshotRef>,
    /// Boots in a row that ended without having served.
    pub failures: u32,
    /// Not before this is the session started again.
    pub retry_at: Option<Timestamp>,
    /// When the session was last seen in the queue, to within a day.
    pub last_seen: Option<Timestamp>,
}

/// What a record knows of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedSnapshot {
    /// How its provider finds it.
    pub reference: SnapshotRef,
    /// The boot whose disk it is.
    pub boot: Boot,
    /// When it was complete.
    pub taken_at: Timestamp,
    /// Whether this orchestrator knows that nothing newer exists.
    pub standing: Standing,
}

/// A snapshot from which a restore failed for good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedSnapshot {
    /// Which.
    pub snapshot: RecordedSnapshot,
    /// When the restore failed.
    pub since: Timestamp,
    /// Why, for people.
    pub why: String,
}

/// How sure it is that a snapshot is the session's newest state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It is.
    #[default]
    Verified,
    /// The record was lost and was rebuilt from labels: a restore is reported as unverified.
    Unverified,
    /// Another orchestrator has served the session since: a restore is reported as possibly older.
    Superseded,
}

impl RecordedSnapshot {
    /// What to record of `snapshot`.
    pub fn of(snapshot: &Snapshot, standing: Standing) -> Self {
        Self {
            reference: snapshot.reference.clone(),
            boot: snapshot.boot,
            taken_at: snapshot.taken_at,
            standing,
        }
    }
}

impl Record {
    /// The record of a session of which only the backend's listing is left: its boots and its snapshots.
    pub fn rebuilt<'a>(
        boots: impl IntoIterator<Item = Boot>,
        snapshots: impl IntoIterator<Item = &'a Snapshot>,
        now: Timestamp,
    ) -> Self {
        let mut record = Self { last_seen: Some(now), ..Self::default() };
        for boot in boots {
            record.newest_boot = record.newest_boot.max(boot);
        }
        let newest_listed = record.newest_boot;
        for snapshot in snapshots {
            record.newest_boot = record.newest_boot.max(snapshot.boot);
            let newer = record.newest_snapshot.as_ref().is_none_or(|known| known.boot < snapshot.boot);
            if newer && snapshot.purpose == SnapshotPurpose::Resume {
                record.newest_snapshot = Some(RecordedSnapshot::of(snapshot, Standing::Unverified));
            }
        }
        record.closed_boot = if newest_listed == record.newest_boot && newest_listed != Boot::NONE {
            Boot::new(newest_listed.number() - 1)
        } else {
            record.newest_boot
        };
        record
    }

    /// The same record, whose newest snapshot is `snapshot`, or with `snapshot` left out when it is not for resuming.
    #[must_use]
    pub fn with_snapshot(&self, snapshot: &Snapshot) -> Self {
        let mut record = self.clone();
        if snapshot.purpose == SnapshotPurpose::Resume {
            record.newest_snapshot = Some(RecordedSnapshot::of(snapshot, Standing::Verified));
        }
        record
    }

    /// The same record, whose newest snapshot cannot be restored from: pinned, and the session starts cold.
    #[must_use]
    pub fn with_pinned(&self, why: String, now: Timestamp) -> Self {
        let mut record = self.clone();
        if let Some(snapshot) = record.newest_snapshot.take() {
            record.pinned.push(PinnedSnapshot { snapshot, since: now, why });
        }
        record
    }
}
