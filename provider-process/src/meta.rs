//! The small files beside a sandbox and beside a snapshot.

use std::fs;
use std::io;
use std::path::Path;

use jiff::Timestamp;
use outpost_core::model::{
    Boot, InstanceId, SandboxId, SessionId, Snapshot, SnapshotPurpose, SnapshotRef, WorkerEnding,
};
use outpost_core::ports::ErrorKind;
use outpost_provider_kit::{During as _, Fault};
use serde::{Deserialize, Serialize};

use crate::layout::write_durably;
use crate::small::{Small, read_small};

/// `meta.json` of a sandbox: what it began as. It is durable before the sandbox appears, and never changes; what happens
/// later are [`Mark`](crate::boot::Mark)s.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SandboxMeta {
    pub(crate) instance: InstanceId,
    pub(crate) session: SessionId,
    pub(crate) boot: Boot,
    pub(crate) started_at: Timestamp,
    pub(crate) restored_from: Option<SnapshotRef>,
    /// Which start of the machine its processes belong to; after another one none of them can be alive.
    pub(crate) machine_boot: Option<String>,
}

impl SandboxMeta {
    pub(crate) fn id(&self) -> SandboxId {
        SandboxId::new(self.session.clone(), self.boot)
    }

    /// Reads it. The inner error says how it is damaged, which its session can have done.
    pub(crate) fn read(dir: &Path) -> Result<Result<Option<Self>, String>, Fault> {
        let path = dir.join("meta.json");
        let read = read_small(&path).during(|| format!("read {}", path.display()))?;
        Ok(match read {
            Small::Missing => Ok(None),
            Small::Damaged(why) => Err(why),
            Small::Text(text) => serde_json::from_str(&text).map(Some).map_err(|error| error.to_string()),
        })
    }

    pub(crate) fn write(&self, dir: &Path) -> Result<(), Fault> {
        write_json(&dir.join("meta.json"), self)
    }
}

/// `<reference>.json` of a snapshot. A snapshot exists when this file does: it is the last to be written and the first
/// to be deleted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SnapshotMeta {
    pub(crate) instance: InstanceId,
    pub(crate) session: SessionId,
    pub(crate) boot: Boot,
    pub(crate) purpose: SnapshotPurpose,
    pub(crate) taken_at: Timestamp,
    pub(crate) ending: WorkerEnding,
    pub(crate) size_bytes: u64,
    /// Of the archive's bytes, in hexadecimal.
    pub(crate) sha256: String,
    /// What could not be saved as it was, for people; at most a few.
    pub(crate) warnings: Vec<String>,
}

impl SnapshotMeta {
    /// Reads it. A fault of the kind `Invalid` says that it is damaged.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, Fault> {
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Fault::io(format_args!("read {}", path.display()), &error)),
        };
        serde_json::from_slice(&text).map(Some).map_err(|error| {
            Fault::new(ErrorKind::Invalid, format!("{} is damaged: {error}", path.display()))
        })
    }

    pub(crate) fn write(&self, path: &Path) -> Result<(), Fault> {
        write_json(path, self)
    }

    pub(crate) fn listed(&self, reference: SnapshotRef) -> Snapshot {
        Snapshot {
            reference,
            session: self.session.clone(),
            boot: self.boot,
            taken_at: self.taken_at,
            size_bytes: Some(self.size_bytes),
            ending: self.ending,
            purpose: self.purpose,
        }
    }
}

fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), Fault> {
    let text = serde_json::to_vec_pretty(value)
        .map_err(|error| Fault::new(ErrorKind::Unexpected, format!("encode {}: {error}", path.display())))?;
    write_durably(path, &text).during(|| format!("write {}", path.display()))
}
