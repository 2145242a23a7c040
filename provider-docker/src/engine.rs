//! The connection to an engine.

use std::time::Duration;

use bollard::{API_DEFAULT_VERSION, Docker};

use crate::fault::Asking as _;
use crate::settings::{BuildError, EngineAddress, Settings};

/// Which engine it is: they differ in a few answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EngineKind {
    Docker,
    Podman,
}

/// An engine, with two amounts of patience.
#[derive(Debug, Clone)]
pub(crate) struct Engine {
    /// For what it answers at once.
    pub(crate) quick: Docker,
    /// For what takes it as long as it takes: pulling, committing, stopping.
    pub(crate) patient: Docker,
    pub(crate) kind: EngineKind,
    /// How many processors it has.
    pub(crate) cpus: Option<i64>,
}

impl Engine {
    /// Connects, and agrees on a version of the API: an engine refuses one that it does not know, and a newer one refuses
    /// old clients.
    pub(crate) async fn connect(settings: &Settings) -> Result<Self, BuildError> {
        let docker = open(&settings.engine, settings.answer_timeout)?;
        let engine = async {
            let docker = docker.negotiate_version().await.asking("ask for its version")?;
            let version = docker.version().await.asking("ask for its version")?;
            let info = docker.info().await.asking("ask what it is")?;
            let mut components = version.components.unwrap_or_default().into_iter();
            let podman = components.any(|component| component.name.to_ascii_lowercase().contains("podman"));
            Ok::<_, outpost_provider_kit::Fault>(Self {
                patient: docker.clone().with_timeout(settings.work_timeout),
                quick: docker,
                kind: if podman { EngineKind::Podman } else { EngineKind::Docker },
                cpus: info.ncpu,
            })
        };
        engine
            .await
            .map_err(|fault| BuildError::Engine { why: with_advice(&settings.engine, &fault.message) })
    }
}

fn open(address: &EngineAddress, timeout: Duration) -> Result<Docker, BuildError> {
    let seconds = timeout.as_secs().max(1);
    let opened = match address {
        EngineAddress::Environment => Docker::connect_with_defaults(),
        EngineAddress::Url(url) if url.starts_with("unix://") => {
            Docker::connect_with_unix(url, seconds, API_DEFAULT_VERSION)
        }
        EngineAddress::Url(url) if url.starts_with("tcp://") || url.starts_with("http://") => {
            Docker::connect_with_http(url, seconds, API_DEFAULT_VERSION)
        }
        EngineAddress::Url(url) => {
            let why = format!("{url:?} is not unix:///path or tcp://host:port");
            return Err(BuildError::Setting { setting: "engine", why });
        }
        EngineAddress::Tls { url, certificates } => Docker::connect_with_ssl(
            url,
            &certificates.join("key.pem"),
            &certificates.join("cert.pem"),
            &certificates.join("ca.pem"),
            seconds,
            API_DEFAULT_VERSION,
        ),
    };
    let opened =
        opened.map_err(|error| BuildError::Engine { why: with_advice(address, &error.to_string()) })?;
    Ok(opened.with_timeout(timeout))
}

fn with_advice(address: &EngineAddress, why: &str) -> String {
    let address = match address {
        EngineAddress::Environment => "what DOCKER_HOST says, else the local socket".to_owned(),
        EngineAddress::Url(url) | EngineAddress::Tls { url, .. } => url.clone(),
    };
    format!("{why} (address: {address}); is it running, and may this user reach it? `docker info` tells")
}
