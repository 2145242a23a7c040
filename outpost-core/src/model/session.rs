//! What Devin wants: sessions, as rows of an outpost's queue.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::ids::{AcceptorId, OutpostId, SessionId};

/// A session as the queue shows it.
///
/// Every field that the queue may leave out, or fill with something that this version does not know, has a value for
/// that: a row is never refused because of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Which session.
    pub id: SessionId,
    /// The queue it stands in.
    pub outpost: OutpostId,
    /// What Devin says of it.
    pub status: SessionStatus,
    /// Whether somebody holds it.
    pub phase: Phase,
    /// Who holds it, and until when. A row can carry an acceptor although its phase is `pending`; only the phase decides.
    pub claim: Option<Claim>,
    /// Whether Devin believes it to be new or resumed. Informational: restore by session id whatever it says.
    pub kind: SessionKind,
    /// The platform it wants; `None` when the row does not say.
    pub platform: Option<Platform>,
    /// What its sandbox may reach.
    pub network_policy: NetworkPolicy,
    /// The `devin-remote` it wants, a short commit; `None` = the newest.
    pub remote_binary_sha: Option<String>,
    /// When the row was made.
    pub created_at: Option<Timestamp>,
    /// When the row last changed.
    pub updated_at: Option<Timestamp>,
}

impl Session {
    /// A new, unclaimed session that waits for its first worker.
    pub fn pending(id: SessionId, outpost: OutpostId) -> Self {
        Self {
            id,
            outpost,
            status: SessionStatus::Pending,
            phase: Phase::Pending,
            claim: None,
            kind: SessionKind::New,
            platform: None,
            network_policy: NetworkPolicy::Unrestricted,
            remote_binary_sha: None,
            created_at: None,
            updated_at: None,
        }
    }

    /// Whose session it is, seen from the holder of `ours`.
    pub fn owner(&self, ours: &AcceptorId) -> Owner {
        match (&self.phase, &self.claim) {
            (Phase::Pending, _) => Owner::Nobody,
            (Phase::Claimed, Some(claim)) if claim.acceptor == *ours => Owner::Us,
            (Phase::Claimed | Phase::Unknown(_), _) => Owner::Another,
        }
    }
}

/// Whose a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Owner {
    /// Nobody holds it.
    Nobody,
    /// This orchestrator's acceptor holds it.
    Us,
    /// Another acceptor holds it, or the row does not say who.
    Another,
}

/// What Devin says of a session.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SessionStatus {
    /// Waits for a machine.
    Pending,
    /// Works. A row can read so before anybody claimed it.
    Running,
    /// Sleeps; it can wake up.
    Suspended,
    /// Over for ever.
    Terminated,
    /// Something that this version does not know, as it stood there.
    Unknown(String),
}

/// Whether somebody holds a session.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// Nobody does.
    Pending,
    /// Somebody does.
    Claimed,
    /// Something that this version does not know, as it stood there.
    Unknown(String),
}

/// Somebody's promise of a ready worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Who made it.
    pub acceptor: AcceptorId,
    /// When it ends unless renewed; `None` when the row does not say.
    pub deadline: Option<Timestamp>,
}

/// Whether Devin believes a session to be new or resumed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SessionKind {
    /// Its first machine.
    New,
    /// It had a machine before.
    Resume,
    /// Something that this version does not know, as it stood there; empty when the row does not say.
    Unknown(String),
}

/// An operating system that a session can ask for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Platform {
    /// Linux.
    Linux,
    /// macOS.
    Macos,
    /// Windows.
    Windows,
    /// Something that this version does not know, as it stood there.
    Unknown(String),
}

/// What a session's sandbox may reach.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NetworkPolicy {
    /// Everything.
    #[default]
    Unrestricted,
    /// Only these, and what the worker itself needs. An empty list allows nothing else.
    Allow(Vec<NetworkRule>),
}

/// One destination that a network policy allows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NetworkRule {
    /// A host name, perhaps with a leading `*.`.
    Hostname(String),
    /// An IPv4 network in CIDR notation.
    Ipv4(String),
    /// An IPv6 network in CIDR notation.
    Ipv6(String),
    /// Something that this version does not know, as it stood there. Whoever enforces the policy allows nothing for it.
    Unknown(String),
}
