//! Removing a sandbox, and a snapshot.

use std::fs;
use std::sync::Arc;

use outpost_core::model::{SandboxId, SnapshotRef};

use crate::boot::{BootDir, Mark};
use crate::ending::end_all;
use crate::fault::{During as _, Fault, blocking};
use crate::layout::sync_parent;
use crate::provider::Inner;
use crate::sweep::{delete_file, delete_tree};
use crate::tasks::Cancel;

pub(crate) async fn remove(inner: Arc<Inner>, id: SandboxId, cancel: Cancel) -> Result<(), Fault> {
    inner.call_off(&id).await;
    let gone = {
        let turn = inner.turn(&id.session);
        let _turn = turn.lock().await;
        let (at, of) = (inner.clone(), id.clone());
        let Some(boot) = blocking(move || mark(&at, &of)).await? else {
            return Ok(());
        };
        end_all(boot.clone(), inner.settings.removal_grace, cancel).await?;
        let at = inner.clone();
        blocking(move || at.set_aside(&boot)).await?
    };
    // Nobody sees it any more, so the session's next boot need not wait for this.
    blocking(move || delete_tree(&gone).and_then(|()| delete_tree(&inner.layout.tmp(&id)))).await
}

/// Notes that a sandbox is being removed, so that it is listed as such also by a later process.
fn mark(inner: &Inner, id: &SandboxId) -> Result<Option<BootDir>, Fault> {
    let Some(boot) = inner.find(id)? else { return Ok(None) };
    if let Err(fault) = boot.mark(Mark::Removing) {
        // A full disk is a reason to remove things.
        tracing::warn!(sandbox = %id, "not noted that it is being removed: {}", fault.message);
    }
    Ok(Some(boot))
}

impl Inner {
    /// Moves a sandbox without processes out of the listing, and answers where it is now.
    pub(crate) fn set_aside(&self, boot: &BootDir) -> Result<std::path::PathBuf, Fault> {
        let gone = self.layout.aside("gone", &boot.meta.id());
        let _moving = self.moving();
        fs::rename(&boot.dir, &gone).during(|| "move the sandbox aside")?;
        Ok(gone)
    }

    /// Removes a sandbox without processes.
    pub(crate) fn take_away(&self, boot: &BootDir) -> Result<(), Fault> {
        let gone = self.set_aside(boot)?;
        delete_tree(&gone)?;
        delete_tree(&boot.tmp)
    }

    pub(crate) fn delete_snapshot_now(&self, snapshot: &SnapshotRef) -> Result<(), Fault> {
        if !self.layout.owns_reference(snapshot.as_str()) {
            return Ok(());
        }
        let sidecar = self.layout.sidecar(snapshot.as_str());
        delete_file(&sidecar)?;
        sync_parent(&sidecar).during(|| "make the deletion durable")?;
        delete_file(&self.layout.archive(snapshot.as_str()))
    }
}
