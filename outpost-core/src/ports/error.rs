//! One error type for everything behind a port.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

/// What went wrong behind a port, in the terms by which the planner decides.
///
/// `Display` is one line without secrets: `docker: start: no space left on device`.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    who: &'static str,
    operation: &'static str,
    message: String,
    effect: Effect,
    retry_after: Option<Duration>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// What kind of fault it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// What was named does not exist.
    NotFound,
    /// Somebody else was first, or the thing has changed meanwhile.
    Conflict,
    /// The credentials are missing, wrong, or do not allow this.
    Unauthorized,
    /// Too many calls.
    RateLimited,
    /// No room: a limit of the plan, a full disk, no memory.
    Capacity,
    /// It did not answer, or said that it cannot now.
    Unavailable,
    /// What was asked for, or what came back, makes no sense.
    Invalid,
    /// The backend cannot do this.
    Unsupported,
    /// Anything else.
    Unexpected,
}

impl ErrorKind {
    /// Every kind.
    pub const ALL: [Self; 9] = [
        Self::NotFound,
        Self::Conflict,
        Self::Unauthorized,
        Self::RateLimited,
        Self::Capacity,
        Self::Unavailable,
        Self::Invalid,
        Self::Unsupported,
        Self::Unexpected,
    ];

    /// The kind as one word, for logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::Unauthorized => "unauthorized",
            Self::RateLimited => "rate_limited",
            Self::Capacity => "capacity",
            Self::Unavailable => "unavailable",
            Self::Invalid => "invalid",
            Self::Unsupported => "unsupported",
            Self::Unexpected => "unexpected",
        }
    }
}

/// Whether a failed operation may have done its work all the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Effect {
    /// It surely did nothing.
    #[default]
    None,
    /// The answer was lost: look before you decide.
    Possible,
}

impl Error {
    /// An error of `kind` that `who` met in `operation`. The message is one lower-case line for people, without secrets
    /// and query strings, which says what to do where they can do something.
    pub fn new(
        kind: ErrorKind,
        who: &'static str,
        operation: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            who,
            operation,
            message: message.into(),
            effect: Effect::None,
            retry_after: None,
            source: None,
        }
    }

    /// The same error, whose operation may have been applied.
    #[must_use]
    pub fn may_have_been_applied(mut self) -> Self {
        self.effect = Effect::Possible;
        self
    }

    /// The same error, with the pause that the other side asked for.
    #[must_use]
    pub fn with_retry_after(mut self, pause: Option<Duration>) -> Self {
        self.retry_after = pause;
        self
    }

    /// The same error, with its cause. The cause must not hold a secret: logs print it.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What kind of fault it is.
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Who met it: a provider's name, `devin`, `store`.
    pub const fn who(&self) -> &'static str {
        self.who
    }

    /// In which operation.
    pub const fn operation(&self) -> &'static str {
        self.operation
    }

    /// Whether the operation may have been applied.
    pub const fn effect(&self) -> Effect {
        self.effect
    }

    /// The pause that the other side asked for.
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Whether the same call can succeed later without anybody changing anything.
    pub const fn is_retryable(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::RateLimited | ErrorKind::Capacity | ErrorKind::Unavailable | ErrorKind::Unexpected
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.who, self.operation, self.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}
