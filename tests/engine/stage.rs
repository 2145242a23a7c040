//! A simulated queue, a real engine, and Outpost between them.

use std::collections::HashMap;
use std::io::Read as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bollard::Docker;
use bollard::models::{ContainerConfig, ContainerCreateBody};
use bollard::query_parameters::{
    CommitContainerOptionsBuilder, CreateContainerOptionsBuilder, ListContainersOptionsBuilder,
    ListImagesOptionsBuilder, ListNetworksOptionsBuilder, ListVolumesOptionsBuilder,
    RemoveContainerOptionsBuilder, RemoveImageOptions, RemoveVolumeOptions, UploadToContainerOptionsBuilder,
};
use outpost::clock::SystemClock;
use outpost::core::engine::{Notice, Report};
use outpost::core::model::{InstanceId, OutpostId, Platform, Policy, WorkerProgram};
use outpost::core::ports::{Clock, FixedProgram};
use outpost::core::reconciler::{Observer, Ports, Reconciler, Workers};
use outpost::devin::{BaseUrl, DevinQueue, Hosts, ReqwestTransport, Transport};
use outpost::docker::{DockerProvider, EngineAddress, Settings, Step as DockerStep};
use outpost::sim::control::ControlExt as _;
use outpost::sim::model::{DEFAULT_OUTPOST, NewRow};
use outpost::sim::script::Script;
use outpost::sim::{DEFAULT_TOKEN, ServeOptions, Sim, SimServer, serve};
use outpost::store::FileStore;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// The image of the tests: a busybox with the users root and devin.
const BASE: &str = "outpost-test/base:1";
/// How long a condition is waited for.
pub(crate) const BOUND: Duration = Duration::from_secs(120);

/// The engine's address, `unix:///path`.
pub(crate) fn engine() -> String {
    std::env::var("OUTPOST_TEST_DOCKER").unwrap_or_else(|_| {
        panic!("OUTPOST_TEST_DOCKER is not set: run `cargo xtask test engines docker`, or set it to unix:///path of an engine")
    })
}

pub(crate) async fn connect() -> Docker {
    let docker = Docker::connect_with_unix(&engine(), 120, bollard::API_DEFAULT_VERSION).unwrap();
    docker.negotiate_version().await.unwrap()
}

/// Waits until something holds.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < BOUND, "waited in vain until {what} ({caller})");
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }
}

/// A simulated queue, an instance on the engine, and a state directory. What it leaves on the engine is removed when it is
/// dropped.
pub(crate) struct World {
    pub(crate) dir: TempDir,
    pub(crate) instance: InstanceId,
    pub(crate) docker: Docker,
    server: SimServer,
    image: String,
}

/// What an orchestrator is started with.
#[derive(Debug, Clone)]
pub(crate) struct Orchestrator {
    pub(crate) api_url: String,
    pub(crate) state: PathBuf,
    pub(crate) instance: InstanceId,
    pub(crate) engine: String,
    pub(crate) image: String,
    pub(crate) flatten_at: usize,
    pub(crate) user: String,
    pub(crate) limit: usize,
}

impl World {
    pub(crate) async fn new() -> Self {
        // Another test of this process may have been first.
        let _ = tracing_subscriber::fmt().with_test_writer().with_ansi(false).try_init();
        let docker = connect().await;
        // Whoever waits for the lock blocks its thread, so one in a process does.
        static IMAGE: tokio::sync::OnceCell<String> = tokio::sync::OnceCell::const_new();
        let image = IMAGE.get_or_init(|| standin_image(&docker)).await.clone();
        let mut options = ServeOptions::default();
        options.gateway_address = Some(this_machine());
        let server = serve(options).await.unwrap();
        let dir = tempfile::Builder::new().prefix("outpost-test-").rand_bytes(10).tempdir().unwrap();
        let random = dir.path().to_str().unwrap().rsplit('-').next().unwrap().to_ascii_lowercase();
        let instance = InstanceId::new(format!("test-{random}")).unwrap();
        Self { dir, instance, docker, server, image }
    }

    pub(crate) fn sim(&self) -> &Sim {
        self.server.sim()
    }

    pub(crate) fn create(&self, session: &str, script: Script) {
        self.sim().create_scripted(NewRow::new(session).platform("linux"), script).unwrap();
    }

    pub(crate) fn status(&self, session: &str) -> Option<String> {
        self.sim().status(session).unwrap()
    }

    pub(crate) fn orchestrator(&self) -> Orchestrator {
        Orchestrator {
            api_url: self.server.api_url(),
            state: self.dir.path().join("state"),
            instance: self.instance.clone(),
            engine: engine(),
            image: self.image.clone(),
            flatten_at: 60,
            user: "devin".to_owned(),
            limit: 30,
        }
    }

    /// Everything of the instance on the engine but the volume of its program, one line each.
    pub(crate) async fn left(&self) -> Vec<String> {
        left(&self.docker, &self.instance).await
    }

    /// Waits until nothing of the instance is left.
    pub(crate) async fn until_nothing_is_left(&self) {
        let begun = Instant::now();
        loop {
            let left = self.left().await;
            if left.is_empty() {
                return;
            }
            assert!(begun.elapsed() < BOUND, "left behind: {left:#?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The names of the sandboxes' containers.
    pub(crate) async fn containers(&self) -> Vec<String> {
        let mut filters = filter(&self.instance);
        filters.get_mut("label").unwrap().push("dev.outpost.role=session".to_owned());
        let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
        let listed = self.docker.list_containers(Some(options)).await.unwrap();
        listed.into_iter().flat_map(|it| it.names.unwrap_or_default()).collect()
    }
}

fn filter(instance: &InstanceId) -> HashMap<String, Vec<String>> {
    HashMap::from([("label".to_owned(), vec![format!("dev.outpost.instance={instance}")])])
}

pub(crate) async fn left(docker: &Docker, instance: &InstanceId) -> Vec<String> {
    let filters = filter(instance);
    let mut found = Vec::new();
    let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
    for it in docker.list_containers(Some(options)).await.unwrap() {
        found.push(format!("container {:?} {:?}", it.names, it.status));
    }
    let options = ListImagesOptionsBuilder::default().all(true).filters(&filters).build();
    for it in docker.list_images(Some(options)).await.unwrap() {
        found.push(format!("image {} {:?}", it.id, it.repo_tags));
    }
    let options = ListNetworksOptionsBuilder::default().filters(&filters).build();
    for it in docker.list_networks(Some(options)).await.unwrap() {
        found.push(format!("network {:?}", it.name));
    }
    found
}

async fn wipe(docker: &Docker, instance: &InstanceId) {
    let filters = filter(instance);
    let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
    for it in docker.list_containers(Some(options)).await.unwrap_or_default() {
        let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
        let _ = docker.remove_container(&it.id.unwrap(), Some(options)).await;
    }
    loop {
        let options = ListImagesOptionsBuilder::default().filters(&filters).build();
        let mut removed = false;
        for it in docker.list_images(Some(options)).await.unwrap_or_default() {
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

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.orchestrator().log()).unwrap_or_default();
            eprintln!("--- what the orchestrators said\n{log}");
        }
        let instance = self.instance.clone();
        let wiping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async { wipe(&connect().await, &instance).await });
        });
        let _ = wiping.join();
    }
}

impl Orchestrator {
    /// Where one in a process of its own says what it does.
    pub(crate) fn log(&self) -> PathBuf {
        self.state.with_extension("log")
    }

    fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        settings.engine = EngineAddress::Url(self.engine.clone());
        settings.image.clone_from(&self.image);
        settings.user = Some(self.user.clone());
        settings.memory_bytes = Some(256 << 20);
        settings.flatten_at = self.flatten_at;
        settings.answer_timeout = Duration::from_secs(20);
        settings
    }

    /// Serves the queue until `until`.
    pub(crate) async fn serve(
        self,
        on_step: impl Fn(DockerStep) + Send + Sync + 'static,
        until: impl Future<Output = ()> + Send,
    ) {
        std::fs::create_dir_all(&self.state).unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let transport: Arc<dyn Transport> = Arc::new(ReqwestTransport::new().unwrap());
        let api = BaseUrl::parse(&self.api_url, Hosts::Devin).unwrap();
        let outpost = OutpostId::new(DEFAULT_OUTPOST).unwrap();
        let mut policy = Policy::new(outpost.clone(), self.instance.clone());
        policy.platform = Platform::Linux;
        policy.limit = self.limit;
        policy.list_interval = Duration::from_millis(200);
        policy.inventory_interval = Duration::from_millis(200);
        policy.suspend_grace = Duration::from_secs(1);
        policy.stop_grace = Duration::from_secs(1);
        policy.resume_courtesy = Duration::ZERO;
        let worker = self.state.join("worker.sh");
        std::fs::write(&worker, "#!/bin/sh\nexec /usr/local/bin/outpost sim worker devin-remote \"$@\"\n")
            .unwrap();
        let builder =
            DockerProvider::builder(self.instance.clone()).settings(self.settings()).on_step(on_step);
        let source = DevinQueue::new(
            api,
            &DEFAULT_TOKEN.to_owned().into(),
            outpost,
            Arc::clone(&transport),
            Arc::clone(&clock),
        );
        let program = WorkerProgram::File { path: worker, version: "stand-in".to_owned() };
        let ports = Ports {
            source: Arc::new(source),
            provider: Arc::new(builder.connect().await.unwrap()),
            store: Arc::new(FileStore::open(self.state.join("records")).unwrap()),
            programs: Arc::new(FixedProgram(program)),
            clock,
        };
        let reconciler = Reconciler::new(policy, ports, Workers::default()).unwrap();
        reconciler.with_observer(Arc::new(Said)).run(until).await;
    }

    /// Serves the queue in this process.
    pub(crate) fn start(&self) -> Running {
        let stop = CancellationToken::new();
        let until = stop.clone().cancelled_owned();
        let task = tokio::spawn(self.clone().serve(|_| {}, until));
        Running { stop, task: Some(task) }
    }
}

/// Says what people are told.
#[derive(Debug)]
struct Said;

impl Observer for Said {
    fn report(&self, _: &Report) {}

    fn notice(&self, notice: &Notice) {
        tracing::info!("{notice:?}");
    }
}

/// An orchestrator in this process.
pub(crate) struct Running {
    stop: CancellationToken,
    task: Option<tokio::task::JoinHandle<()>>,
}

impl Running {
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        self.task.take().unwrap().await.unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The address by which one leaves this machine: containers reach it, and it is no session's gateway.
pub(crate) fn this_machine() -> IpAddr {
    // Nothing is sent.
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("192.0.2.1:9").unwrap();
    socket.local_addr().unwrap().ip()
}

/// An image in which the stand-in worker runs: the tests' base, the command, and the libraries that it needs.
async fn standin_image(docker: &Docker) -> String {
    let binary = Path::new(env!("CARGO_BIN_EXE_outpost"));
    let metadata = std::fs::metadata(binary).unwrap();
    let modified = metadata.modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap();
    let (repository, tag) = ("outpost-test/standin", format!("{}-{}", metadata.len(), modified.as_nanos()));
    let image = format!("{repository}:{tag}");
    // One test process makes it, the others wait.
    let lock = std::fs::File::create(std::env::temp_dir().join("outpost-test-standin.lock")).unwrap();
    lock.lock().unwrap();
    if docker.inspect_image(&image).await.is_ok() {
        return image;
    }
    let archive = {
        let mut archive = tar::Builder::new(Vec::new());
        let mut add = |path: &Path, name: &str| {
            let mut content = Vec::new();
            std::fs::File::open(path).unwrap().read_to_end(&mut content).unwrap();
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o755);
            archive.append_data(&mut header, name.trim_start_matches('/'), content.as_slice()).unwrap();
        };
        // Every save reads the image whole.
        let stripped = tempfile::NamedTempFile::new().unwrap();
        std::fs::copy(binary, stripped.path()).unwrap();
        let _ = std::process::Command::new("strip").arg(stripped.path()).status();
        add(stripped.path(), "usr/local/bin/outpost");
        let listed = std::process::Command::new("ldd").arg(binary).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        for library in listed.split_whitespace().filter(|word| word.starts_with('/')) {
            add(Path::new(library), library);
        }
        archive.into_inner().unwrap()
    };
    let body = ContainerCreateBody {
        image: Some(BASE.to_owned()),
        cmd: Some(vec!["/bin/true".to_owned()]),
        ..ContainerCreateBody::default()
    };
    let options = CreateContainerOptionsBuilder::default().name("outpost-test-standin").build();
    let container = docker.create_container(Some(options), body).await.unwrap().id;
    let options = UploadToContainerOptionsBuilder::default().path("/").build();
    docker.upload_to_container(&container, Some(options), bollard::body_full(archive.into())).await.unwrap();
    let options = CommitContainerOptionsBuilder::default().container(&container).repo(repository).tag(&tag);
    docker.commit_container(options.build(), ContainerConfig::default()).await.unwrap();
    docker.remove_container(&container, None).await.unwrap();
    image
}
