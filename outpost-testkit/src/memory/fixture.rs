use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use outpost_core::model::{InstanceId, SandboxId, SnapshotRef, WorkerProgram};
use outpost_core::ports::SandboxProvider;

use super::backend::MemoryBackend;
use super::options::BackendOptions;
use crate::clock::VirtualClock;
use crate::conformance::provider::{Damage, Hindrance, ProviderFixture};
use crate::conformance::{Skip, Task};

/// A fixture over a [`MemoryBackend`]. Its pauses move virtual time on by 50 ms.
#[derive(Debug, Clone)]
pub struct MemoryFixture {
    /// The time.
    pub clock: VirtualClock,
    /// The backend.
    pub backend: MemoryBackend,
}

impl MemoryFixture {
    /// Over an empty backend with the default options.
    #[must_use]
    pub fn new() -> Self {
        Self::with(BackendOptions::default())
    }

    /// Over an empty backend.
    #[must_use]
    pub fn with(options: BackendOptions) -> Self {
        let clock = VirtualClock::new();
        let backend = MemoryBackend::new(clock.clone(), options);
        Self { clock, backend }
    }

    /// The instance under test.
    ///
    /// # Panics
    /// Never: the name is valid.
    #[must_use]
    pub fn instance() -> InstanceId {
        InstanceId::new("ours").expect("a valid name")
    }

    /// The other one.
    ///
    /// # Panics
    /// Never: the name is valid.
    #[must_use]
    pub fn neighbour() -> InstanceId {
        InstanceId::new("theirs").expect("a valid name")
    }
}

impl Default for MemoryFixture {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl ProviderFixture for MemoryFixture {
    async fn open(&self) -> Arc<dyn SandboxProvider> {
        Arc::new(self.backend.provider(Self::instance()))
    }

    async fn open_neighbour(&self) -> Result<Arc<dyn SandboxProvider>, Skip> {
        Ok(Arc::new(self.backend.provider(Self::neighbour())))
    }

    async fn program(&self, task: &Task) -> WorkerProgram {
        self.backend.program(task)
    }

    async fn pause(&self) {
        self.clock.advance(Duration::from_millis(50));
    }

    async fn kill_worker(&self, id: &SandboxId) -> Result<(), Skip> {
        self.backend.kill_worker(&Self::instance(), id);
        Ok(())
    }

    async fn processes(&self, mark: &str) -> Result<usize, Skip> {
        Ok(self.backend.count_processes(mark))
    }

    async fn search(&self, needle: &str) -> Result<Vec<String>, Skip> {
        Ok(self.backend.search(needle))
    }

    async fn leftovers(&self, id: &SandboxId) -> Result<Vec<String>, Skip> {
        Ok(self.backend.debris(&Self::instance(), id))
    }

    async fn damage(&self, snapshot: &SnapshotRef, damage: Damage) -> Result<(), Skip> {
        match damage {
            Damage::Missing => self.backend.lose_snapshot(snapshot),
            Damage::Corrupt => self.backend.corrupt_snapshot(snapshot),
        }
        Ok(())
    }

    async fn hinder(&self, what: Hindrance) -> Result<(), Skip> {
        self.backend.hinder(what);
        Ok(())
    }

    async fn heal(&self) {
        self.backend.heal();
    }

    async fn plant_console(&self, id: &SandboxId) -> Result<(), Skip> {
        self.backend.plant_console(&Self::instance(), id);
        Ok(())
    }

    fn network_probe(&self) -> Result<String, Skip> {
        // Tasks are interpreted here, and know by themselves.
        Ok("true".to_owned())
    }
}
