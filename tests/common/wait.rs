//! Waiting for conditions, with a bound.

use std::time::{Duration, Instant};

/// No condition takes this long unless something is broken, however busy the machine is.
pub(crate) const BOUND: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);

/// Waits until `holds`.
///
/// # Panics
/// When it does not within [`BOUND`].
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    until_some(what, || holds().then_some(()));
}

/// Waits until there is something.
///
/// # Panics
/// When there is nothing within [`BOUND`].
#[track_caller]
pub(crate) fn until_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + BOUND;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {BOUND:?} in vain until {what}");
        std::thread::sleep(LOOK);
    }
}
