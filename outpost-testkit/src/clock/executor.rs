use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures::future::LocalBoxFuture;
use jiff::Timestamp;
use outpost_core::ports::Clock;

use super::virtual_clock::VirtualClock;

/// Names a task of an [`Executor`]. Never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(u64);

/// A single-threaded executor on virtual time: the same tasks with the same clock are polled in the same order, always.
///
/// Tasks are polled in the order in which they were woken. A task ends when its future is ready, or when it is
/// [dropped](Self::drop_task), which is how a crash at an await looks from inside.
pub struct Executor {
    clock: VirtualClock,
    tasks: BTreeMap<TaskId, (LocalBoxFuture<'static, ()>, Waker)>,
    ready: Ready,
    next: u64,
    /// The polls since then.
    polls: u64,
    since: Timestamp,
    limit: u64,
}

type Ready = Arc<Mutex<VecDeque<TaskId>>>;

/// What a call of [`Executor::turn`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Turn {
    /// A task was polled.
    Polled(TaskId),
    /// A task was polled and has ended.
    Finished(TaskId),
    /// No task can go on before time does.
    Stalled,
}

/// Tasks kept waking each other, or themselves, while hardly any time passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("livelock: {polls} polls until {at} in less than ten seconds")]
pub struct Livelock {
    /// The virtual time at which it happened.
    pub at: Timestamp,
    /// How many polls there were.
    pub polls: u64,
}

impl Executor {
    /// The polls within [`WINDOW`](Self::WINDOW) that are taken for a livelock unless [`with_limit`](Self::with_limit) says
    /// otherwise.
    pub const DEFAULT_LIMIT: u64 = 20_000;

    /// So much virtual time must pass before polls are counted anew: a loop that sleeps for a millisecond is a livelock, too.
    pub const WINDOW: Duration = Duration::from_secs(10);

    /// An executor without tasks.
    #[must_use]
    pub fn new(clock: VirtualClock) -> Self {
        let since = clock.now();
        Self {
            clock,
            tasks: BTreeMap::new(),
            ready: Ready::default(),
            next: 0,
            polls: 0,
            since,
            limit: Self::DEFAULT_LIMIT,
        }
    }

    /// The same with another number of polls that are a livelock.
    #[must_use]
    pub const fn with_limit(mut self, polls: u64) -> Self {
        self.limit = polls;
        self
    }

    /// Adds a task; it is polled for the first time by the next turns.
    pub fn spawn(&mut self, future: impl Future<Output = ()> + 'static) -> TaskId {
        self.next += 1;
        let id = TaskId(self.next);
        let waker = Waker::from(Arc::new(WakeUp { id, ready: self.ready.clone() }));
        self.tasks.insert(id, (Box::pin(future), waker));
        lock(&self.ready).push_back(id);
        id
    }

    /// Drops a task where it stands. Returns quietly when it has ended.
    pub fn drop_task(&mut self, id: TaskId) {
        self.tasks.remove(&id);
    }

    /// Whether a task has not ended.
    #[must_use]
    pub fn is_alive(&self, id: TaskId) -> bool {
        self.tasks.contains_key(&id)
    }

    /// Polls one task that was woken.
    ///
    /// # Errors
    /// [`Livelock`] when that has gone on for too long without time passing.
    pub fn turn(&mut self) -> Result<Turn, Livelock> {
        loop {
            let Some(id) = lock(&self.ready).pop_front() else { return Ok(Turn::Stalled) };
            let Some((future, waker)) = self.tasks.get_mut(&id) else { continue };
            self.polls += 1;
            if self.polls > self.limit {
                return Err(Livelock { at: self.clock.now(), polls: self.polls });
            }
            let waker = waker.clone();
            return Ok(match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Pending => Turn::Polled(id),
                Poll::Ready(()) => {
                    self.tasks.remove(&id);
                    Turn::Finished(id)
                }
            });
        }
    }

    /// Moves time on to the next wake-up, at most to `until`; answers the time then.
    pub fn jump(&mut self, until: Timestamp) -> Timestamp {
        let target = self.clock.next_wake().map_or(until, |wake| wake.min(until));
        self.clock.advance_to(target);
        if target >= super::later(self.since, Self::WINDOW) {
            self.since = target;
            self.polls = 0;
        }
        self.clock.now()
    }

    /// Runs the tasks until `until`, or until all have ended; `after` is called after every poll, and can stop it by
    /// answering an error.
    ///
    /// # Errors
    /// The error of `after`, or a [`Livelock`] made into one.
    pub fn drive_bounded<E: From<Livelock>>(
        &mut self,
        until: Timestamp,
        mut after: impl FnMut(&mut Self, Turn) -> Result<(), E>,
    ) -> Result<(), E> {
        loop {
            match self.turn()? {
                Turn::Stalled if self.tasks.is_empty() || self.clock.now() >= until => return Ok(()),
                Turn::Stalled => {
                    self.jump(until);
                }
                turn => after(self, turn)?,
            }
        }
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor")
            .field("clock", &self.clock)
            .field("tasks", &self.tasks.keys())
            .finish_non_exhaustive()
    }
}

struct WakeUp {
    id: TaskId,
    ready: Ready,
}

impl Wake for WakeUp {
    fn wake(self: Arc<Self>) {
        let mut ready = lock(&self.ready);
        if !ready.contains(&self.id) {
            ready.push_back(self.id);
        }
    }
}

/// Lets everybody else have a turn.
pub(crate) fn yield_once() -> impl Future<Output = ()> + Send {
    let mut yielded = false;
    poll_fn(move |context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::clock::EPOCH;

    fn in_secs(secs: i64) -> Timestamp {
        EPOCH + jiff::SignedDuration::from_secs(secs)
    }

    #[test]
    fn an_hour_passes_at_once_and_in_order() {
        let clock = VirtualClock::new();
        let log = Arc::new(Mutex::new(Vec::new()));
        let mut executor = Executor::new(clock.clone());
        for period in [600_u64, 1000] {
            let (clock, log) = (clock.clone(), log.clone());
            executor.spawn(async move {
                for _ in 0..3 {
                    clock.sleep(Duration::from_secs(period)).await;
                    lock(&log).push((clock.now().as_second() - EPOCH.as_second(), period));
                }
            });
        }
        executor.drive_bounded(in_secs(3600), |_, _| Ok::<_, Livelock>(())).unwrap();
        assert_eq!(
            *lock(&log),
            [(600, 600), (1000, 1000), (1200, 600), (1800, 600), (2000, 1000), (3000, 1000)]
        );
        assert_eq!(clock.now(), in_secs(3000), "it ends with its last task");
    }

    #[test]
    fn tasks_that_wake_each_other_for_ever_are_a_livelock() {
        let mut executor = Executor::new(VirtualClock::new()).with_limit(1000);
        executor.spawn(async {
            loop {
                yield_once().await;
            }
        });
        let end = executor.drive_bounded(in_secs(1), |_, _| Ok::<_, Livelock>(()));
        assert_eq!(end, Err(Livelock { at: EPOCH, polls: 1001 }));
    }

    #[test]
    fn a_loop_that_sleeps_for_a_moment_is_a_livelock_too() {
        let clock = VirtualClock::new();
        let mut executor = Executor::new(clock.clone()).with_limit(1000);
        executor.spawn(async move {
            loop {
                clock.sleep(Duration::from_millis(1)).await;
            }
        });
        assert!(executor.drive_bounded(in_secs(60), |_, _| Ok::<_, Livelock>(())).is_err());
    }

    #[test]
    fn a_dropped_task_never_goes_on() {
        let clock = VirtualClock::new();
        let mut executor = Executor::new(clock.clone());
        let reached = Arc::new(Mutex::new(false));
        let flag = reached.clone();
        let id = executor.spawn(async move {
            clock.sleep(Duration::from_secs(1)).await;
            *lock(&flag) = true;
        });
        while executor.turn().unwrap() != Turn::Stalled {}
        executor.drop_task(id);
        executor.drive_bounded(in_secs(5), |_, _| Ok::<_, Livelock>(())).unwrap();
        assert!(!*lock(&reached));
        assert!(!executor.is_alive(id));
    }
}
