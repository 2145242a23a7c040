//! What the person who runs Outpost has decided.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ids::{AcceptorId, InstanceId, OutpostId, SessionId};
use super::session::Platform;

/// Who claims a session, and what runs in its sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkerMode {
    /// Outpost claims and runs `devin-remote serve` with the connect token: the documented spawn contract. The fleet
    /// token never enters a sandbox.
    #[default]
    DevinRemote,
    /// The Devin CLI claims, renews and serves by itself, with the fleet token, which code in the session can read.
    Cli,
    /// Outpost claims and the Devin CLI (3000.1.18 or newer) serves with the connect token. Not in the public
    /// documentation.
    CliDirect,
}

impl WorkerMode {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::DevinRemote, Self::Cli, Self::CliDirect];

    /// Whether Outpost claims, renews and releases. Exactly one party does, or the two undo each other's claims.
    pub const fn claims(self) -> bool {
        match self {
            Self::DevinRemote | Self::CliDirect => true,
            Self::Cli => false,
        }
    }
}

/// What the planner goes by. All of it is constant while an orchestrator runs.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Policy {
    /// The queue that is served.
    pub outpost: OutpostId,
    /// Which orchestrator this is.
    pub instance: InstanceId,
    /// Who claims, and what runs in a sandbox.
    pub worker_mode: WorkerMode,
    /// What the sandboxes are. Sessions that ask for another platform are left alone.
    pub platform: Platform,
    /// The most sandboxes that may exist at once.
    pub limit: usize,
    /// How often the queue is listed whatever the watch says.
    pub list_interval: Duration,
    /// How often the backend is listed when nothing else asks for it.
    pub inventory_interval: Duration,
    /// How long a worker may take to run. Devin abandons a session whose machine takes about five minutes (observed).
    pub start_timeout: Duration,
    /// How long a worker may go on after its session is known to sleep.
    pub suspend_grace: Duration,
    /// How long a worker has between TERM and KILL.
    pub stop_grace: Duration,
    /// How long a host without the snapshot of a resumed session leaves the claim to the host that has it.
    pub resume_courtesy: Duration,
    /// How long a save may take before people are told and it is asked for less often.
    pub save_timeout: Duration,
    /// How long a snapshot outlives the last sight of its session.
    pub snapshot_ttl: Duration,
}

impl Policy {
    /// The defaults, for `outpost` and as `instance`.
    pub const fn new(outpost: OutpostId, instance: InstanceId) -> Self {
        Self {
            outpost,
            instance,
            worker_mode: WorkerMode::DevinRemote,
            platform: Platform::Linux,
            limit: 10,
            list_interval: Duration::from_secs(10),
            inventory_interval: Duration::from_secs(5),
            start_timeout: Duration::from_secs(240),
            suspend_grace: Duration::from_secs(60),
            stop_grace: Duration::from_secs(30),
            resume_courtesy: Duration::from_secs(60),
            save_timeout: Duration::from_secs(30 * 60),
            snapshot_ttl: Duration::from_secs(30 * 24 * 60 * 60),
        }
    }

    /// The acceptor with which `session` is claimed, by Outpost or by the CLI in its sandbox.
    pub fn acceptor(&self, session: &SessionId) -> AcceptorId {
        self.instance.acceptor(session)
    }
}
