//! The port to the worker's executable.

use std::fmt::Debug;

use async_trait::async_trait;

use super::error::Error;
use crate::model::WorkerProgram;

/// Finds the executable that runs in a sandbox. It is asked before a session is claimed, so that a slow download holds no
/// claim.
#[async_trait]
pub trait WorkerPrograms: Debug + Send + Sync {
    /// The executable of the version that a session pins; `None` = the newest.
    ///
    /// # Errors
    /// When it cannot be had, or its checksum is wrong.
    async fn resolve(&self, pinned: Option<&str>) -> Result<WorkerProgram, Error>;
}

/// The same executable for every session.
#[derive(Debug, Clone)]
pub struct FixedProgram(pub WorkerProgram);

#[async_trait]
impl WorkerPrograms for FixedProgram {
    async fn resolve(&self, _pinned: Option<&str>) -> Result<WorkerProgram, Error> {
        Ok(self.0.clone())
    }
}
