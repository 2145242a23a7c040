//! The words that everything else is said in: sessions, sandboxes, snapshots, records.

mod ids;
mod policy;
mod record;
mod sandbox;
mod session;
mod worker;

pub use ids::{AcceptorId, Boot, InstanceId, InvalidId, OutpostId, SandboxId, SessionId};
pub use policy::{Policy, WorkerMode};
pub use record::{PinnedSnapshot, Record, RecordedSnapshot, Standing};
pub use sandbox::{Sandbox, SandboxState, Snapshot, SnapshotPurpose, SnapshotRef, WorkerEnding};
pub use session::{
    Claim, NetworkPolicy, NetworkRule, Owner, Phase, Platform, Session, SessionKind, SessionStatus,
};
pub use worker::{
    Environment, MachineEnv, SUPERVISOR, WorkerCredentials, WorkerProgram, WorkerSettings, WorkerSpec,
};
