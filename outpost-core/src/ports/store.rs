//! The port to what must survive a restart.

use std::fmt::Debug;

use async_trait::async_trait;

use super::error::Error;
use crate::model::{Record, SessionId};

/// Keeps one small [`Record`] per session, durably.
///
/// The bullets with ids are the contract; the conformance case of the same id in `outpost-testkit` proves each.
///
/// # Cancellation
/// A dropped `put` or `delete` either happened or did not; nothing in between can be read.
#[async_trait]
pub trait SnapshotStore: Debug + Send + Sync {
    /// The record of a session.
    ///
    /// # Behavior
    /// * **K1** What was put last is what is got, also by another process after this one was killed.
    /// * **K2** A session without a record answers `None`.
    ///
    /// # Errors
    /// When it cannot be read. A record that cannot be decoded is an error, never `None`.
    async fn get(&self, session: &SessionId) -> Result<Option<Stored>, Error>;

    /// Writes a record if the stored one is still the one that `expected` names (`None` = there is none).
    ///
    /// # Behavior
    /// * **K3** Of several puts with the same expectation, exactly one succeeds.
    /// * **K4** A failed put changes nothing.
    /// * **K5** Session ids are hostile: any id can be stored, and none reaches another's record.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`](super::ErrorKind) when the stored record is another one.
    async fn put(
        &self,
        session: &SessionId,
        record: &Record,
        expected: Option<Version>,
    ) -> Result<Version, Error>;

    /// Every record.
    ///
    /// # Behavior
    /// * **K6** Complete, or an error.
    ///
    /// # Errors
    /// When any record cannot be read.
    async fn list(&self) -> Result<Vec<(SessionId, Stored)>, Error>;

    /// Deletes a record if the stored one is still the one that `expected` names.
    ///
    /// # Behavior
    /// * **K7** Deleting what does not exist is success; deleting what has changed is
    ///   [`ErrorKind::Conflict`](super::ErrorKind).
    ///
    /// # Errors
    /// When it may still exist.
    async fn delete(&self, session: &SessionId, expected: Version) -> Result<(), Error>;
}

/// Which of a record's writings: opaque, and different after every put.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Version(pub u64);

/// A record and its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// What was put.
    pub record: Record,
    /// To say which writing one has seen.
    pub version: Version,
}
