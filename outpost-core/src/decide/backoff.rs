//! When a session that failed is tried again.

use std::time::Duration;

use jiff::Timestamp;

use super::time::after;
use crate::model::{Boot, InstanceId, Record, SessionId};

const FIRST: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(5 * 60);
const COOL_DOWN: Duration = Duration::from_secs(15 * 60);

/// After so many failures in a row the claim is given back, and the session cools down.
pub const GIVE_UP_AFTER: u32 = 5;

/// How a boot ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BootEnd {
    /// Devin wanted it: the session sleeps, has ended, or has left. The next start is not held back.
    Wanted,
    /// Together with the process before this one: it is nobody's failure, and forgives none.
    CutOff,
    /// By itself, although its session goes on; it had done work before.
    AfterServing,
    /// By itself, and it had done no work.
    WithoutServing,
}

impl Record {
    /// The record after `boot` is over. `jitter` is in `0.0..1.0` and spreads sessions that failed together.
    #[must_use]
    pub fn after(&self, boot: Boot, end: BootEnd, now: Timestamp, jitter: f64) -> Self {
        let mut record = self.clone();
        record.closed_boot = record.closed_boot.max(boot);
        record.newest_boot = record.newest_boot.max(boot);
        match end {
            BootEnd::Wanted => {
                record.failures = 0;
                record.retry_at = None;
            }
            BootEnd::CutOff => {}
            BootEnd::AfterServing => {
                record.failures = 0;
                record.retry_at = Some(after(now, spread(FIRST, jitter)));
            }
            BootEnd::WithoutServing => record.failed(now, jitter),
        }
        record
    }

    /// Counts one more failure and says when to try again.
    pub fn failed(&mut self, now: Timestamp, jitter: f64) {
        self.failures = self.failures.saturating_add(1);
        let pause = if self.failures >= GIVE_UP_AFTER {
            COOL_DOWN + spread(FIRST, jitter)
        } else {
            spread((FIRST * 2u32.saturating_pow(self.failures - 1)).min(LONGEST), jitter)
        };
        self.retry_at = Some(after(now, pause));
    }

    /// Whether the session has failed so often that its claim is given back.
    pub const fn given_up(&self) -> bool {
        self.failures >= GIVE_UP_AFTER
    }
}

/// In `0.0..1.0`: spreads sessions, and orchestrators, that failed together. The same failure always gives the same number,
/// so that a run can be replayed.
pub fn jitter(instance: &InstanceId, session: &SessionId, record: &Record) -> f64 {
    // FNV-1a: spreading needs no strength.
    let number = record.newest_boot.number().to_le_bytes();
    let bytes = instance.as_str().bytes().chain(session.as_str().bytes()).chain(number);
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    f64::from((hash >> 40) as u32) / f64::from(1_u32 << 24)
}

/// Between the pause and one and a half times it.
fn spread(pause: Duration, jitter: f64) -> Duration {
    pause.mul_f64(1.0 + jitter.clamp(0.0, 1.0) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::time::since;

    // lesson 24
    #[test]
    fn failures_in_a_row_are_tried_ever_more_seldom() {
        let mut record = Record::default();
        let mut pauses = Vec::new();
        for boot in 1..=7 {
            record = record.after(Boot::new(boot), BootEnd::WithoutServing, Timestamp::UNIX_EPOCH, 0.0);
            pauses.push(since(record.retry_at.unwrap(), Timestamp::UNIX_EPOCH).as_secs());
        }
        assert_eq!(pauses, [5, 10, 20, 40, 905, 905, 905]);
        assert!(record.given_up());
    }

    #[test]
    fn a_boot_that_served_resets_the_back_off() {
        let mut record = Record { failures: 4, ..Record::default() };
        record = record.after(Boot::new(1), BootEnd::AfterServing, Timestamp::UNIX_EPOCH, 0.0);
        assert_eq!(record.failures, 0);
        assert!(
            record.retry_at.is_some(),
            "a worker that crashes after a minute is not started in a tight loop"
        );
    }
}
