//! The port to a backend: sandboxes and snapshots.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use super::error::Error;
use crate::model::{
    NetworkPolicy, Sandbox, SandboxId, Snapshot, SnapshotPurpose, SnapshotRef, WorkerEnding, WorkerSpec,
};

/// Acts on one backend for one instance: starts, saves, lists and removes sandboxes. It holds no policy.
///
/// The bullets with ids are the contract; the conformance case of the same id in `outpost-testkit` proves each.
/// Everything here can be called again at any time, also while an earlier call for the same sandbox was cut off, and
/// nothing here blocks for minutes: slow work runs on as a task of the provider's, which answers *in progress* when it is
/// asked again.
///
/// # Cancellation
/// Dropping a returned future leaves the operation either undone, done, or running on as the provider's own task; a
/// later call of the same operation finds out and goes on from there.
#[async_trait]
pub trait SandboxProvider: Debug + Send + Sync {
    /// A short lower-case name for logs and errors, such as `docker`.
    fn name(&self) -> &'static str;

    /// What this backend can do. Constant while the provider lives.
    fn capabilities(&self) -> Capabilities;

    /// Everything of this instance and of the role `session`, in the provider's scope.
    ///
    /// # Behavior
    /// * **L1** Complete, or an error: never a part of it.
    /// * **L2** A sandbox whose `start` has answered is listed until its `remove` or its saving has answered.
    /// * **L3** A snapshot is listed when it is complete and durable, not before, and until it is deleted.
    /// * **L4** Nothing of another instance and of another role is listed.
    /// * **L5** What was started, saved or ended before this process is listed as well.
    ///
    /// # Errors
    /// When any part of the listing cannot be had.
    async fn list(&self) -> Result<Inventory, Error>;

    /// Starts the sandbox `spec.id` and the worker in it.
    ///
    /// # Behavior
    /// * **S1** Starting the same (session, boot) again, also at the same time, makes one sandbox; the later call answers
    ///   like the first. An existing one is left as it is, whatever the later `spec` says.
    /// * **S2** With `spec.restore` the disk is what that snapshot holds: contents, modes, links; without, it is fresh.
    /// * **S3** A snapshot that is missing or corrupt for good is answered as [`Started::SnapshotUnusable`], and nothing is
    ///   left behind. Anything else that goes wrong is an error.
    /// * **S4** After an error without *may have been applied* nothing is left behind.
    /// * **S5** The worker gets exactly the environment that `spec.worker` makes; no secret of it is in arguments, labels, an
    ///   image, the listing, or a later snapshot.
    /// * **S6** A second boot of a session can be started while an older one is still being removed.
    /// * **S7** A network policy that cannot be enforced is refused ([`ErrorKind::Unsupported`](super::ErrorKind)), unless a
    ///   setting of the provider's says otherwise.
    ///
    /// # Errors
    /// When the sandbox does not run or may not run. *May have been applied* when it may exist all the same.
    async fn start(&self, spec: StartSpec) -> Result<Started, Error>;

    /// Ends the worker and all of its processes, but not the sandbox: TERM, after `grace` KILL. Answers when they are gone,
    /// or [`Stopped::InProgress`] when that takes longer than the provider wants to wait.
    ///
    /// # Behavior
    /// * **W1** Afterwards the sandbox is listed as `Exited`, its disk untouched, and none of its processes is alive.
    /// * **W2** A worker that has already ended, or a sandbox that does not exist, is success.
    /// * **W3** A worker that ignores TERM is killed after the grace, and a later save notes it as forced.
    ///
    /// # Errors
    /// When it cannot be told whether the worker has ended.
    async fn stop_worker(&self, id: &SandboxId, grace: Duration) -> Result<Stopped, Error>;

    /// Saves the disk of a sandbox whose worker has ended.
    ///
    /// # Behavior
    /// * **V1** Idempotent by boot: asked again, the first one's snapshot is the answer. There is at most one snapshot a boot
    ///   and purpose.
    /// * **V2** [`Saving::Done`] means complete and durable: it survives the death of this process and, where the backend
    ///   promises as much, of the machine.
    /// * **V3** A sandbox whose worker is alive is refused ([`ErrorKind::Conflict`](super::ErrorKind)); one that does not exist and
    ///   has no snapshot is [`ErrorKind::NotFound`](super::ErrorKind).
    /// * **V4** A failed save leaves the sandbox and every earlier snapshot as they were, and nothing half-done that is listed.
    /// * **V5** No secret that `start` brought into the sandbox is in the snapshot.
    /// * **V6** Saved are contents, modes, owners where allowed, symbolic and hard links, and empty directories.
    ///
    /// # Errors
    /// When nothing was saved; asking again is right.
    async fn save(&self, id: &SandboxId, purpose: SnapshotPurpose) -> Result<Saving, Error>;

    /// Removes a sandbox, whatever runs in it. A saved form of it is never touched.
    ///
    /// # Behavior
    /// * **R1** Afterwards it is not listed, none of its processes is alive, and nothing of it occupies the backend.
    /// * **R2** Removing what does not exist is success.
    /// * **R3** Snapshots, also of this boot, stay.
    /// * **R4** It ends a start of the same boot that is still under way.
    ///
    /// # Errors
    /// When it may still exist.
    async fn remove(&self, id: &SandboxId) -> Result<Removed, Error>;

    /// Puts off the time at which the backend ends the sandbox by itself, as far as it allows, and never sooner than now.
    /// Answers the new time; `None` = never.
    ///
    /// # Behavior
    /// * **E1** The answer is what `list` shows afterwards, and never earlier than before.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](super::ErrorKind) when it does not exist.
    async fn extend(&self, id: &SandboxId) -> Result<Option<Timestamp>, Error>;

    /// Deletes a snapshot for good.
    ///
    /// # Behavior
    /// * **D1** Afterwards it is not listed and cannot be restored; deleting what does not exist is success.
    /// * **D2** Sandboxes that were restored from it live on.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](super::ErrorKind) where the backend cannot delete snapshots.
    async fn delete_snapshot(&self, snapshot: &SnapshotRef) -> Result<(), Error>;
}

/// What a backend can do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The longest that a sandbox can live from its start; `None` = for ever. It is rolled over before.
    pub lifetime_limit: Option<Duration>,
    /// Whether a network policy is enforced.
    pub network_policy: Support,
    /// Whether snapshots can be deleted.
    pub delete_snapshots: Support,
    /// What becomes of a sandbox that was saved.
    pub after_save: AfterSave,
    /// What `list` covers.
    pub scope: ListScope,
}

impl Default for Capabilities {
    fn default() -> Self {
        Self {
            lifetime_limit: None,
            network_policy: Support::No,
            delete_snapshots: Support::Yes,
            after_save: AfterSave::Remains,
            scope: ListScope::Outpost,
        }
    }
}

/// Whether a backend has a skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Support {
    /// It has.
    Yes,
    /// It has not.
    No,
}

/// What becomes of a sandbox that was saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AfterSave {
    /// It is still there, and is removed afterwards.
    Remains,
    /// It has become the snapshot.
    Consumed,
}

/// What a provider's `list` covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ListScope {
    /// Every session of the outpost.
    Outpost,
    /// One session: the provider lives beside it.
    Session,
}

/// Everything that a backend holds for one instance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inventory {
    /// The sandboxes.
    pub sandboxes: Vec<Sandbox>,
    /// The snapshots.
    pub snapshots: Vec<Snapshot>,
}

/// What to start.
#[derive(Debug, Clone)]
pub struct StartSpec {
    /// Which sandbox.
    pub id: SandboxId,
    /// The snapshot that its disk comes from; `None` = fresh.
    pub restore: Option<SnapshotRef>,
    /// What runs in it.
    pub worker: WorkerSpec,
    /// What it may reach.
    pub network_policy: NetworkPolicy,
}

/// How a start went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Started {
    /// The sandbox exists, and its worker runs or will.
    Sandbox(Sandbox),
    /// The snapshot can never be restored from; nothing was started.
    SnapshotUnusable {
        /// Why, for people.
        why: String,
    },
}

/// How far the ending of a worker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// No process of it is alive.
    Done {
        /// Whether KILL was needed.
        ending: WorkerEnding,
    },
    /// Still going on; ask again.
    InProgress,
}

/// How far a save is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Saving {
    /// Complete and durable.
    Done(Snapshot),
    /// Still going on; ask again.
    InProgress,
}

/// How far a removal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removed {
    /// Nothing is left.
    Done,
    /// Still going on; ask again.
    InProgress,
}
