//! What goes into the engine, and what comes out.

use std::time::Duration;

use jiff::Timestamp;

use crate::decide::Step;
use crate::model::{Boot, Record, Session, SessionId};
use crate::ports::{Error, Inventory, Listing, Stored, Version, WatchEvent};

/// What was read or done.
#[derive(Debug)]
pub enum Input {
    /// Every record.
    Records(Result<Vec<(SessionId, Stored)>, Error>),
    /// One record.
    Record {
        /// Whose.
        session: SessionId,
        /// What is stored.
        result: Result<Option<Stored>, Error>,
    },
    /// The queue's list.
    Sessions(Result<Listing, Error>),
    /// Something that the watch delivered.
    Watched(WatchEvent),
    /// The backend's list.
    Inventory(Result<Inventory, Error>),
    /// A step has ended.
    Performed {
        /// Whose.
        session: SessionId,
        /// How.
        performed: Box<Performed>,
    },
    /// A renewal has ended.
    Renewed {
        /// Whose claim.
        session: SessionId,
        /// The row afterwards.
        result: Result<Session, Error>,
    },
    /// An extension has ended.
    Extended {
        /// Whose sandbox.
        session: SessionId,
        /// Which.
        boot: Boot,
        /// When the backend ends it now.
        result: Result<Option<Timestamp>, Error>,
    },
}

/// What to do now. All effects are independent of each other.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Effect {
    /// Read every record.
    LoadRecords,
    /// Read one record.
    LoadRecord(SessionId),
    /// List the queue.
    ListSessions,
    /// List the backend.
    ListInventory,
    /// Carry out a step.
    Perform(Box<Work>),
    /// Renew a claim of ours.
    Renew(SessionId),
    /// Extend the life of a sandbox.
    Extend(SessionId, Boot),
}

/// A step, and what its executor needs to know.
#[derive(Debug, Clone, PartialEq)]
pub struct Work {
    /// For which session.
    pub session: SessionId,
    /// What.
    pub step: Step,
    /// The record as it stands.
    pub record: Record,
    /// Which writing of it; `None` = none is stored.
    pub version: Option<Version>,
    /// The row as it was last read; a start re-reads it.
    pub row: Option<Session>,
    /// In `0.0..1.0`: spreads sessions that fail together.
    pub jitter: f64,
}

/// What came of a step.
#[derive(Debug)]
pub struct Performed {
    /// How it ended.
    pub end: StepEnd,
    /// What is stored now; `None` when the step did not touch the record.
    pub stored: Option<Result<Option<Stored>, RecordLost>>,
    /// The row as the step read it last (`Some(None)`: the queue said that it does not exist).
    pub row: Option<Option<Session>>,
    /// What became of our claim.
    pub claim: ClaimChange,
    /// What people should be told.
    pub remark: Option<String>,
}

/// A write failed, and it is not known what is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordLost;

/// How a step ended.
#[derive(Debug)]
pub enum StepEnd {
    /// Done.
    Done,
    /// It goes on by itself; ask again.
    InProgress,
    /// It turned out not to be wanted any more.
    NotWanted,
    /// The snapshot that was to be restored can never be; it was pinned.
    SnapshotUnusable,
    /// It failed, and nothing of it is left.
    Failed(Error),
}

/// What became of our claim in a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ClaimChange {
    /// Nothing.
    #[default]
    None,
    /// It is ours until the deadline; `None` when the queue did not say.
    Held(Option<Timestamp>),
    /// Another has the session.
    Lost,
    /// It was given back.
    Released,
}

impl Performed {
    /// A step that ended so, and touched nothing else.
    pub const fn new(end: StepEnd) -> Self {
        Self { end, stored: None, row: None, claim: ClaimChange::None, remark: None }
    }
}

/// How long a failed step waits before it is tried again: a second, doubled with every failure in a row up to a minute.
pub(super) fn pause_after(failures: u32, asked: Option<Duration>) -> Duration {
    let doubled = Duration::from_secs(1) * 2u32.saturating_pow(failures.clamp(1, 7) - 1);
    doubled.min(Duration::from_secs(60)).max(asked.unwrap_or_default()).min(Duration::from_secs(15 * 60))
}
