use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use outpost_core::ports::Clock;

/// When virtual time begins unless told otherwise: 2026-12-01T00:00:00Z, so that simulated times look like times.
pub const EPOCH: Timestamp = Timestamp::constant(1_796_083_200, 0);

/// A clock that stands still until [`advance_to`](Self::advance_to) moves it. Clones share one time.
///
/// ```
/// use std::time::Duration;
/// use outpost_core::ports::Clock;
/// use outpost_testkit::clock::VirtualClock;
///
/// let clock = VirtualClock::new();
/// let before = clock.now();
/// clock.advance(Duration::from_secs(60));
/// assert_eq!(clock.now().as_second() - before.as_second(), 60);
/// ```
#[derive(Debug, Clone)]
pub struct VirtualClock(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    now: Timestamp,
    /// By the time to wake and the order of falling asleep, so that equal times wake in order.
    sleepers: BTreeMap<(Timestamp, u64), Waker>,
    next: u64,
}

impl VirtualClock {
    /// A clock that stands at [`EPOCH`].
    #[must_use]
    pub fn new() -> Self {
        Self::at(EPOCH)
    }

    /// A clock that stands at `now`.
    #[must_use]
    pub fn at(now: Timestamp) -> Self {
        Self(Arc::new(Mutex::new(State { now, sleepers: BTreeMap::new(), next: 0 })))
    }

    /// Moves time on by `pause` and wakes whom that concerns.
    pub fn advance(&self, pause: Duration) {
        let target = later(self.now(), pause);
        self.advance_to(target);
    }

    /// Moves time on to `target` (never back), and wakes the sleepers up to there in the order of their times.
    pub fn advance_to(&self, target: Timestamp) {
        let mut state = self.lock();
        state.now = state.now.max(target);
        let after = (state.now, u64::MAX);
        let later = state.sleepers.split_off(&after);
        let due = std::mem::replace(&mut state.sleepers, later);
        drop(state);
        due.into_values().for_each(Waker::wake);
    }

    /// When the next sleeper wakes; `None` when nobody sleeps.
    #[must_use]
    pub fn next_wake(&self) -> Option<Timestamp> {
        self.lock().sleepers.keys().next().map(|(at, _)| *at)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for VirtualClock {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        self.lock().now
    }

    async fn sleep(&self, pause: Duration) {
        Sleep { until: later(self.now(), pause), clock: self.clone(), ticket: None }.await;
    }
}

/// A sleeper. Dropping it takes it off the clock, so that nobody jumps to a time that no one waits for.
struct Sleep {
    until: Timestamp,
    clock: VirtualClock,
    ticket: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let mut state = this.clock.lock();
        if state.now >= this.until {
            return Poll::Ready(());
        }
        let ticket = *this.ticket.get_or_insert_with(|| {
            state.next += 1;
            state.next
        });
        state.sleepers.insert((this.until, ticket), context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.clock.lock().sleepers.remove(&(self.until, ticket));
        }
    }
}

/// `pause` after `now`; the end of time when that is too far.
pub(crate) fn later(now: Timestamp, pause: Duration) -> Timestamp {
    SignedDuration::try_from(pause)
        .ok()
        .and_then(|pause| now.checked_add(pause).ok())
        .unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::clock::{Executor, Turn};

    #[test]
    fn sleepers_wake_in_the_order_of_their_times() {
        let clock = VirtualClock::new();
        let mut executor = Executor::new(clock.clone());
        let woken = Arc::new(Mutex::new(Vec::new()));
        for secs in [3, 1, 2] {
            let (clock, woken) = (clock.clone(), woken.clone());
            executor.spawn(async move {
                clock.sleep(Duration::from_secs(secs)).await;
                woken.lock().unwrap().push(secs);
            });
        }
        while executor.turn().unwrap() != Turn::Stalled {}
        clock.advance(Duration::from_secs(10));
        while executor.turn().unwrap() != Turn::Stalled {}
        assert_eq!(*woken.lock().unwrap(), [1, 2, 3]);
    }

    #[test]
    fn a_dropped_sleeper_leaves_the_clock() {
        let clock = VirtualClock::new();
        let mut sleeping = clock.sleep(Duration::from_secs(5));
        assert!((&mut sleeping).now_or_never().is_none());
        assert!(clock.next_wake().is_some());
        drop(sleeping);
        assert_eq!(clock.next_wake(), None);
    }

    #[test]
    fn a_sleep_of_nothing_ends_at_once() {
        assert!(VirtualClock::new().sleep(Duration::ZERO).now_or_never().is_some());
    }
}
