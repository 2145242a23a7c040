use std::fmt;

use outpost_core::ports::Error;

/// Why a fixture cannot play a case.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Skip(String);

impl Skip {
    /// For this reason, in words for people.
    pub fn because(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

/// Why a case did not pass.
#[derive(Debug)]
pub enum Verdict {
    /// It was not played.
    Skipped(Skip),
    /// The implementation broke its contract.
    Failed(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Skipped(skip) => write!(f, "skipped: {skip}"),
            Self::Failed(why) => f.write_str(why),
        }
    }
}

impl From<Skip> for Verdict {
    fn from(skip: Skip) -> Self {
        Self::Skipped(skip)
    }
}

impl From<Error> for Verdict {
    fn from(error: Error) -> Self {
        let mut text = format!("unexpected error ({}): {error}", error.kind().as_str());
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        Self::Failed(text)
    }
}

/// Fails the case unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::conformance::Verdict::Failed(format!($($message)+)));
        }
    };
}

/// Fails the case.
macro_rules! fail {
    ($($message:tt)+) => {
        return Err($crate::conformance::Verdict::Failed(format!($($message)+)))
    };
}

pub(crate) use {ensure, fail};
