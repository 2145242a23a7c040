//! What the person who runs Outpost can decide about this provider.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use outpost_core::model::InstanceId;
use secrecy::SecretString;

use crate::DockerProvider;
use crate::step::Step;

/// Devin's public image of its CLI (Devin's documentation), the default image of a sandbox.
pub const DEFAULT_IMAGE: &str = "public.ecr.aws/e0h8a4b6/devin-cli:stable";

/// Everything that can be set. All of it is constant while a provider lives.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Settings {
    /// Where the engine is. By default what `DOCKER_HOST` says, else the local socket.
    pub engine: EngineAddress,
    /// The image that fresh sandboxes start from. By default [`DEFAULT_IMAGE`].
    pub image: String,
    /// When the image is pulled. By default when it is missing.
    pub pull: Pull,
    /// With what the registry is asked. By default without anything.
    pub registry: Option<RegistryCredentials>,
    /// Processors a sandbox may use; `None` = all. By default 4, or as many as there are.
    pub cpus: Option<f64>,
    /// Memory a sandbox may use, in bytes, swap included; `None` = all. By default 8 GiB.
    pub memory_bytes: Option<u64>,
    /// Processes and threads a sandbox may have; `None` = no limit. By default 4096.
    pub pids: Option<u32>,
    /// The size of `/dev/shm` in bytes; browsers need much. By default 1 GiB.
    pub shm_bytes: u64,
    /// Who the worker is: a name or number, perhaps with a group. By default the image's user.
    pub user: Option<String>,
    /// Where the worker starts. By default the image's working directory, else the user's home.
    pub workdir: Option<String>,
    /// More variables of the machine that the worker's contract allows, such as `TZ`. By default none.
    pub machine_env: Vec<(String, String)>,
    /// Directories of the engine's host or volumes that sandboxes see. They are never saved. By default none.
    pub mounts: Vec<ExtraMount>,
    /// What becomes the sandboxes' network. By default one of its own for each.
    pub network: Network,
    /// The image of the guard that confines a sandbox's network. By default one that is built from Debian's packages.
    pub guard_image: Option<String>,
    /// Networks in CIDR notation that no session reaches, whatever its policy, in addition to the engine's host and cloud
    /// metadata addresses. By default none.
    pub deny: Vec<String>,
    /// The servers that answer names under a network policy. By default those that the engine gives its containers.
    pub dns: Vec<std::net::IpAddr>,
    /// What to do with a session whose network policy cannot be enforced here. By default it is refused.
    pub unenforced_network_policy: UnenforcedNetworkPolicy,
    /// The engine's runtime, such as `runsc`; `None` = its default.
    pub runtime: Option<String>,
    /// More labels for sandboxes. Those that begin with `dev.outpost.` are Outpost's. By default none.
    pub labels: Vec<(String, String)>,
    /// How much of a worker's output the engine keeps, in bytes; about twice that at most. By default 8 MiB.
    pub log_bytes: u64,
    /// Whether processes in a sandbox can gain rights, as `sudo` does. By default they cannot.
    pub privileges: Privileges,
    /// How a saved disk is compared with the sandbox's. By default file by file.
    pub save_check: SaveCheck,
    /// From how many layers on a snapshot is made anew as one. Engines refuse more than about 125. By default 60.
    pub flatten_at: usize,
    /// How long a call waits for its work before it answers *in progress*. By default 2 s.
    pub patience: Duration,
    /// How long the engine may take to answer what it answers at once. By default 60 s.
    pub answer_timeout: Duration,
    /// How long the engine may take to pull, save or stop. By default 30 min.
    pub work_timeout: Duration,
}

/// Where an engine is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum EngineAddress {
    /// What `DOCKER_HOST` (with `DOCKER_CERT_PATH` where `DOCKER_TLS_VERIFY` is set) says, else the local socket.
    #[default]
    Environment,
    /// `unix:///path`, or `tcp://host:port` without protection: whoever reaches it owns the host.
    Url(String),
    /// `tcp://host:port` with TLS on both sides.
    Tls {
        /// Where.
        url: String,
        /// A directory with `ca.pem`, `cert.pem` and `key.pem`.
        certificates: PathBuf,
    },
}

/// When an image is pulled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Pull {
    /// When the engine does not have it.
    #[default]
    Missing,
    /// When the provider is opened, even if the engine has one of that name.
    Always,
    /// Never: somebody else puts it there.
    Never,
}

/// With what a registry is asked.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RegistryCredentials {
    /// The account.
    pub username: String,
    /// Its password or token.
    pub password: SecretString,
    /// The registry's address; `None` = the one in the image's name.
    pub server: Option<String>,
}

impl RegistryCredentials {
    /// Credentials for the registry in the image's name.
    pub const fn new(username: String, password: SecretString) -> Self {
        Self { username, password, server: None }
    }
}

/// A directory of the engine's host, or a volume, that sandboxes see.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExtraMount {
    /// An absolute path on the engine's host, or the name of a volume.
    pub source: String,
    /// An absolute path in the sandbox.
    pub target: String,
    /// What sandboxes may do with it.
    pub access: Access,
}

impl ExtraMount {
    /// A mount that sandboxes may read.
    pub fn read_only(source: impl Into<String>, target: impl Into<String>) -> Self {
        Self { source: source.into(), target: target.into(), access: Access::Read }
    }
}

/// What may be done with a mount.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Access {
    /// Reading.
    #[default]
    Read,
    /// Reading and writing; all sandboxes share it.
    Write,
}

/// What becomes the sandboxes' network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Network {
    /// A bridge for each, on which a guard keeps it from others, the engine's host and cloud metadata.
    #[default]
    Guarded,
    /// A bridge for each without a guard: what the host's address offers can be reached, and cloud metadata, too. A network
    /// policy cannot be enforced.
    Unguarded,
}

/// What to do with a session whose network policy cannot be enforced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum UnenforcedNetworkPolicy {
    /// Refuse to start it.
    #[default]
    Refuse,
    /// Start it without any restriction.
    Allow,
}

/// Whether processes in a sandbox can gain rights.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Privileges {
    /// They cannot (`no-new-privileges`).
    #[default]
    Fixed,
    /// They can, as `sudo` needs.
    Sudo,
}

/// How a saved disk is compared with the sandbox's. An engine can report success and miss files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum SaveCheck {
    /// Both are read whole and compared, file by file: contents, owners, modes, links. It takes as long as reading the
    /// image and the disk once.
    #[default]
    Files,
    /// The engine's answer is trusted.
    Trust,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            engine: EngineAddress::default(),
            image: DEFAULT_IMAGE.to_owned(),
            pull: Pull::default(),
            registry: None,
            cpus: Some(4.0),
            memory_bytes: Some(8 << 30),
            pids: Some(4096),
            shm_bytes: 1 << 30,
            user: None,
            workdir: None,
            machine_env: Vec::new(),
            mounts: Vec::new(),
            network: Network::default(),
            guard_image: None,
            deny: Vec::new(),
            dns: Vec::new(),
            unenforced_network_policy: UnenforcedNetworkPolicy::default(),
            runtime: None,
            labels: Vec::new(),
            log_bytes: 8 << 20,
            privileges: Privileges::default(),
            save_check: SaveCheck::default(),
            flatten_at: 60,
            patience: Duration::from_secs(2),
            answer_timeout: Duration::from_secs(60),
            work_timeout: Duration::from_secs(30 * 60),
        }
    }
}

/// Why a provider cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A setting makes no sense.
    #[error("{setting}: {why}")]
    Setting {
        /// Which.
        setting: &'static str,
        /// Why.
        why: String,
    },
    /// The engine cannot be reached or used.
    #[error("the container engine cannot be used: {why}")]
    Engine {
        /// Why, and what to do.
        why: String,
    },
    /// The image cannot be had or not be used.
    #[error("image {image}: {why}")]
    Image {
        /// Which.
        image: String,
        /// Why, and what to do.
        why: String,
    },
}

/// Called at each [`Step`].
pub(crate) type OnStep = Arc<dyn Fn(Step) + Send + Sync>;

/// Makes a [`DockerProvider`].
#[derive(Clone)]
pub struct Builder {
    pub(crate) instance: InstanceId,
    pub(crate) settings: Settings,
    pub(crate) on_step: Option<OnStep>,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("instance", &self.instance)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Builder {
    pub(crate) fn new(instance: InstanceId) -> Self {
        Self { instance, settings: Settings::default(), on_step: None }
    }

    /// Takes all settings at once.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Changes some settings.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    /// Calls `hook` at each [`Step`], on the thread that takes it: a test kills its process there.
    #[must_use]
    pub fn on_step(mut self, hook: impl Fn(Step) + Send + Sync + 'static) -> Self {
        self.on_step = Some(Arc::new(hook));
        self
    }

    /// Connects to the engine, has the image there (pulled, with its progress in the log), and clears away what an earlier
    /// process was in the middle of. Snapshots and sandboxes that are complete stay.
    ///
    /// Dropping the future leaves at most an image that is being pulled.
    ///
    /// # Errors
    /// [`BuildError`] when a setting makes no sense, or the engine or the image cannot be used.
    pub async fn connect(self) -> Result<DockerProvider, BuildError> {
        DockerProvider::open(self).await
    }
}
