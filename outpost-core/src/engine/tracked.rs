//! What the engine holds of one session.

use jiff::Timestamp;

use crate::decide::{Decision, Evidence, Sight, Step};
use crate::model::{Record, Sandbox, Snapshot};
use crate::ports::{Stored, Version};

/// What the engine holds of one session. Nothing of it is stored.
#[derive(Debug, Default)]
pub(super) struct Tracked {
    pub(super) sight: Sight,
    /// When the row became what it is: read, or changed by a step of ours.
    pub(super) row_at: Option<Timestamp>,
    pub(super) first_seen: Option<Timestamp>,
    pub(super) evidence: Evidence,
    pub(super) record: Known,
    pub(super) sandboxes: Vec<Sandbox>,
    pub(super) snapshots: Vec<Snapshot>,
    /// The step that is under way.
    pub(super) busy: Option<Step>,
    pub(super) renewing: bool,
    pub(super) extending: bool,
    /// Not before this is its sandbox extended again, whatever came of it the last time.
    pub(super) extend_at: Option<Timestamp>,
    /// The engine's clock when the last step that touched the backend ended.
    pub(super) needs_clock: u64,
    /// Not before this is the next step begun: the last one failed, or goes on by itself.
    pub(super) not_before: Option<Timestamp>,
    pub(super) trouble: u32,
    pub(super) agenda_at: Option<Timestamp>,
    pub(super) decision: Option<Decision>,
    pub(super) said: Said,
}

/// What the engine knows of a record.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) record: Record,
    /// `None` = none is stored.
    pub(super) version: Option<Version>,
    /// A write failed and it is not known what is stored.
    pub(super) lost: bool,
    pub(super) reading: bool,
}

impl Known {
    pub(super) fn set(&mut self, stored: Option<Stored>) {
        self.lost = false;
        match stored {
            Some(stored) => {
                self.record = stored.record;
                self.version = Some(stored.version);
            }
            None => *self = Self::default(),
        }
    }
}

/// What people were told once of a session.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) unclear: Option<String>,
    pub(super) elsewhere: bool,
    pub(super) save_overdue: bool,
}

impl Tracked {
    /// Whether anything of the session is here, or may be.
    pub(super) fn is_here(&self) -> bool {
        !self.sandboxes.is_empty() || self.has_open_boot() || self.busy.is_some()
    }

    pub(super) fn has_open_boot(&self) -> bool {
        self.record.record.newest_boot > self.record.record.closed_boot
    }

    /// Whether nothing is lost when it is forgotten.
    pub(super) fn is_empty(&self) -> bool {
        !self.is_here()
            && self.snapshots.is_empty()
            && self.record.version.is_none()
            && !self.record.lost
            && !self.renewing
            && !self.extending
    }
}
