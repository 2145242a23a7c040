//! Saving a sandbox's disk as an image.
//!
//! The image has no name until it was compared with the sandbox: without the name nobody lists it, and the next start of
//! Outpost clears it away.

use std::sync::Arc;

use bollard::models::ContainerConfig;
use bollard::query_parameters::{
    CommitContainerOptionsBuilder, CreateContainerOptionsBuilder, CreateImageOptionsBuilder,
    TagImageOptionsBuilder,
};
use futures::TryStreamExt as _;
use jiff::Timestamp;
use outpost_core::model::{SandboxId, Snapshot, SnapshotPurpose, SnapshotRef};
use outpost_core::ports::ErrorKind;
use outpost_provider_kit::{Cancel, Fault};

use crate::container::{Container, Life};
use crate::fault::Asking as _;
use crate::image::{Image, with_algorithm};
use crate::names::{Names, Role, SnapshotLabels};
use crate::provider::Inner;
use crate::settings::SaveCheck;
use crate::step::Step;
use crate::tree::incomplete;

pub(crate) async fn save(
    inner: Arc<Inner>,
    id: SandboxId,
    purpose: SnapshotPurpose,
    cancel: Cancel,
) -> Result<Snapshot, Fault> {
    let _turn = inner.turns.take(&id.session).await;
    if let Some(snapshot) = inner.find_snapshot(&id, purpose).await? {
        return Ok(snapshot);
    }
    let missing = || Fault::new(ErrorKind::NotFound, format!("{id} does not exist and was not saved"));
    let container = inner.find(&id).await?.ok_or_else(missing)?;
    match &container.life {
        Life::Ended { .. } => {}
        Life::Alive => return Err(Fault::new(ErrorKind::Conflict, "its worker is alive; stop it first")),
        Life::Unborn => return Err(Fault::new(ErrorKind::Conflict, "it never ran")),
        Life::Leaving => return Err(Fault::new(ErrorKind::Conflict, "it is being removed")),
    }
    // One that an earlier call has made without hearing of it.
    inner.remove_unpublished(&id).await?;
    inner.reached(Step::SaveBegins);
    let base =
        inner.engine.image(&container.image).await?.ok_or_else(|| {
            Fault::new(ErrorKind::NotFound, "the image that the sandbox was made from is gone")
        })?;
    let image = inner.write(&id, purpose, &container, &base, &cancel).await?;
    inner.reached(Step::ImageMade);
    if let Err(fault) = inner.check_copy(&id, &image, &cancel).await {
        inner.engine.remove_if_unneeded(&image).await;
        return Err(fault);
    }
    inner.reached(Step::ImageChecked);
    // From here on nothing takes it away: once it may have its name, it may be recorded, and the sandbox gone.
    inner.publish(&id, purpose, &image).await
}

impl Inner {
    /// A snapshot that was published.
    pub(crate) async fn find_snapshot(
        &self,
        id: &SandboxId,
        purpose: SnapshotPurpose,
    ) -> Result<Option<Snapshot>, Fault> {
        let (repository, tag) = self.names.snapshot(id, purpose);
        let image = self.engine.image(&format!("{repository}:{tag}")).await?;
        Ok(image.and_then(|image| as_snapshot(&self.names, &image)).filter(|it| it.session == id.session))
    }

    /// Removes images of a boot that were never given a name. Whoever calls it has the session's turn.
    async fn remove_unpublished(&self, id: &SandboxId) -> Result<(), Fault> {
        for image in self.list_images().await? {
            if self.names.is_unpublished(id, &image.repo_tags, &image.labels) {
                self.engine.remove_if_unneeded(&image.id).await;
            }
        }
        Ok(())
    }

    /// Makes the image; it has no name.
    async fn write(
        &self,
        id: &SandboxId,
        purpose: SnapshotPurpose,
        container: &Container,
        base: &Image,
        cancel: &Cancel,
    ) -> Result<String, Fault> {
        let flat = base.layers + 1 >= self.settings.flatten_at;
        let labels = SnapshotLabels {
            id: id.clone(),
            purpose,
            taken_at: Timestamp::now(),
            ending: container.ending(),
            base_bytes: if flat { 0 } else { base.size_bytes },
        };
        let mut changes = labels.as_changes();
        changes.push(format!("ENTRYPOINT {}", json(base.config.entrypoint.as_ref())));
        changes.push(format!("CMD {}", json(base.config.cmd.as_ref())));
        if !flat {
            return self.commit(&container.id, &changes).await;
        }
        self.reached(Step::FlattenBegins);
        let joined = self.join_layers(&container.id).await?;
        self.reached(Step::LayersJoined);
        let committed = self.configure(id, &joined, container, base, &changes, cancel).await;
        if committed.is_err() {
            self.engine.remove_if_unneeded(&joined).await;
        }
        committed
    }

    async fn commit(&self, container: &str, changes: &[String]) -> Result<String, Fault> {
        let options = CommitContainerOptionsBuilder::default()
            .container(container)
            .changes(&changes.join("\n"))
            .pause(false)
            .build();
        let answer = self.engine.patient.commit_container(options, ContainerConfig::default()).await;
        Ok(with_algorithm(answer.changing("commit the container")?.id))
    }

    /// Makes an image of one layer that has the container's disk, and no configuration.
    async fn join_layers(&self, container: &str) -> Result<String, Fault> {
        let engine = &self.engine.patient;
        let archive = engine.export_container(container).map_err(std::io::Error::other);
        let label = format!("LABEL {}={}", crate::names::INSTANCE, self.names.instance());
        let options = CreateImageOptionsBuilder::default().from_src("-").changes(vec![label]).build();
        let body = bollard::body_try_stream(archive);
        let imported: Vec<_> = engine
            .create_image(Some(options), Some(body), None)
            .try_collect()
            .await
            .changing("write the disk as one layer")?;
        let said = imported.iter().rev().flat_map(|info| [info.status.as_deref(), info.id.as_deref()]);
        said.flatten().find_map(image_id).ok_or_else(|| {
            Fault::new(ErrorKind::Invalid, "the engine does not say what it has imported")
                .may_have_been_applied()
        })
    }

    /// Gives an image of one layer the configuration of `base`, by committing a container that has it and never runs.
    async fn configure(
        &self,
        id: &SandboxId,
        joined: &str,
        container: &Container,
        base: &Image,
        changes: &[String],
        cancel: &Cancel,
    ) -> Result<String, Fault> {
        cancel.check()?;
        let name = format!("{}-join", self.names.sandbox(id));
        let mut labels = base.config.labels.clone().unwrap_or_default();
        labels.extend(container.labels.clone());
        labels.extend(self.names.labels_of(Role::Helper, id));
        let config = &base.config;
        let body = bollard::models::ContainerCreateBody {
            image: Some(joined.to_owned()),
            entrypoint: Some(vec!["/nothing".to_owned()]),
            env: config.env.clone(),
            user: config.user.clone(),
            working_dir: config.working_dir.clone(),
            exposed_ports: config.exposed_ports.clone(),
            stop_signal: config.stop_signal.clone(),
            healthcheck: config.healthcheck.clone(),
            labels: Some(labels),
            host_config: Some(bollard::models::HostConfig {
                network_mode: Some("none".to_owned()),
                ..bollard::models::HostConfig::default()
            }),
            ..bollard::models::ContainerCreateBody::default()
        };
        self.engine.discard(&name).await?;
        let options = CreateContainerOptionsBuilder::default().name(&name).build();
        let made = self.engine.quick.create_container(Some(options), body).await;
        made.changing("make a container for the image's configuration")?;
        let committed = self.commit(&name, changes).await;
        self.engine.discard(&name).await?;
        committed
    }

    async fn check_copy(&self, id: &SandboxId, image: &str, cancel: &Cancel) -> Result<(), Fault> {
        if self.settings.save_check == SaveCheck::Files {
            let name = self.names.sandbox(id);
            let mounted: Vec<_> = self.settings.mounts.iter().map(|mount| mount.target.clone()).collect();
            let labels = self.names.labels_of(Role::Helper, id);
            let check = format!("{name}-check");
            let (disk, copy) = futures::join!(
                self.engine.tree(&name, &mounted, cancel),
                self.engine.image_tree(image, &check, labels, &mounted, cancel)
            );
            if let Some(difference) = disk?.difference(&copy?) {
                return Err(incomplete(&difference));
            }
        }
        cancel.check()
    }

    async fn publish(
        &self,
        id: &SandboxId,
        purpose: SnapshotPurpose,
        image: &str,
    ) -> Result<Snapshot, Fault> {
        let (repository, tag) = self.names.snapshot(id, purpose);
        let options = TagImageOptionsBuilder::default().repo(&repository).tag(&tag).build();
        let named = self.engine.quick.tag_image(image, Some(options)).await;
        if let Err(fault) = named.changing("name the snapshot") {
            return self.find_snapshot(id, purpose).await?.ok_or(fault);
        }
        self.reached(Step::SnapshotNamed);
        self.find_snapshot(id, purpose).await?.ok_or_else(|| {
            Fault::new(ErrorKind::Unexpected, "the snapshot was made and is not there")
                .may_have_been_applied()
        })
    }
}

/// An image as a snapshot of ours.
pub(crate) fn as_snapshot(names: &Names, image: &Image) -> Option<Snapshot> {
    let labels = names.as_snapshot(&image.tags, image.labels())?;
    snapshot(labels, &image.id, image.size_bytes)
}

pub(crate) fn snapshot(labels: SnapshotLabels, image: &str, size_bytes: u64) -> Option<Snapshot> {
    Some(Snapshot {
        reference: SnapshotRef::new(image)?,
        session: labels.id.session,
        boot: labels.id.boot,
        taken_at: labels.taken_at,
        size_bytes: Some(size_bytes.saturating_sub(labels.base_bytes)),
        ending: labels.ending,
        purpose: labels.purpose,
    })
}

/// Words in the one form that an engine reads without a shell.
fn json(words: Option<&Vec<String>>) -> String {
    let words = words.map(Vec::as_slice).unwrap_or_default();
    serde_json::to_string(words).unwrap_or_else(|_| "[]".to_owned())
}

/// Finds an image's id in what an engine says.
fn image_id(said: &str) -> Option<String> {
    let is_id = |word: &&str| word.len() == 64 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mut words = said.split(|c: char| !c.is_ascii_alphanumeric());
    words.find(is_id).map(|id| format!("sha256:{id}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_found_in_what_either_engine_says() {
        let id = "ab".repeat(32);
        for said in [format!("sha256:{id}"), id.clone(), format!("sha256:{id}: x"), format!("Loaded {id}\n")]
        {
            assert_eq!(image_id(&said), Some(format!("sha256:{id}")), "{said}");
        }
        assert_eq!(image_id("Importing"), None);
    }
}
