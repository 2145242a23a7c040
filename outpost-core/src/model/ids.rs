//! Names of things: sessions, outposts, acceptors, instances, boots.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Why a text cannot be an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidId {
    /// The text is empty.
    #[error("the id is empty")]
    Empty,
    /// The text is longer than an id may be.
    #[error("the id is longer than {max} bytes")]
    TooLong {
        /// The longest an id of this kind may be, in bytes.
        max: usize,
    },
    /// The text has a character that an id of this kind may not have.
    #[error("the id has a character that is not allowed: {character:?}")]
    Character {
        /// The offending character.
        character: char,
    },
}

/// Ids come from a queue that anybody in the organization may write to; this is the longest that is taken.
const MAX_QUEUE_ID_BYTES: usize = 512;

fn check_queue_id(text: &str) -> Result<(), InvalidId> {
    if text.is_empty() {
        return Err(InvalidId::Empty);
    }
    if text.len() > MAX_QUEUE_ID_BYTES {
        return Err(InvalidId::TooLong { max: MAX_QUEUE_ID_BYTES });
    }
    match text.chars().find(|c| c.is_control()) {
        Some(character) => Err(InvalidId::Character { character }),
        None => Ok(()),
    }
}

macro_rules! queue_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Takes a text that came from outside.
            ///
            /// # Errors
            /// [`InvalidId`] when it is empty, longer than 512 bytes, or has control characters.
            pub fn new(text: impl Into<String>) -> Result<Self, InvalidId> {
                let text = text.into();
                check_queue_id(&text)?;
                Ok(Self(text))
            }

            /// The id as it stands on the wire.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", self.0)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;
            fn try_from(text: String) -> Result<Self, InvalidId> {
                Self::new(text)
            }
        }

        impl std::str::FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Self::new(text)
            }
        }
    };
}

queue_id! {
    /// A Devin session, `devin-…` on the wire (where it is called a *devin*).
    ///
    /// It is hostile input: never put it into a path, a name or a command line; use
    /// [`SessionId::stable_hash`] there.
    SessionId
}

queue_id! {
    /// An outpost: a named queue of sessions, `outpost_env-…` (older ones `pool_…`).
    OutpostId
}

queue_id! {
    /// Who holds a claim on a session. Two workers never share one.
    AcceptorId
}

impl SessionId {
    /// Twenty hexadecimal digits of the id's SHA-256: the same on every host and in every version, safe in any name.
    pub fn stable_hash(&self) -> String {
        let digest = Sha256::digest(self.0.as_bytes());
        digest.iter().take(10).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// One running Outpost among those that could share a backend. It is in every name and label, so that two of them never
/// touch each other's sandboxes. Lower-case letters, digits and inner dashes, at most 32 characters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct InstanceId(String);

impl InstanceId {
    const MAX_BYTES: usize = 32;

    /// Takes a name for an instance.
    ///
    /// # Errors
    /// [`InvalidId`] when it is empty, too long, or has other characters than `a-z 0-9 -`, or begins or ends with a dash.
    pub fn new(text: impl Into<String>) -> Result<Self, InvalidId> {
        let text = text.into();
        if text.is_empty() {
            return Err(InvalidId::Empty);
        }
        if text.len() > Self::MAX_BYTES {
            return Err(InvalidId::TooLong { max: Self::MAX_BYTES });
        }
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if let Some(character) = text.chars().find(|c| !allowed(*c)) {
            return Err(InvalidId::Character { character });
        }
        if text.starts_with('-') || text.ends_with('-') {
            return Err(InvalidId::Character { character: '-' });
        }
        Ok(Self(text))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The acceptor with which this instance claims a session: `<instance>-<hash of session>`.
    pub fn acceptor(&self, session: &SessionId) -> AcceptorId {
        AcceptorId(format!("{}-{}", self.0, session.stable_hash()))
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl From<InstanceId> for String {
    fn from(id: InstanceId) -> Self {
        id.0
    }
}

impl TryFrom<String> for InstanceId {
    type Error = InvalidId;
    fn try_from(text: String) -> Result<Self, InvalidId> {
        Self::new(text)
    }
}

impl std::str::FromStr for InstanceId {
    type Err = InvalidId;
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        Self::new(text)
    }
}

/// Which sandbox of its session a sandbox is, counted from 1. It only grows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Boot(u64);

impl Boot {
    /// Before the first boot.
    pub const NONE: Self = Self(0);

    /// The boot of this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The boot after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The boot's number.
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Boot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A sandbox's identity: the n-th sandbox of a session.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SandboxId {
    /// The session it serves.
    pub session: SessionId,
    /// Which of the session's sandboxes it is.
    pub boot: Boot,
}

impl SandboxId {
    /// The `boot`-th sandbox of `session`.
    pub const fn new(session: SessionId, boot: Boot) -> Self {
        Self { session, boot }
    }

    /// A name for it that any backend takes: `outpost-<instance>-<hash of session>-<boot>`, at most 85 characters of
    /// `a-z 0-9 -`. Starting a boot twice asks for one name twice, and a boot that is being removed blocks no other.
    pub fn name(&self, instance: &InstanceId) -> String {
        format!("outpost-{instance}-{}-{}", self.session.stable_hash(), self.boot)
    }
}

impl fmt::Display for SandboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (boot {})", self.session, self.boot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_session_id_gives_a_harmless_name() {
        let session = SessionId::new("../../etc/passwd; rm -rf $HOME 🚀").unwrap();
        let name = SandboxId::new(session, Boot::new(3)).name(&InstanceId::new("desk-1").unwrap());
        assert!(name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'), "{name}");
        assert!(name.ends_with("-3"));
    }

    #[test]
    fn the_hash_of_a_session_never_changes() {
        // Names on disk and in labels depend on it across versions.
        assert_eq!(SessionId::new("devin-1").unwrap().stable_hash(), "8fb25e4dc273d1f733bb");
    }

    #[test]
    fn an_empty_long_or_control_id_is_refused() {
        assert_eq!(SessionId::new(""), Err(InvalidId::Empty));
        assert_eq!(SessionId::new("a\nb"), Err(InvalidId::Character { character: '\n' }));
        assert_eq!(SessionId::new("x".repeat(513)), Err(InvalidId::TooLong { max: 512 }));
    }

    #[test]
    fn an_instance_is_a_label_of_dns() {
        assert!(InstanceId::new("desk-1").is_ok());
        for bad in ["", "-a", "a-", "A", "a_b", "a/b"] {
            assert!(InstanceId::new(bad).is_err(), "{bad}");
        }
    }
}
