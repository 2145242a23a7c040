//! The image that guards are made from.

use bollard::query_parameters::BuildImageOptionsBuilder;
use outpost_core::ports::ErrorKind;
use outpost_provider_kit::{During as _, Fault};

use crate::provider::Inner;

const DOCKERFILE: &str = include_str!("../../guard/Dockerfile");

/// The guard's image as this version builds it.
pub(crate) const NAME: &str = concat!("outpost-guard:", env!("CARGO_PKG_VERSION"));

/// The id of the image, which is built when the engine does not have it.
pub(super) async fn have(inner: &Inner) -> Result<String, Fault> {
    let name = inner.settings.guard_image.as_deref().unwrap_or(NAME);
    if let Some(image) = inner.engine.image(name).await? {
        return Ok(image.id);
    }
    if inner.settings.guard_image.is_some() {
        let why = format!(
            "the guard's image {name} is not there; pull or build it (provider-docker/guard/Dockerfile)"
        );
        return Err(Fault::new(ErrorKind::NotFound, why));
    }
    tracing::info!(image = name, "building the image of the guard that confines sessions' networks");
    build(inner, name).await.map_err(|fault| {
        let message = format!(
            "the guard's image cannot be built: {}; build it with `docker build -t {name} provider-docker/guard`, or set the \
             network to unguarded to go without",
            fault.message
        );
        Fault { message, ..fault }
    })?;
    let gone = || Fault::new(ErrorKind::Unexpected, format!("{name} was built and is not there"));
    Ok(inner.engine.image(name).await?.ok_or_else(gone)?.id)
}

async fn build(inner: &Inner, name: &str) -> Result<(), Fault> {
    let packing = || "pack the guard's Dockerfile";
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(DOCKERFILE.len() as u64);
    header.set_mode(0o644);
    archive.append_data(&mut header, "Dockerfile", DOCKERFILE.as_bytes()).during(packing)?;
    let archive = archive.into_inner().during(packing)?;
    let options = BuildImageOptionsBuilder::default().t(name).rm(true).forcerm(true).build();
    let body = bollard::body_full(archive.into());
    let building = inner.engine.patient.build_image(options, None, Some(body));
    super::collect(building, "build").await.map(drop)
}
