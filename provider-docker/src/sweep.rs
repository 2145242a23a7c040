//! Clearing away what an earlier process was in the middle of.

use std::collections::HashSet;

use outpost_provider_kit::Fault;

use crate::image::with_algorithm;
use crate::names::Role;
use crate::provider::Inner;

impl Inner {
    /// Removes everything of this instance that is neither a sandbox nor a snapshot nor belongs to one. It is called before
    /// anything else is begun.
    pub(crate) async fn sweep(&self) -> Result<(), Fault> {
        for helper in self.list_containers(Role::Helper).await? {
            if let Some(id) = helper.id {
                self.engine.discard(&id).await?;
            }
        }
        let sandboxes: HashSet<_> = self.containers().await?.into_iter().map(|it| it.sandbox.id).collect();
        let guards: HashSet<_> = sandboxes.iter().map(|id| self.names.guard(id)).collect();
        for guard in self.list_containers(Role::Guard).await? {
            let name = guard.names.unwrap_or_default().into_iter().next().unwrap_or_default();
            if let Some(id) = guard.id
                && !guards.contains(name.trim_start_matches('/'))
            {
                self.engine.discard(&id).await?;
            }
        }
        let used: HashSet<_> = sandboxes.iter().map(|id| self.names.sandbox(id)).collect();
        for (id, name) in self.engine.networks(&self.names, None).await? {
            if !used.contains(&name) {
                self.engine.remove_network(&id).await?;
            }
        }
        self.sweep_images().await?;
        self.engine.sweep_volumes(&self.names).await
    }

    async fn sweep_images(&self) -> Result<(), Fault> {
        let images = self.list_images().await?;
        let parents: HashSet<_> =
            images.iter().map(|image| with_algorithm(image.parent_id.clone())).collect();
        for image in &images {
            let id = with_algorithm(image.id.clone());
            if !self.names.is_nameless(&image.repo_tags, &image.labels) {
                continue;
            }
            self.remove_marks(&image.repo_tags).await;
            // What others are made from goes with the last of them, now that it has no name.
            if !parents.contains(&id) {
                self.engine.remove_if_unneeded(&id).await;
            }
        }
        Ok(())
    }
}
