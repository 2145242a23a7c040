//! Removing a sandbox, and a snapshot.

use std::fs;
use std::sync::Arc;

use outpost_core::model::{SandboxId, SnapshotRef};
use outpost_provider_kit::{Cancel, During as _, Fault, blocking};

use crate::boot::{BootDir, Mark};
use crate::ending::end_all;
use crate::layout::{Layout, sync_parent};
use crate::provider::Inner;
use crate::sweep::{delete_file, delete_tree};

pub(crate) async fn remove(inner: Arc<Inner>, id: SandboxId, cancel: Cancel) -> Result<(), Fault> {
    inner.call_off(&id).await;
    let gone = {
        let _turn = inner.turns.take(&id.session).await;
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
        delete_snapshot_files(&self.layout, snapshot.as_str())
    }
}

/// Deletes a snapshot, also one that a save has made only in part: its sidecar may stand, though perhaps not durably, and
/// must never do so without the archive.
pub(crate) fn delete_snapshot_files(layout: &Layout, reference: &str) -> Result<(), Fault> {
    let sidecar = layout.sidecar(reference);
    delete_file(&sidecar)?;
    sync_parent(&sidecar).during(|| "make the deletion durable")?;
    delete_file(&layout.archive(reference))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_not_deleted_while_the_file_that_makes_it_a_snapshot_stands() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path().to_owned(), outpost_core::model::InstanceId::new("a").unwrap());
        layout.prepare().unwrap();
        fs::write(layout.archive("x"), "").unwrap();
        // A directory is not deleted as a file is.
        fs::create_dir(layout.sidecar("x")).unwrap();
        assert!(delete_snapshot_files(&layout, "x").is_err() && layout.archive("x").exists());
        fs::remove_dir(layout.sidecar("x")).unwrap();
        assert!(delete_snapshot_files(&layout, "x").is_ok() && !layout.archive("x").exists());
    }
}
