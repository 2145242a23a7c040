//! The port to time, for the shell only: the pure part takes `now` as an argument.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

/// Time as the shell sees it; virtual in tests.
#[async_trait]
pub trait Clock: Debug + Send + Sync {
    /// The time of the wall clock.
    fn now(&self) -> Timestamp;

    /// Waits.
    async fn sleep(&self, pause: Duration);
}
