//! The control interface: what a test or a demo does to a simulator.
//!
//! One list of operations, [`Op`], and one trait, [`Control`]: [`Sim`](crate::Sim) carries an operation
//! out in process, [`ControlClient`] sends it to the control listener. [`ControlExt`] gives every
//! operation a typed method on both.

mod client;
mod ext;
mod ops;
mod views;

pub use client::ControlClient;
pub use ext::ControlExt;
pub use ops::{Checksums, Op, Settings};
pub use views::{RowView, WorkerView};

use serde_json::Value;

use crate::model::Refusal;

/// Something that carries operations out.
pub trait Control {
    /// Carries one out and answers with its JSON result.
    ///
    /// # Errors
    ///
    /// [`ControlError`] when the operation names a session that never was, or did not arrive.
    fn call(&self, op: Op) -> Result<Value, ControlError>;
}

/// Why an operation was not carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The simulator refuses it.
    #[error("simulator refuses: {0}")]
    Refused(String),
    /// The control listener could not be reached or answered nonsense.
    #[error("control listener: {0}")]
    Unreachable(String),
}

impl From<Refusal> for ControlError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal.to_string())
    }
}
