//! Removing a sandbox, ending its worker, and deleting a snapshot.

use std::sync::Arc;
use std::time::Duration;

use bollard::query_parameters::{RemoveImageOptions, StopContainerOptionsBuilder, TagImageOptionsBuilder};
use outpost_core::model::{SandboxId, SnapshotRef, WorkerEnding};
use outpost_core::ports::ErrorKind;
use outpost_provider_kit::{Cancel, Fault};

use crate::container::{Life, understood};
use crate::engine::Engine;
use crate::fault::{Asking as _, status};
use crate::image::Image;
use crate::names::SnapshotLabels;
use crate::provider::Inner;
use crate::step::Step;

/// How long what was told to go may still be seen.
const GONE_WITHIN: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) async fn remove(inner: Arc<Inner>, id: SandboxId, _cancel: Cancel) -> Result<(), Fault> {
    inner.call_off(&id).await;
    let _turn = inner.turns.take(&id.session).await;
    inner.reached(Step::RemoveBegins);
    inner.clear(&id).await
}

pub(crate) async fn stop(
    inner: Arc<Inner>,
    id: SandboxId,
    grace: Duration,
    _cancel: Cancel,
) -> Result<WorkerEnding, Fault> {
    let _turn = inner.turns.take(&id.session).await;
    let Some(container) = inner.find(&id).await? else { return Ok(WorkerEnding::Clean) };
    if container.life == Life::Alive {
        inner.reached(Step::StopBegins);
        inner.engine.stop(&container.id, grace).await?;
        inner.reached(Step::WorkerStopped);
    }
    match inner.find(&id).await? {
        Some(container) if container.life == Life::Alive => {
            Err(Fault::new(ErrorKind::Unavailable, "the engine has stopped it, and it still runs"))
        }
        Some(container) => Ok(container.ending()),
        None => Ok(WorkerEnding::Clean),
    }
}

impl Engine {
    /// TERM, and after the grace KILL, for everything in the container.
    async fn stop(&self, container: &str, grace: Duration) -> Result<(), Fault> {
        // One that people have paused hears nothing.
        let _ = self.quick.unpause_container(container).await;
        // The engine counts whole seconds, and takes none for KILL at once.
        let seconds = grace.as_secs_f64().ceil().max(1.0) as i32;
        let options = StopContainerOptionsBuilder::default().t(seconds).build();
        match self.patient.stop_container(container, Some(options)).await {
            Err(answer) if matches!(status(&answer), Some(304 | 404)) => Ok(()),
            stopped => stopped.changing("stop the worker"),
        }
    }

    /// Waits until a container that was told to go is gone.
    async fn gone(&self, container: &str) -> Result<(), Fault> {
        let waiting = async {
            loop {
                let seen = understood(self.quick.inspect_container(container, None).await);
                if seen.if_there("look at the container")?.is_none() {
                    return Ok(());
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        let late = || Err(Fault::new(ErrorKind::Unavailable, "the engine is still removing the container"));
        tokio::time::timeout(GONE_WITHIN, waiting).await.unwrap_or_else(|_| late())
    }

    /// Removes an image that nobody has named or only we have marked. Where something still needs it the engine refuses,
    /// and it goes later.
    pub(crate) async fn remove_if_unneeded(&self, image: &str) {
        match self.patient.remove_image(image, None::<RemoveImageOptions>, None).await {
            Ok(_) => {}
            Err(answer) if matches!(status(&answer), Some(404 | 409)) => {}
            Err(answer) => tracing::warn!(image, "an image that nothing needs stays for now: {answer}"),
        }
    }
}

impl Inner {
    /// Removes everything that a sandbox is made of, and only what is Outpost's.
    pub(crate) async fn clear(&self, id: &SandboxId) -> Result<(), Fault> {
        let name = self.names.sandbox(id);
        let guard = self.names.guard(id);
        self.engine.discard(&guard).await?;
        self.reached(Step::GuardRemoved);
        let container = self.find(id).await?;
        if container.is_some() {
            self.engine.discard(&name).await?;
            self.engine.gone(&name).await?;
        }
        self.engine.gone(&guard).await?;
        self.reached(Step::ContainerRemoved);
        self.engine.remove_networks(&self.names, id).await?;
        self.reached(Step::NetworkRemoved);
        if let Some(container) = container {
            self.clear_image(&container.image).await?;
        }
        Ok(())
    }

    /// Removes an image of ours that has lost its name while a sandbox still needed it.
    async fn clear_image(&self, image: &str) -> Result<(), Fault> {
        if let Some(found) = self.engine.image(image).await?
            && self.names.is_nameless(&found.tags, found.labels())
        {
            self.remove_marks(&found.tags).await;
            self.engine.remove_if_unneeded(&found.id).await;
        }
        Ok(())
    }

    /// Takes the names away by which deleted snapshots are marked. An image that a container uses keeps its.
    pub(crate) async fn remove_marks(&self, tags: &[String]) {
        for tag in tags.iter().filter(|tag| self.names.is_mark(tag)) {
            self.engine.remove_if_unneeded(tag).await;
        }
    }

    /// A published snapshot of ours, by its reference.
    pub(crate) async fn snapshot_image(
        &self,
        reference: &str,
    ) -> Result<Option<(Image, outpost_core::model::Snapshot)>, Fault> {
        if !is_id(reference) {
            return Ok(None);
        }
        let Some(image) = self.engine.image(reference).await?.filter(|image| image.id == reference) else {
            return Ok(None);
        };
        Ok(crate::save::as_snapshot(&self.names, &image).map(|snapshot| (image, snapshot)))
    }
}

/// References come out of records; the engine would take a name as well.
fn is_id(reference: &str) -> bool {
    let digits = reference.strip_prefix("sha256:").unwrap_or_default();
    digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

pub(crate) async fn delete_snapshot(inner: &Inner, reference: &SnapshotRef) -> Result<(), Fault> {
    let Some((image, snapshot)) = inner.snapshot_image(reference.as_str()).await? else {
        // An earlier call may have got as far as taking the name away.
        return if is_id(reference.as_str()) { inner.clear_image(reference.as_str()).await } else { Ok(()) };
    };
    let _turn = inner.turns.take(&snapshot.session).await;
    let Some(labels) = inner.names.as_snapshot(&image.tags, image.labels()) else { return Ok(()) };
    inner.reached(Step::DeleteBegins);
    inner.unname(&image, &labels).await?;
    inner.reached(Step::SnapshotUnnamed);
    // Also those that an engine would not let go of before.
    for image in inner.list_images().await? {
        inner.remove_marks(&image.repo_tags).await;
    }
    inner.reached(Step::SnapshotDeleted);
    Ok(())
}

impl Inner {
    /// Takes a snapshot's name away. Its last name is one that nobody can take from an image that a container uses, so it
    /// gets another one first.
    async fn unname(&self, image: &Image, labels: &SnapshotLabels) -> Result<(), Fault> {
        let mark = self.names.mark_of(&image.id);
        let (repository, tag) = mark.rsplit_once(':').unwrap_or((&mark, "latest"));
        let options = TagImageOptionsBuilder::default().repo(repository).tag(tag).build();
        self.engine.quick.tag_image(&image.id, Some(options)).await.changing("mark the snapshot")?;
        self.reached(Step::SnapshotMarked);
        let (repository, tag) = self.names.snapshot(&labels.id, labels.purpose);
        let name = format!("{repository}:{tag}");
        let removed = self.engine.patient.remove_image(&name, None::<RemoveImageOptions>, None).await;
        match removed.if_there("delete the snapshot") {
            // It may be done all the same, and nobody would ask again for what is not listed any more.
            Err(fault) if self.engine.image(&name).await?.is_some() => Err(fault),
            _ => Ok(()),
        }
    }
}
