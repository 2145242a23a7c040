use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use outpost_core::ports::Clock;

use crate::clock::{EPOCH, VirtualClock};

/// What happened in a simulated world, one line each, with its time. Clones are the same log.
#[derive(Debug, Clone)]
pub struct EventLog {
    clock: VirtualClock,
    lines: Arc<Mutex<Vec<String>>>,
}

impl EventLog {
    pub(super) fn new(clock: VirtualClock) -> Self {
        Self { clock, lines: Arc::default() }
    }

    pub(super) fn line(&self, who: impl fmt::Display, what: impl fmt::Display) {
        let line = format!("{} {who}: {what}", Offset(self.clock.now()));
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    /// The lines so far.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A virtual time, as seconds since the beginning.
struct Offset(Timestamp);

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = self.0.duration_since(EPOCH);
        write!(f, "{:>8}.{:03}", since.as_secs(), since.subsec_millis())
    }
}
