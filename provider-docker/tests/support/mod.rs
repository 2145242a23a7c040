//! An engine of the tests', and what they need to see of it.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]

pub mod proxy;
pub mod scan;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use bollard::Docker;
use bollard::query_parameters::{
    ListContainersOptionsBuilder, ListImagesOptionsBuilder, ListNetworksOptionsBuilder,
    ListVolumesOptionsBuilder, RemoveContainerOptionsBuilder, RemoveImageOptions, RemoveVolumeOptions,
};
use outpost_core::model::{InstanceId, WorkerProgram};
use outpost_provider_docker::{Builder, DockerProvider, EngineAddress};

/// The image of the tests: a busybox with the users root and devin.
pub const IMAGE: &str = "outpost-test/base:1";

/// Which engine a test runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Docker,
    Podman,
}

impl Kind {
    /// Its address, as `unix:///path`.
    pub fn address(self) -> String {
        let variable = match self {
            Self::Docker => "OUTPOST_TEST_DOCKER",
            Self::Podman => "OUTPOST_TEST_PODMAN",
        };
        std::env::var(variable).unwrap_or_else(|_| {
            panic!("{variable} is not set: run `cargo xtask test engines docker`, or set it to unix:///path of an engine")
        })
    }

    pub fn socket(self) -> PathBuf {
        self.address().trim_start_matches("unix://").into()
    }
}

/// An instance of its own on an engine. What it leaves there is removed when it is dropped.
#[derive(Debug)]
pub struct Stage {
    pub kind: Kind,
    pub instance: InstanceId,
    pub dir: tempfile::TempDir,
    scripts: AtomicU32,
}

impl Stage {
    pub fn new(kind: Kind) -> Self {
        let dir = tempfile::Builder::new().prefix("outpost-test-").rand_bytes(10).tempdir().unwrap();
        let random = dir.path().to_str().unwrap().rsplit('-').next().unwrap().to_ascii_lowercase();
        let instance = InstanceId::new(format!("test-{random}")).unwrap();
        Self { kind, instance, dir, scripts: AtomicU32::new(0) }
    }

    pub fn docker(&self) -> Docker {
        connect(self.kind)
    }

    /// A provider's builder for `instance` with the tests' image.
    pub fn builder_of(&self, instance: &InstanceId, address: &str) -> Builder {
        DockerProvider::builder(instance.clone()).with(|settings| {
            settings.engine = EngineAddress::Url(address.to_owned());
            settings.image = IMAGE.to_owned();
            settings.user = Some("devin".to_owned());
            settings.memory_bytes = Some(256 << 20);
        })
    }

    pub fn builder(&self) -> Builder {
        self.builder_of(&self.instance, &self.kind.address())
    }

    pub async fn provider(&self) -> DockerProvider {
        self.builder().connect().await.unwrap()
    }

    /// A worker that is a script.
    pub fn script(&self, text: &str) -> WorkerProgram {
        use std::os::unix::fs::PermissionsExt as _;
        let number = self.scripts.fetch_add(1, Ordering::Relaxed);
        let path = self.dir.path().join(format!("worker-{number}"));
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        WorkerProgram::File { path, version: number.to_string() }
    }
}

pub fn connect(kind: Kind) -> Docker {
    Docker::connect_with_unix(&kind.address(), 120, bollard::API_DEFAULT_VERSION).unwrap()
}

pub fn label_filter(instance: &InstanceId) -> HashMap<String, Vec<String>> {
    HashMap::from([("label".to_owned(), vec![format!("dev.outpost.instance={instance}")])])
}

/// Everything of an instance that is on an engine, one line each.
pub async fn everything(docker: &Docker, instance: &InstanceId) -> Vec<String> {
    let docker = docker.clone().negotiate_version().await.unwrap();
    let filters = label_filter(instance);
    let mut found = Vec::new();
    let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
    for it in docker.list_containers(Some(options)).await.unwrap() {
        found.push(format!(
            "container {} {:?} {:?}",
            it.names.unwrap_or_default().join(" "),
            it.state,
            it.status
        ));
    }
    let options = ListImagesOptionsBuilder::default().all(true).filters(&filters).build();
    for it in docker.list_images(Some(options)).await.unwrap() {
        found.push(format!("image {} {:?}", it.id, it.repo_tags));
    }
    let options = ListNetworksOptionsBuilder::default().filters(&filters).build();
    for it in docker.list_networks(Some(options)).await.unwrap() {
        found.push(format!("network {}", it.name.unwrap_or_default()));
    }
    let options = ListVolumesOptionsBuilder::default().filters(&filters).build();
    for it in docker.list_volumes(Some(options)).await.unwrap().volumes.unwrap_or_default() {
        found.push(format!("volume {}", it.name));
    }
    found
}

/// Removes everything of an instance.
pub async fn wipe(docker: &Docker, instance: &InstanceId) {
    let docker = docker.clone().negotiate_version().await.unwrap();
    let filters = label_filter(instance);
    let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
    for it in docker.list_containers(Some(options)).await.unwrap_or_default() {
        let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
        let _ = docker.remove_container(&it.id.unwrap(), Some(options)).await;
    }
    // An image can be the base of another one.
    for _ in 0..100 {
        let options = ListImagesOptionsBuilder::default().filters(&filters).build();
        let images = docker.list_images(Some(options)).await.unwrap_or_default();
        let mut removed = false;
        for it in images {
            let named = it.repo_tags.into_iter().filter(|tag| !tag.contains("<none>"));
            for name in named.chain([it.id]) {
                removed |= docker.remove_image(&name, None::<RemoveImageOptions>, None).await.is_ok();
            }
        }
        if !removed {
            break;
        }
    }
    let options = ListNetworksOptionsBuilder::default().filters(&filters).build();
    for it in docker.list_networks(Some(options)).await.unwrap_or_default() {
        let _ = docker.remove_network(&it.id.unwrap()).await;
    }
    let options = ListVolumesOptionsBuilder::default().filters(&filters).build();
    let volumes = docker.list_volumes(Some(options)).await.ok().and_then(|it| it.volumes);
    for it in volumes.unwrap_or_default() {
        let _ = docker.remove_volume(&it.name, None::<RemoveVolumeOptions>).await;
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let (kind, instance) = (self.kind, self.instance.clone());
        let neighbour = neighbour(&instance);
        let wiping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let docker = connect(kind);
                wipe(&docker, &instance).await;
                wipe(&docker, &neighbour).await;
            });
        });
        let _ = wiping.join();
    }
}

/// Another instance on the same engine.
pub fn neighbour(instance: &InstanceId) -> InstanceId {
    InstanceId::new(format!("{instance}-n")).unwrap()
}
