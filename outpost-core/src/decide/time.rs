//! Arithmetic on points in time that cannot fail.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// How long ago `earlier` was at `now`; zero when it is still to come.
pub(crate) fn since(now: Timestamp, earlier: Timestamp) -> Duration {
    now.duration_since(earlier).try_into().unwrap_or_default()
}

/// The time `pause` after `now`; the end of time when that is too far.
pub(crate) fn after(now: Timestamp, pause: Duration) -> Timestamp {
    SignedDuration::try_from(pause)
        .ok()
        .and_then(|pause| now.checked_add(pause).ok())
        .unwrap_or(Timestamp::MAX)
}

/// The time `pause` before `then`; the beginning of time when that is too far.
pub(crate) fn before(then: Timestamp, pause: Duration) -> Timestamp {
    SignedDuration::try_from(pause)
        .ok()
        .and_then(|pause| then.checked_sub(pause).ok())
        .unwrap_or(Timestamp::MIN)
}
