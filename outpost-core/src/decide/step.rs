//! What a decision can ask for.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

use crate::model::{Boot, Record, RecordedSnapshot, SandboxState, SnapshotPurpose, SnapshotRef, Standing};

/// What to do for one session.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The next step; `None` = wait.
    pub step: Option<Step>,
    /// What is kept up meanwhile, also while a step is under way.
    pub upkeep: Upkeep,
    /// When to decide again at the latest, if nothing changes before.
    pub look_again: Option<Timestamp>,
    /// Why, in words for people.
    pub why: Cow<'static, str>,
}

/// What is kept up beside a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Upkeep {
    /// Our claim is to be renewed now.
    pub renew: bool,
    /// The life of this boot's sandbox is to be extended now.
    pub extend: Option<Boot>,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Look at the session's row by itself.
    Look,
    /// Re-read the row, claim where we claim, write the boot to the record, start. On any failure: remove what was started,
    /// release. Wants a slot.
    Start(StartPlan),
    /// End the worker.
    StopWorker {
        /// In which sandbox.
        boot: Boot,
        /// How long it has between TERM and KILL.
        grace: Duration,
        /// Why.
        reason: StopReason,
    },
    /// Save the disk, and record the snapshot when it is durable.
    Save {
        /// Of which sandbox.
        boot: Boot,
        /// What for.
        purpose: SnapshotPurpose,
    },
    /// Remove a sandbox, then write the record.
    Remove {
        /// Which.
        boot: Boot,
        /// As what it was listed; `None` when it was not. For people: it is removed all the same.
        listed: Option<SandboxState>,
        /// What the record is afterwards.
        record: Record,
    },
    /// Write the record.
    Write(Record),
    /// Delete a snapshot. Where the backend cannot, the record notes it as undeletable.
    DeleteSnapshot {
        /// Which.
        reference: SnapshotRef,
    },
    /// Delete the record.
    Forget,
    /// Give the claim back.
    Release,
}

impl Step {
    /// The step as one word, for logs and metrics.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Look => "look",
            Self::Start(_) => "start",
            Self::StopWorker { .. } => "stop_worker",
            Self::Save { .. } => "save",
            Self::Remove { .. } => "remove",
            Self::Write(_) => "write_record",
            Self::DeleteSnapshot { .. } => "delete_snapshot",
            Self::Forget => "forget",
            Self::Release => "release",
        }
    }
}

/// What to start.
#[derive(Debug, Clone, PartialEq)]
pub struct StartPlan {
    /// Which boot it will be.
    pub boot: Boot,
    /// What its disk comes from; `None` = the image.
    pub restore: Option<RecordedSnapshot>,
    /// What people are told about the disk, if it may not be what they expect.
    pub caveat: Option<Caveat>,
}

impl StartPlan {
    /// What people must know of a restore from `restore`.
    pub(crate) fn caveat_of(restore: &RecordedSnapshot) -> Option<Caveat> {
        match restore.standing {
            Standing::Verified => None,
            Standing::Unverified => Some(Caveat::Unverified),
            Standing::Superseded => Some(Caveat::Superseded),
        }
    }
}

/// Why a disk may not be what people expect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Caveat {
    /// The session resumes, but there is no snapshot of it here.
    ColdResume,
    /// The record was lost: the snapshot is the newest that is listed, but nothing proves that it is the newest there was.
    Unverified,
    /// Another orchestrator has served the session since the snapshot was taken.
    Superseded,
}

impl fmt::Display for Caveat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ColdResume => "it resumes, but there is no snapshot of it here: it starts from the image",
            Self::Unverified => "its record was lost: it starts from the newest snapshot that is listed",
            Self::Superseded => "another orchestrator has served it since this snapshot was taken",
        })
    }
}

/// Why a worker is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// It did not run in time.
    StartTimeout,
    /// Its session is another's.
    ClaimLost,
    /// Its session sleeps, and it went on.
    Suspended,
    /// Its session has ended.
    Terminated,
    /// Its session has left the queue, and it went on.
    Gone,
    /// The CLI did not claim its session in time.
    Unclaimed,
    /// The backend would end the sandbox soon.
    Lifetime,
    /// A newer sandbox of the session exists.
    Leftover,
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StartTimeout => "its worker did not run in time",
            Self::ClaimLost => "another acceptor has the session",
            Self::Suspended => "the session sleeps and its worker went on",
            Self::Terminated => "the session has terminated",
            Self::Gone => "the session has left the queue and its worker went on",
            Self::Unclaimed => "the worker has not claimed its session in time",
            Self::Lifetime => "the backend's limit for a sandbox's life is near",
            Self::Leftover => "a newer sandbox of the session exists",
        })
    }
}
