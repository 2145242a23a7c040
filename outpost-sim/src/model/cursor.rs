use std::fmt;

use jiff::Timestamp;

use super::Refusal;

/// A place in the queue: an encoded timestamp, meaning "at or after".
///
/// Opaque to clients. Ordered as time is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor(pub(crate) Timestamp);

const MARK: &str = "c1";

impl Cursor {
    /// The cursor that stands for `at`, to the microsecond.
    #[must_use]
    pub fn at(at: Timestamp) -> Self {
        Self(at)
    }

    /// Reads a cursor that [`Display`](fmt::Display) wrote.
    ///
    /// # Errors
    ///
    /// [`Refusal::BadCursor`] when it was not.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let digits = text.strip_prefix(MARK).ok_or(Refusal::BadCursor)?;
        let micros = i64::from_str_radix(digits, 16).map_err(|_| Refusal::BadCursor)?;
        let at = Timestamp::from_microsecond(micros).map_err(|_| Refusal::BadCursor)?;
        Ok(Self(at))
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{MARK}{:x}", self.0.as_microsecond().max(0))
    }
}
