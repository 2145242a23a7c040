use serde_json::{Value, json};

/// Why the queue refuses a call, as the client sees it.
///
/// The statuses are those of Devin's fleet API: 400 or 410 for a cursor, 404 unknown or tombstoned,
/// 409 lost claim or taken name, 422 validation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// 404: no such entry, or a tombstoned one.
    #[error("{0} not found")]
    NotFound(String),
    /// 409: the claim is another's, or the name is taken.
    #[error("{0}")]
    Conflict(String),
    /// 400: a cursor that was never issued.
    #[error("invalid cursor")]
    BadCursor,
    /// 410: a cursor from before the kept history.
    #[error("cursor expired")]
    ExpiredCursor,
    /// 422: a value out of its range.
    #[error("{field}: {message}")]
    Invalid {
        /// The parameter or body field.
        field: String,
        /// What is wrong with it.
        message: String,
    },
}

impl Refusal {
    pub(crate) fn invalid(field: &str, message: impl Into<String>) -> Self {
        Self::Invalid { field: field.to_owned(), message: message.into() }
    }

    /// The HTTP status of this refusal.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Self::NotFound(_) => 404,
            Self::Conflict(_) => 409,
            Self::BadCursor => 400,
            Self::ExpiredCursor => 410,
            Self::Invalid { .. } => 422,
        }
    }

    /// The answer's body: `{"detail": …}`, where validation errors are a list.
    #[must_use]
    pub fn body(&self) -> Value {
        match self {
            Self::Invalid { field, message } => {
                json!({ "detail": [{ "loc": [field], "msg": message, "type": "value_error" }] })
            }
            other => json!({ "detail": other.to_string() }),
        }
    }
}
