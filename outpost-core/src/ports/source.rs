//! The port to what Devin wants.

use std::fmt::Debug;

use async_trait::async_trait;
use futures::stream::BoxStream;
use jiff::Timestamp;
use secrecy::SecretString;

use super::error::Error;
use crate::model::{AcceptorId, Session, SessionId};

/// A queue of sessions. `outpost-devin-api` implements it for Devin's fleet API; an embedder can feed sessions from
/// elsewhere.
///
/// Only rows of the source's own outpost come out of it: others that the queue answers with are dropped and counted.
#[async_trait]
pub trait SessionSource: Debug + Send + Sync {
    /// Every session of the outpost.
    ///
    /// # Behavior
    /// * Complete, or an error; a session comes once, in its latest state.
    ///
    /// # Errors
    /// When any part of the list cannot be had.
    async fn list(&self) -> Result<Listing, Error>;

    /// Changes as they happen, from where the last complete list ended. The stream never ends by itself: connections are
    /// renewed behind it, with back-off. Taking the next item says that the one before was handled; only then does its
    /// position count as seen.
    fn watch(&self, from: Option<Cursor>) -> BoxStream<'_, WatchEvent>;

    /// One session; `None` when the queue says that it does not exist.
    ///
    /// # Errors
    /// When the queue did not say.
    async fn get(&self, session: &SessionId) -> Result<Option<Session>, Error>;

    /// Claims a session. The answer was checked: it names this session, this outpost and this acceptor, and has a token and
    /// a gateway.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`](super::ErrorKind) when another has it; [`ErrorKind::NotFound`](super::ErrorKind) when it does not
    /// exist. *May have been applied* when it may be claimed all the same.
    async fn claim(&self, session: &SessionId, acceptor: &AcceptorId) -> Result<Claimed, Error>;

    /// Renews our claim, and answers the row as it is afterwards.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`](super::ErrorKind) when another has it; [`ErrorKind::NotFound`](super::ErrorKind) when the session does
    /// not exist.
    async fn renew(&self, session: &SessionId, acceptor: &AcceptorId) -> Result<Session, Error>;

    /// Gives a claim back. That it is not ours (409) or that the session does not exist (404) is success.
    ///
    /// # Errors
    /// When it may still be ours.
    async fn release(&self, session: &SessionId, acceptor: &AcceptorId) -> Result<(), Error>;
}

/// A position in a queue's history. Opaque.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor(pub String);

/// Every session of an outpost.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listing {
    /// The sessions, each once.
    pub sessions: Vec<Session>,
    /// Where a watch can begin.
    pub cursor: Option<Cursor>,
}

impl Listing {
    /// A complete list.
    pub const fn new(sessions: Vec<Session>, cursor: Option<Cursor>) -> Self {
        Self { sessions, cursor }
    }
}

/// What a watch delivers.
#[derive(Debug)]
#[non_exhaustive]
pub enum WatchEvent {
    /// A session is new or has changed; its row.
    Changed(Box<Session>),
    /// A session's row has left the queue. That does not mean that it has terminated.
    Deleted(SessionId),
    /// Changes may have been missed: list again.
    ListAgain,
    /// The connection failed and is being renewed. For logs and metrics only.
    Disrupted(Error),
}

/// A successful claim.
#[derive(Debug, Clone)]
pub struct Claimed {
    /// The row as the claim answered it.
    pub session: Session,
    /// Until when the claim holds unless renewed; `None` when the queue did not say.
    pub deadline: Option<Timestamp>,
    /// What the worker shows at the gateway.
    pub connect_token: SecretString,
    /// Where the worker connects to.
    pub gateway_url: String,
}
