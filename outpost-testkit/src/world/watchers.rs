use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// Those who wait for a change of the queue.
#[derive(Debug, Clone, Default)]
pub(super) struct Watchers(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    version: u64,
    waiting: Vec<Waker>,
}

impl Watchers {
    pub(super) fn version(&self) -> u64 {
        self.lock().version
    }

    pub(super) fn wake(&self) {
        let mut state = self.lock();
        state.version += 1;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Waits until there is something newer than `version`.
    pub(super) fn newer(&self, version: u64) -> impl Future<Output = ()> + Send {
        let watchers = self.clone();
        poll_fn(move |context| {
            let mut state = watchers.lock();
            if state.version > version {
                return Poll::Ready(());
            }
            if !state.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                state.waiting.push(context.waker().clone());
            }
            Poll::Pending
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
