//! What the person who runs Outpost can decide about this provider.

use std::path::{Path, PathBuf};
use std::time::Duration;

use outpost_core::model::InstanceId;

use crate::ProcessProvider;

/// What to do with a session whose network policy this provider cannot enforce.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum UnenforcedNetworkPolicy {
    /// Refuse to start it.
    #[default]
    Refuse,
    /// Start it without any restriction.
    Allow,
}

/// Everything that can be set. All of it is constant while a provider lives.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Settings {
    /// What to do with a session whose network policy cannot be enforced. By default it is refused.
    pub unenforced_network_policy: UnenforcedNetworkPolicy,
    /// The workers' `PATH`. By default Outpost's own.
    pub path: String,
    /// The workers' `LANG`. By default Outpost's own, else `C.UTF-8`.
    pub lang: String,
    /// More variables of the machine that the worker's contract allows, such as `TZ` or `DISPLAY`. By default none.
    pub machine_env: Vec<(String, String)>,
    /// The shell that runs the supervisor: any POSIX one. By default `/bin/sh`.
    pub shell: PathBuf,
    /// How long a call waits for its work before it answers *in progress*. By default 2 s.
    pub patience: Duration,
    /// How long processes have between TERM and KILL when a sandbox is removed, and those that a worker left behind
    /// before its disk is saved. By default 2 s.
    pub removal_grace: Duration,
    /// How long a worker's process may take to appear. By default 30 s.
    pub launch_timeout: Duration,
    /// The threads that compress one snapshot. By default one a processor, at most four.
    pub compression_threads: u32,
}

impl Default for Settings {
    fn default() -> Self {
        let variable = |name: &str, otherwise: &str| {
            std::env::var(name).ok().filter(|value| !value.is_empty()).unwrap_or_else(|| otherwise.to_owned())
        };
        let processors = std::thread::available_parallelism().map_or(1, |n| n.get().min(4));
        Self {
            unenforced_network_policy: UnenforcedNetworkPolicy::default(),
            path: variable("PATH", "/usr/local/bin:/usr/bin:/bin"),
            lang: variable("LANG", "C.UTF-8"),
            machine_env: Vec::new(),
            shell: PathBuf::from("/bin/sh"),
            patience: Duration::from_secs(2),
            removal_grace: Duration::from_secs(2),
            launch_timeout: Duration::from_secs(30),
            compression_threads: u32::try_from(processors).unwrap_or(1),
        }
    }
}

/// Why a provider cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The state directory is not an absolute path, or not one that a worker's environment can hold.
    #[error("the state directory {} must be an absolute UTF-8 path without line breaks", path.display())]
    Path {
        /// What was given.
        path: PathBuf,
    },
    /// Another process uses it as the same instance.
    #[error(
        "the state directory {} is in use by process {holder} as instance {instance}; stop that one, or choose another \
         directory or instance",
        path.display()
    )]
    Locked {
        /// The state directory.
        path: PathBuf,
        /// The instance.
        instance: InstanceId,
        /// The other process's id, as it wrote it down.
        holder: String,
    },
    /// It cannot be read or written.
    #[error("the state directory {} cannot be used: {why}", path.display())]
    Unusable {
        /// The state directory.
        path: PathBuf,
        /// Why.
        why: String,
    },
}

/// Makes a [`ProcessProvider`].
#[derive(Debug, Clone)]
pub struct Builder {
    pub(crate) state_dir: PathBuf,
    pub(crate) instance: InstanceId,
    pub(crate) settings: Settings,
}

impl Builder {
    pub(crate) fn new(state_dir: &Path, instance: InstanceId) -> Self {
        Self { state_dir: state_dir.to_owned(), instance, settings: Settings::default() }
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

    /// Opens the state directory, made if it does not exist, locks it, and clears away what an earlier process was in
    /// the middle of. Snapshots and sandboxes that are complete stay.
    ///
    /// Blocks for the time that deleting takes; that is short unless an earlier process was killed while it deleted
    /// something large. It waits up to two seconds for an earlier provider of this process to let go.
    ///
    /// # Errors
    /// [`BuildError`] when the directory cannot be used or another process uses it.
    pub fn build(self) -> Result<ProcessProvider, BuildError> {
        ProcessProvider::open(self)
    }
}
