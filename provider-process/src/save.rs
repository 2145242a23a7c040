//! Saving a sandbox's disk.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use outpost_core::model::{SandboxId, SandboxState, Snapshot, SnapshotPurpose, SnapshotRef};
use outpost_core::ports::ErrorKind;
use outpost_provider_kit::{Cancel, During as _, Fault, blocking};

use crate::archive::{pack_to, verify};
use crate::boot::BootDir;
use crate::ending::end_all;
use crate::layout::sync_parent;
use crate::meta::SnapshotMeta;
use crate::provider::Inner;
use crate::remove::delete_snapshot_files;
use crate::sweep::delete_file;

/// The worker's own download cache, `DEVIN_WORKER_CACHE_DIR`: the only thing on the disk that is not saved.
const CACHE: &str = "state/cache";

pub(crate) async fn save(
    inner: Arc<Inner>,
    id: SandboxId,
    purpose: SnapshotPurpose,
    cancel: Cancel,
) -> Result<Snapshot, Fault> {
    let _turn = inner.turns.take(&id.session).await;
    let (at, of) = (inner.clone(), id.clone());
    let boot = match blocking(move || look(&at, &of, purpose)).await? {
        Found::Saved(snapshot) => return Ok(snapshot),
        Found::Savable(boot) => boot,
    };
    // What the worker left running would go on writing while it is read.
    end_all(boot, inner.settings.removal_grace, cancel.clone()).await?;
    blocking(move || {
        let boot = inner.find(&id)?.ok_or_else(|| not_found(&id))?;
        write(&inner, &boot, purpose, &cancel)
    })
    .await
}

enum Found {
    Saved(Snapshot),
    Savable(BootDir),
}

fn look(inner: &Inner, id: &SandboxId, purpose: SnapshotPurpose) -> Result<Found, Fault> {
    if let Some(snapshot) = existing(inner, id, purpose)? {
        return Ok(Found::Saved(snapshot));
    }
    let boot = inner.find(id)?.ok_or_else(|| not_found(id))?;
    match boot.state()? {
        SandboxState::Exited { .. } => Ok(Found::Savable(boot)),
        SandboxState::Starting | SandboxState::Running => {
            Err(Fault::new(ErrorKind::Conflict, "its worker is alive; stop it first"))
        }
        SandboxState::Stopping => Err(Fault::new(ErrorKind::Conflict, "it is being removed")),
        SandboxState::Failed { why } => Err(Fault::new(ErrorKind::Conflict, why)),
    }
}

/// The snapshot that was already taken of a boot for a purpose. One whose archive somebody took away or cut does not
/// count: as long as the sandbox is there it can be taken again.
fn existing(inner: &Inner, id: &SandboxId, purpose: SnapshotPurpose) -> Result<Option<Snapshot>, Fault> {
    Ok(SnapshotRef::new(inner.layout.reference(id, purpose))
        .map(|reference| inner.snapshot(reference))
        .transpose()?
        .flatten())
}

fn write(
    inner: &Inner,
    boot: &BootDir,
    purpose: SnapshotPurpose,
    cancel: &Cancel,
) -> Result<Snapshot, Fault> {
    let id = boot.meta.id();
    let reference = inner.layout.reference(&id, purpose);
    let (archive, sidecar) = (inner.layout.archive(&reference), inner.layout.sidecar(&reference));
    let beside = archive.with_extension("zst.part");
    let finish = || {
        // One is there only when its archive was lost; it must not come to describe another one.
        delete_file(&sidecar)?;
        let packed =
            pack_to(&beside, &boot.disk(), Path::new(CACHE), inner.settings.compression_threads, cancel)?;
        verify(&beside, &packed, cancel)?;
        fs::rename(&beside, &archive).during(|| "move the snapshot into place")?;
        sync_parent(&archive).during(|| "make the snapshot durable")?;
        for warning in &packed.warnings {
            tracing::warn!(session = %id.session, boot = %id.boot, "saved, but {warning}");
        }
        let meta = SnapshotMeta {
            instance: inner.layout.instance().clone(),
            session: id.session.clone(),
            boot: id.boot,
            purpose,
            taken_at: Timestamp::now(),
            ending: boot.ending()?,
            size_bytes: packed.size_bytes,
            sha256: packed.sha256,
            warnings: packed.warnings,
        };
        // From here on it is a snapshot.
        meta.write(&sidecar)?;
        let reference = SnapshotRef::new(reference.as_str());
        reference.map(|reference| meta.listed(reference)).ok_or_else(|| not_found(&id))
    };
    let result = finish();
    if result.is_err() {
        let cleared = delete_file(&beside).and_then(|()| delete_snapshot_files(&inner.layout, &reference));
        if let Err(fault) = cleared {
            tracing::warn!(session = %id.session, "half a snapshot is left behind: {}", fault.message);
        }
    }
    result
}

fn not_found(id: &SandboxId) -> Fault {
    Fault::new(ErrorKind::NotFound, format!("{id} does not exist and was not saved"))
}
