//! Starting a sandbox.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use outpost_core::model::{NetworkPolicy, SandboxId, SnapshotRef};
use outpost_core::ports::{ErrorKind, StartSpec, Started};
use outpost_provider_kit::{Cancel, During as _, Fault, blocking};

use crate::archive::{UnpackError, unpack_from};
use crate::boot::{BootDir, Damaged, Mark, Place};
use crate::durable::make_durable;
use crate::ending::end_all;
use crate::launch::{install_program, launch};
use crate::layout::private_dir;
use crate::meta::{SandboxMeta, SnapshotMeta};
use crate::processes::machine_boot;
use crate::provider::Inner;
use crate::settings::UnenforcedNetworkPolicy;
use crate::sweep::delete_tree;

pub(crate) async fn start(inner: Arc<Inner>, spec: StartSpec, cancel: Cancel) -> Result<Started, Fault> {
    let _turn = inner.turns.take(&spec.id.session).await;
    let (at, id) = (inner.clone(), spec.id.clone());
    if let Some(boot) = blocking(move || at.find(&id)).await? {
        return Ok(Started::Sandbox(blocking(move || boot.sandbox()).await?));
    }
    refuse_what_cannot_be_enforced(&inner, &spec.network_policy)?;
    cancel.check()?;
    end_what_is_damaged(&inner, &spec.id, cancel.clone()).await?;

    let (at, to_prepare, watched) = (inner.clone(), spec.clone(), cancel.clone());
    let (boot, program) = match blocking(move || prepare(&at, &to_prepare, &watched)).await? {
        Prepared::Ready { boot, program } => (boot, program),
        Prepared::Unusable { why } => return Ok(Started::SnapshotUnusable { why }),
    };
    let launched = async {
        cancel.check()?;
        boot.mark(Mark::Launched)?;
        launch(&boot, &spec.worker, &program, &inner.settings, &cancel).await
    };
    match launched.await {
        Ok(()) => {
            if spec.restore.is_some() {
                make_durable(vec![boot.clone()]);
            }
            Ok(Started::Sandbox(blocking(move || boot.sandbox()).await?))
        }
        Err(fault) => match undo(&inner, boot).await {
            Ok(()) => Err(fault),
            Err(undoing) => {
                let message = format!(
                    "{}; and what was started is not cleared away: {}",
                    fault.message, undoing.message
                );
                Err(Fault { message, ..fault }.may_have_been_applied())
            }
        },
    }
}

/// Ends what still runs in a damaged sandbox of the session: there is never more than one worker for it.
async fn end_what_is_damaged(inner: &Arc<Inner>, id: &SandboxId, cancel: Cancel) -> Result<(), Fault> {
    let (at, of) = (inner.clone(), id.clone());
    let place = blocking(move || BootDir::at(&at.layout, at.layout.newest(&of.session))).await?;
    let Place::Damaged(Damaged { dir, .. }) = place else { return Ok(()) };
    // Its notes are not believed, so that its processes are known by their environment and their place only.
    let meta = SandboxMeta {
        instance: inner.layout.instance().clone(),
        session: id.session.clone(),
        boot: id.boot,
        started_at: Timestamp::now(),
        restored_from: None,
        machine_boot: Some("unknown".to_owned()),
    };
    let boot = BootDir { meta, dir, tmp: inner.layout.tmp(id) };
    end_all(boot, inner.settings.removal_grace, cancel).await?;
    Ok(())
}

fn refuse_what_cannot_be_enforced(inner: &Inner, policy: &NetworkPolicy) -> Result<(), Fault> {
    match (policy, inner.settings.unenforced_network_policy) {
        (NetworkPolicy::Unrestricted, _) | (_, UnenforcedNetworkPolicy::Allow) => Ok(()),
        (NetworkPolicy::Allow(_), UnenforcedNetworkPolicy::Refuse) => Err(Fault::new(
            ErrorKind::Unsupported,
            "the session has a network policy, which plain processes cannot be held to; \
             set unenforced_network_policy to allow to run it without",
        )),
    }
}

enum Prepared {
    Ready { boot: BootDir, program: String },
    Unusable { why: String },
}

/// Makes the sandbox's directory beside and moves it to its place: it appears whole or not at all.
fn prepare(inner: &Inner, spec: &StartSpec, cancel: &Cancel) -> Result<Prepared, Fault> {
    let layout = &inner.layout;
    let aside = layout.aside("new", &spec.id);
    private_dir(&aside).during(|| "make the sandbox's directory")?;
    let prepared = fill(inner, spec, &aside, cancel);
    if !matches!(prepared, Ok(Prepared::Ready { .. })) {
        let cleared = delete_tree(&aside).and_then(|()| delete_tree(&layout.tmp(&spec.id)));
        if let Err(fault) = cleared {
            // It is not listed, and the next start of Outpost deletes it.
            tracing::warn!(sandbox = %spec.id, "a sandbox that was not started is left behind: {}", fault.message);
        }
    }
    prepared
}

fn fill(inner: &Inner, spec: &StartSpec, aside: &Path, cancel: &Cancel) -> Result<Prepared, Fault> {
    let layout = &inner.layout;
    // Before the disk is filled: making it durable later would wait for all that was restored.
    let meta = SandboxMeta {
        instance: layout.instance().clone(),
        session: spec.id.session.clone(),
        boot: spec.id.boot,
        started_at: Timestamp::now(),
        restored_from: spec.restore.clone(),
        machine_boot: machine_boot(),
    };
    meta.write(aside)?;
    if let Some(reference) = &spec.restore
        && let Err(error) = restore(inner, reference, &spec.id, &aside.join("disk"), cancel)
    {
        return match error {
            UnpackError::Archive(why) => Ok(Prepared::Unusable { why }),
            UnpackError::Other(fault) => Err(fault),
        };
    }
    BootDir::make_dirs(aside)?;
    private_dir(&layout.tmp(&spec.id)).during(|| "make the temporary directory")?;
    let place = layout.newest(&spec.id.session);
    let program = install_program(&aside.join("run"), &spec.worker.program)?
        .replace(&*aside.to_string_lossy(), &place.to_string_lossy());
    cancel.check()?;
    move_into_place(inner, &spec.id, aside, &place)?;
    let boot = BootDir { tmp: layout.tmp(&spec.id), meta, dir: place };
    Ok(Prepared::Ready { boot, program })
}

fn move_into_place(inner: &Inner, id: &SandboxId, aside: &Path, place: &Path) -> Result<(), Fault> {
    let _moving = inner.moving();
    match BootDir::at(&inner.layout, place.to_owned())? {
        Place::Free => {}
        Place::Sandbox(older) => {
            let displaced = inner.layout.displaced(&older.meta.id());
            fs::rename(place, &displaced).during(|| format!("move boot {} aside", older.meta.boot))?;
        }
        Place::Damaged(Damaged { why, .. }) => {
            let aside = inner.layout.damaged(&id.session);
            fs::rename(place, &aside).during(|| "move a damaged sandbox aside")?;
            tracing::warn!(sandbox = %id, "a damaged sandbox was moved to {}: {why}", aside.display());
        }
    }
    fs::rename(aside, place).during(|| format!("move boot {} into place", id.boot))
}

fn restore(
    inner: &Inner,
    reference: &SnapshotRef,
    id: &SandboxId,
    disk: &Path,
    cancel: &Cancel,
) -> Result<(), UnpackError> {
    let missing = || UnpackError::Archive(format!("snapshot {reference} does not exist"));
    if !inner.layout.owns_reference(reference.as_str()) {
        return Err(missing());
    }
    let meta = match SnapshotMeta::read(&inner.layout.sidecar(reference.as_str())) {
        Ok(meta) => meta.ok_or_else(missing)?,
        Err(fault) if fault.kind == ErrorKind::Invalid => return Err(UnpackError::Archive(fault.message)),
        Err(fault) => return Err(fault.into()),
    };
    if meta.session != id.session {
        return Err(UnpackError::Archive(format!("snapshot {reference} is another session's")));
    }
    private_dir(disk).map_err(|error: io::Error| Fault::io("make the sandbox's disk", &error))?;
    unpack_from(&inner.layout.archive(reference.as_str()), &meta.sha256, disk, cancel)
}

/// Takes back a sandbox whose worker could not be started.
async fn undo(inner: &Arc<Inner>, boot: BootDir) -> Result<(), Fault> {
    let hurry = Cancel::default();
    hurry.cancel();
    end_all(boot.clone(), inner.settings.removal_grace, hurry).await?;
    let inner = inner.clone();
    blocking(move || inner.take_away(&boot)).await
}
