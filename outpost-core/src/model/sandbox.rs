//! What exists: sandboxes and snapshots, as a backend lists them.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::ids::{Boot, SandboxId, SessionId};

/// A machine for one session, as its backend lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    /// Whose it is, and which.
    pub id: SandboxId,
    /// What has become of it.
    pub state: SandboxState,
    /// When it was started.
    pub started_at: Timestamp,
    /// When the backend will end it by itself; `None` = never.
    pub expires_at: Option<Timestamp>,
    /// The snapshot that it was started from; `None` = from the image.
    pub restored_from: Option<SnapshotRef>,
}

/// What has become of a sandbox. It only ever goes down this list.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SandboxState {
    /// Its worker does not run yet.
    Starting,
    /// Its worker is alive.
    Running,
    /// Its worker has ended and its disk can be saved.
    Exited {
        /// How the worker ended; `None` when that is not known.
        code: Option<i32>,
    },
    /// It is being removed.
    Stopping,
    /// It has no disk that could be saved.
    Failed {
        /// Why, for people.
        why: String,
    },
}

impl SandboxState {
    /// Whether a worker may be alive in it.
    pub const fn is_live(&self) -> bool {
        matches!(self, Self::Starting | Self::Running)
    }
}

/// Names a snapshot to the provider that made it. Opaque, never empty.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SnapshotRef(String);

impl SnapshotRef {
    /// The reference `text`; `None` when it is empty, for an empty reference names nothing.
    pub fn new(text: impl Into<String>) -> Option<Self> {
        let text = text.into();
        (!text.is_empty()).then_some(Self(text))
    }

    /// The reference as the provider wrote it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SnapshotRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for SnapshotRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// The saved disk of one session: complete and durable, or it is not listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// How its provider finds it.
    pub reference: SnapshotRef,
    /// Whose disk it is.
    pub session: SessionId,
    /// The boot whose disk it is.
    pub boot: Boot,
    /// When it was complete.
    pub taken_at: Timestamp,
    /// How much it occupies; `None` when the backend does not say.
    pub size_bytes: Option<u64>,
    /// How the worker had ended.
    pub ending: WorkerEnding,
    /// What it was taken for.
    pub purpose: SnapshotPurpose,
}

/// How a worker ended before its disk was saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerEnding {
    /// By itself, or when it was asked to.
    Clean,
    /// It had to be killed, so files that it was writing may be cut.
    Forced,
}

/// What a snapshot was taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotPurpose {
    /// To restore the session from.
    Resume,
    /// To keep for people what a sandbox held whose session another orchestrator took over. Never restored by itself.
    Detached,
}
