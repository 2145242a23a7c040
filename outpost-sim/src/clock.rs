use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

/// Where a simulator takes its time from.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// Any function.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The system's time.
    #[must_use]
    pub fn system() -> Self {
        Self::new(Timestamp::now)
    }

    /// `start` plus the time that tokio's clock has moved since this call, so that a paused runtime
    /// moves the simulator too. Needs a running tokio runtime.
    #[must_use]
    pub fn tokio(start: Timestamp) -> Self {
        let base = tokio::time::Instant::now();
        Self::new(move || start + base.elapsed())
    }

    /// What time it is.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.now()).finish()
    }
}
