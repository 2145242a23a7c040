use std::time::Duration;

use outpost_core::ports::{AfterSave, Support};

/// What a [`MemoryBackend`](super::MemoryBackend) can do, and how long it takes for it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackendOptions {
    /// From the start of a sandbox until its worker runs; until then it is `Starting`.
    pub start_takes: Duration,
    /// From the first ask for a save until it is done; until then the answer is *in progress*.
    pub save_takes: Duration,
    /// The same for a removal; until then the sandbox is `Stopping`.
    pub remove_takes: Duration,
    /// From TERM until a worker that heeds it is gone.
    pub term_takes: Duration,
    /// The longest that a sandbox lives from its start.
    pub lifetime_limit: Option<Duration>,
    /// The backend ends a sandbox this long after its start or its last extension.
    pub time_to_live: Option<Duration>,
    /// What becomes of a sandbox whose time is over.
    pub expiry: Expiry,
    /// Whether network policies are enforced.
    pub network_policy: Support,
    /// Whether snapshots can be deleted.
    pub delete_snapshots: Support,
    /// What becomes of a sandbox that was saved.
    pub after_save: AfterSave,
}

/// What becomes of a sandbox whose time is over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Expiry {
    /// Its worker is killed and its disk stays.
    #[default]
    Exits,
    /// It is gone, with its disk.
    Vanishes,
    /// It becomes a snapshot that is noted as forced.
    Snapshots,
}

impl Default for BackendOptions {
    /// Quick, without limits, and able to do everything.
    fn default() -> Self {
        Self {
            start_takes: Duration::from_millis(500),
            save_takes: Duration::ZERO,
            remove_takes: Duration::ZERO,
            term_takes: Duration::ZERO,
            lifetime_limit: None,
            time_to_live: None,
            expiry: Expiry::Exits,
            network_policy: Support::Yes,
            delete_snapshots: Support::Yes,
            after_save: AfterSave::Remains,
        }
    }
}
