//! The system's clock, for tokio.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use outpost_core::ports::Clock;

/// The wall clock of this machine, and tokio's timer. Sleeping needs a tokio runtime.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

#[async_trait]
impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    async fn sleep(&self, pause: Duration) {
        tokio::time::sleep(pause).await;
    }
}
