use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use outpost_core::model::{SandboxId, SnapshotRef, WorkerProgram};
use outpost_core::ports::SandboxProvider;

use crate::conformance::run::Skips;
use crate::conformance::{Skip, Task};

/// The connect token with which the suite's workers are started; it must not show up anywhere.
pub const SUITE_TOKEN: &str = "sentinel-Zq7-connect-token-of-the-suite";

/// One backend, with nothing on it, and the ways into it that the suite needs. Each case gets a fixture of its own; what
/// is left on the backend when the fixture is dropped is the fixture's to remove.
///
/// Hooks without which a case still proves something answer a [`Skip`] by default; a case that depends on one of them is
/// then skipped, and the reason is printed.
#[async_trait]
pub trait ProviderFixture: Send + Sync {
    /// A provider of the instance under test. Every call makes another object over the same backend.
    async fn open(&self) -> Arc<dyn SandboxProvider>;

    /// The provider after its process died and was started again: `old` is gone, and so is all memory of it.
    async fn restart(&self, old: Arc<dyn SandboxProvider>) -> Arc<dyn SandboxProvider> {
        drop(old);
        self.open().await
    }

    /// A provider of another instance on the same backend, at the same time.
    async fn open_neighbour(&self) -> Result<Arc<dyn SandboxProvider>, Skip> {
        Err(Skip::because("the fixture has no second instance"))
    }

    /// A program that does `task` in the directory in which workers start, such as a file with [`Task::to_sh`] in it. Several
    /// programs are in use at the same time.
    async fn program(&self, task: &Task) -> WorkerProgram;

    /// Lets a little time pass (about 20 ms where time is real). Conditions are looked at again after each.
    async fn pause(&self) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    /// How many pauses a condition is waited for.
    fn patience(&self) -> u32 {
        1500
    }

    /// Why a case is not played at all; `None` = it is.
    fn skip(&self, case: &str) -> Option<String> {
        let _ = case;
        None
    }

    /// The grace that a worker has when the suite ends it.
    fn grace(&self) -> Duration {
        Duration::from_millis(300)
    }

    /// Kills the worker of a sandbox with KILL, behind the provider's back.
    async fn kill_worker(&self, id: &SandboxId) -> Result<(), Skip> {
        let _ = id;
        Err(Skip::because("the fixture cannot kill a worker"))
    }

    /// How many live processes of the backend have `mark` in their command line.
    async fn processes(&self, mark: &str) -> Result<usize, Skip> {
        let _ = mark;
        Err(Skip::because("the fixture cannot see processes"))
    }

    /// Where, of all that the backend shows or keeps (arguments, labels, images, logs, disks, saved forms, but not the
    /// worker's own environment), `needle` stands; one line each, for people.
    async fn search(&self, needle: &str) -> Result<Vec<String>, Skip> {
        let _ = needle;
        Err(Skip::because("the fixture cannot search the backend"))
    }

    /// What the backend still holds of a sandbox, apart from saved forms: directories, volumes, networks; one line each.
    async fn leftovers(&self, id: &SandboxId) -> Result<Vec<String>, Skip> {
        let _ = id;
        Err(Skip::because("the fixture cannot see leftovers"))
    }

    /// Damages the stored form of a snapshot, behind the provider's back.
    async fn damage(&self, snapshot: &SnapshotRef, damage: Damage) -> Result<(), Skip> {
        let _ = (snapshot, damage);
        Err(Skip::because("the fixture cannot damage a snapshot"))
    }

    /// Makes an operation impossible for the provider until [`heal`](Self::heal): a full disk, a missing right, an engine that
    /// answers 500.
    async fn hinder(&self, what: Hindrance) -> Result<(), Skip> {
        let _ = what;
        Err(Skip::because("the fixture cannot hinder the provider"))
    }

    /// Ends every hindrance.
    async fn heal(&self) {}

    /// Puts a sandbox of the same instance but of another role on the backend, for the session of `id`.
    async fn plant_console(&self, id: &SandboxId) -> Result<(), Skip> {
        let _ = id;
        Err(Skip::because("the fixture has no other roles"))
    }

    /// More names of variables that the provider's machine gives a worker than `HOME USER LOGNAME PATH TMPDIR LANG` and those
    /// that Devin documents.
    fn machine_variables(&self) -> Vec<String> {
        Vec::new()
    }

    /// A shell command that succeeds in a sandbox when the outside can be reached.
    fn network_probe(&self) -> Result<String, Skip> {
        Err(Skip::because("the fixture has no probe for the network"))
    }
}

/// How a snapshot's stored form is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// It is gone.
    Missing,
    /// It is there and cannot be read.
    Corrupt,
}

/// What is made impossible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hindrance {
    /// A part of what is listed cannot be read.
    List,
    /// Sandboxes cannot be made, or their workers cannot be started.
    Start,
    /// Snapshots cannot be written.
    Save,
}

impl Skips for dyn ProviderFixture {
    fn skips(&self, case: &str) -> Option<String> {
        self.skip(case)
    }
}
