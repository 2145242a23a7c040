//! What an image says of the sandboxes that are made from it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bollard::auth::DockerCredentials;
use bollard::models::{CreateImageInfo, ImageConfig, ImageInspect};
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures::TryStreamExt as _;
use outpost_core::ports::ErrorKind;
use outpost_provider_kit::Fault;
use secrecy::ExposeSecret as _;

use crate::engine::Engine;
use crate::fault::Asking as _;
use crate::names::Labels;
use crate::settings::{Pull, Settings};

/// How often the progress of a pull is told.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// An image that the engine has.
#[derive(Debug, Clone)]
pub(crate) struct Image {
    /// `sha256:…`: it never changes.
    pub(crate) id: String,
    pub(crate) tags: Vec<String>,
    pub(crate) config: ImageConfig,
    pub(crate) layers: usize,
    pub(crate) size_bytes: u64,
    /// Its first repository digest, for people; else its id.
    pub(crate) digest: String,
}

impl Image {
    fn new(image: ImageInspect) -> Option<Self> {
        let id = with_algorithm(image.id?);
        let digests = image.repo_digests.unwrap_or_default();
        Some(Self {
            digest: digests.into_iter().find(|it| !it.contains("<none>")).unwrap_or_else(|| id.clone()),
            id,
            tags: image.repo_tags.unwrap_or_default(),
            config: image.config.unwrap_or_default(),
            layers: image.root_fs.and_then(|root| root.layers).map_or(0, |layers| layers.len()),
            size_bytes: image.size.and_then(|size| size.try_into().ok()).unwrap_or(0),
        })
    }

    /// A variable of its environment.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        let env = self.config.env.as_deref().unwrap_or_default();
        env.iter().find_map(|entry| entry.strip_prefix(name)?.strip_prefix('='))
    }

    /// The directories that are volumes in every container of it.
    pub(crate) fn volumes(&self) -> &[String] {
        self.config.volumes.as_deref().unwrap_or_default()
    }

    pub(crate) fn labels(&self) -> &Labels {
        static NONE: std::sync::LazyLock<Labels> = std::sync::LazyLock::new(Labels::new);
        self.config.labels.as_ref().unwrap_or(&NONE)
    }
}

/// Some answers of podman leave the algorithm out.
pub(crate) fn with_algorithm(id: String) -> String {
    if id.contains(':') { id } else { format!("sha256:{id}") }
}

impl Engine {
    /// Looks at an image; `None` when the engine does not have it.
    pub(crate) async fn image(&self, reference: &str) -> Result<Option<Image>, Fault> {
        let image = self.quick.inspect_image(reference).await.if_there("look at the image")?;
        match image {
            None => Ok(None),
            Some(image) => Image::new(image)
                .map(Some)
                .ok_or_else(|| Fault::new(ErrorKind::Invalid, "the engine's image has no id")),
        }
    }

    /// The image of fresh sandboxes, pulled if need be.
    pub(crate) async fn base_image(&self, settings: &Settings, pull: Pull) -> Result<Image, Fault> {
        let reference = &settings.image;
        let here = self.image(reference).await?;
        match (here, pull) {
            (Some(image), Pull::Missing | Pull::Never) => return Ok(image),
            (None, Pull::Never) => {
                let why =
                    format!("image {reference} is not there, and pulling is forbidden: pull it, or allow it");
                return Err(Fault::new(ErrorKind::NotFound, why));
            }
            (None, Pull::Missing) | (_, Pull::Always) => {}
        }
        self.pull(settings).await?;
        let gone =
            || Fault::new(ErrorKind::NotFound, format!("image {reference} was pulled and is not there"));
        self.image(reference).await?.ok_or_else(gone)
    }

    async fn pull(&self, settings: &Settings) -> Result<(), Fault> {
        let reference = &settings.image;
        let (name, tag) = split(reference);
        let mut options = CreateImageOptionsBuilder::default().from_image(name);
        if let Some(tag) = tag {
            options = options.tag(tag);
        }
        let credentials = settings.registry.as_ref().map(|registry| DockerCredentials {
            username: Some(registry.username.clone()),
            password: Some(registry.password.expose_secret().to_owned()),
            serveraddress: registry.server.clone(),
            ..DockerCredentials::default()
        });
        tracing::info!(image = %reference, "pulling the image");
        let mut stream = self.patient.create_image(Some(options.build()), None, credentials);
        let mut progress = Progress::default();
        let what = format!("pull {reference}");
        while let Some(info) = stream.try_next().await.asking(&what)? {
            if let Some(told) = progress.take(info) {
                tracing::info!(image = %reference, "pulling: {told}");
            }
        }
        tracing::info!(image = %reference, "pulled");
        Ok(())
    }
}

/// Splits a reference into what the engine wants apart: without a tag it would pull all of them.
fn split(reference: &str) -> (&str, Option<&str>) {
    if reference.contains('@') {
        return (reference, None);
    }
    match reference.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (reference, Some("latest")),
    }
}

/// Adds up what the engine says of single layers.
#[derive(Debug, Default)]
struct Progress {
    layers: HashMap<String, (i64, i64)>,
    told: Option<Instant>,
}

impl Progress {
    fn take(&mut self, info: CreateImageInfo) -> Option<String> {
        let detail = info.progress_detail?;
        let layer = self.layers.entry(info.id?).or_default();
        layer.0 = detail.current.unwrap_or(layer.0);
        layer.1 = detail.total.unwrap_or(layer.1);
        if self.told.is_some_and(|told| told.elapsed() < TELL_EVERY) {
            return None;
        }
        self.told = Some(Instant::now());
        let sum = |part: fn(&(i64, i64)) -> i64| self.layers.values().map(part).sum::<i64>() / 1_000_000;
        Some(format!("{} of {} MB, {} layers", sum(|it| it.0), sum(|it| it.1), self.layers.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_split_where_its_tag_begins() {
        for (reference, split_up) in [
            ("debian", ("debian", Some("latest"))),
            ("debian:12", ("debian", Some("12"))),
            ("localhost:5000/a", ("localhost:5000/a", Some("latest"))),
            ("localhost:5000/a:b", ("localhost:5000/a", Some("b"))),
            ("a@sha256:00", ("a@sha256:00", None)),
        ] {
            assert_eq!(split(reference), split_up);
        }
    }
}
