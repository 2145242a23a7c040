//! The contract that every provider keeps, played against this one on real engines.

mod support;

use std::sync::Arc;

use async_trait::async_trait;
use bollard::exec::{CreateExecOptions, StartExecResults};
use bollard::models::ContainerCreateBody;
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, ListContainersOptionsBuilder, RemoveImageOptions,
};
use futures::StreamExt as _;
use outpost_core::model::{SandboxId, SnapshotRef, WorkerProgram};
use outpost_core::ports::SandboxProvider;
use outpost_testkit::conformance::provider::{Damage, Hindrance, ProviderFixture};
use outpost_testkit::conformance::{Skip, Task};
use support::proxy::{Fault, Proxy};
use support::{Kind, Stage, everything, label_filter, neighbour, scan};

struct Fixture {
    stage: Stage,
    proxy: Proxy,
    outside: String,
}

impl Fixture {
    async fn new(kind: Kind) -> Self {
        let stage = Stage::new(kind);
        let proxy = Proxy::start(stage.dir.path(), kind.socket());
        Self { proxy, stage, outside: outside().await }
    }

    async fn docker(&self) -> bollard::Docker {
        self.stage.docker().negotiate_version().await.unwrap()
    }
}

/// Listens on an address of this machine that is not a session's gateway, and answers its address and port.
async fn outside() -> String {
    // Nothing is sent: this finds out by which address one leaves this machine.
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("192.0.2.1:9").unwrap();
    let address = socket.local_addr().unwrap().ip();
    let listener = tokio::net::TcpListener::bind((address, 0)).await.unwrap();
    let words = format!("{address} {}", listener.local_addr().unwrap().port());
    tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    words
}

#[async_trait]
impl ProviderFixture for Fixture {
    async fn open(&self) -> Arc<dyn SandboxProvider> {
        let builder = self.stage.builder_of(&self.stage.instance, &self.proxy.address());
        Arc::new(builder.connect().await.unwrap())
    }

    async fn open_neighbour(&self) -> Result<Arc<dyn SandboxProvider>, Skip> {
        let neighbour = neighbour(&self.stage.instance);
        let builder = self.stage.builder_of(&neighbour, &self.proxy.address());
        Ok(Arc::new(builder.connect().await.unwrap()))
    }

    async fn program(&self, task: &Task) -> WorkerProgram {
        self.stage.script(&task.to_sh(&format!("nc -w 2 {} </dev/null", self.outside)))
    }

    /// The engine counts whole seconds.
    fn grace(&self) -> std::time::Duration {
        std::time::Duration::from_secs(1)
    }

    async fn kill_worker(&self, id: &SandboxId) -> Result<(), Skip> {
        let docker = self.docker().await;
        let command = "kill -9 $(cut -d' ' -f2 /run/outpost/worker)";
        let exec = CreateExecOptions {
            user: Some("0"),
            cmd: Some(vec!["/bin/sh", "-c", command]),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            ..CreateExecOptions::default()
        };
        let exec = docker.create_exec(&id.name(&self.stage.instance), exec).await.unwrap();
        if let StartExecResults::Attached { mut output, .. } =
            docker.start_exec(&exec.id, None).await.unwrap()
        {
            while let Some(said) = output.next().await {
                if let Ok(said) = said {
                    eprintln!("kill: {said}");
                }
            }
        }
        Ok(())
    }

    async fn processes(&self, mark: &str) -> Result<usize, Skip> {
        let docker = self.docker().await;
        let filters = label_filter(&self.stage.instance);
        let options = ListContainersOptionsBuilder::default().filters(&filters).build();
        let containers: Vec<_> =
            docker.list_containers(Some(options)).await.unwrap().into_iter().filter_map(|it| it.id).collect();
        let ours = |pid| containers.iter().any(|id| scan::is_in(pid, id));
        let marked = scan::processes().into_iter().filter(|(_, words)| words.iter().any(|word| word == mark));
        Ok(marked.filter(|(pid, _)| ours(*pid)).count())
    }

    async fn search(&self, needle: &str) -> Result<Vec<String>, Skip> {
        Ok(scan::search(&self.docker().await, &self.stage.instance, needle).await)
    }

    async fn leftovers(&self, id: &SandboxId) -> Result<Vec<String>, Skip> {
        let name = id.name(&self.stage.instance);
        let everything = everything(&self.docker().await, &self.stage.instance).await;
        Ok(everything.into_iter().filter(|line| line.contains(&name) || line.contains("<none>")).collect())
    }

    async fn damage(&self, snapshot: &SnapshotRef, damage: Damage) -> Result<(), Skip> {
        match damage {
            Damage::Missing => {
                let docker = self.docker().await;
                let image = docker.inspect_image(snapshot.as_str()).await.unwrap();
                for tag in image.repo_tags.unwrap() {
                    docker.remove_image(&tag, None::<RemoveImageOptions>, None).await.unwrap();
                }
                Ok(())
            }
            Damage::Corrupt => Err(Skip::because("an engine keeps its layers to itself")),
        }
    }

    async fn hinder(&self, what: Hindrance) -> Result<(), Skip> {
        match what {
            Hindrance::List => self.proxy.rule("GET", "/images/json", Fault::Instead(500), None),
            Hindrance::Start => self.proxy.rule("POST", "/start", Fault::Instead(500), None),
            Hindrance::Save => self.proxy.rule("POST", "/commit", Fault::Instead(500), None),
        }
        Ok(())
    }

    async fn heal(&self) {
        self.proxy.heal();
    }

    async fn plant_console(&self, id: &SandboxId) -> Result<(), Skip> {
        let labels = [
            ("dev.outpost.instance", self.stage.instance.to_string()),
            ("dev.outpost.role", "console".to_owned()),
            ("dev.outpost.session", id.session.to_string()),
            ("dev.outpost.boot", id.boot.to_string()),
            ("dev.outpost.started-at", "2026-12-01T00:00:00Z".to_owned()),
        ];
        let body = ContainerCreateBody {
            image: Some(support::IMAGE.to_owned()),
            cmd: Some(vec!["/bin/true".to_owned()]),
            labels: Some(labels.map(|(key, value)| (key.to_owned(), value)).into()),
            ..ContainerCreateBody::default()
        };
        let name = format!("{}-console", id.name(&self.stage.instance));
        let options = CreateContainerOptionsBuilder::default().name(&name).build();
        self.docker().await.create_container(Some(options), body).await.unwrap();
        Ok(())
    }

    fn machine_variables(&self) -> Vec<String> {
        vec!["DEVIN_CHROME_PATH".to_owned()]
    }

    fn network_probe(&self) -> Result<String, Skip> {
        Ok(format!("nc -w 2 {} </dev/null", self.outside))
    }
}

mod docker {
    use super::{Fixture, Kind};

    outpost_testkit::provider_conformance!(Fixture::new(Kind::Docker).await);
}

mod podman {
    use super::{Fixture, Kind};

    outpost_testkit::provider_conformance!(Fixture::new(Kind::Podman).await);
}
