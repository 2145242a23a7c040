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
    pub pinned: Vec<RecordedSnapshot>,
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
        for snapshot in snapshots {
            record.newest_boot = record.newest_boot.max(snapshot.boot);
            let newer = record.newest_snapshot.as_ref().is_none_or(|known| known.boot < snapshot.boot);
            if newer && snapshot.purpose == SnapshotPurpose::Resume {
                record.newest_snapshot = Some(RecordedSnapshot::of(snapshot, Standing::Unverified));
            }
        }
        record
    }
}
