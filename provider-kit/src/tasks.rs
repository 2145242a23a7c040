//! Work that outlives the call that began it.

use std::collections::HashMap;
use std::fmt::Debug;
use std::future::Future;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use outpost_core::ports::ErrorKind;

use crate::Fault;

/// Says to running work that nobody wants it any more.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Says it.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was said.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Whether to go on.
    ///
    /// # Errors
    /// A conflict, once it was cancelled.
    pub fn check(&self) -> Result<(), Fault> {
        if self.is_cancelled() {
            return Err(Fault::new(
                ErrorKind::Conflict,
                "called off: its sandbox is being removed, or Outpost ends",
            ));
        }
        Ok(())
    }
}

type Outcome<T> = Shared<BoxFuture<'static, Result<T, Fault>>>;

#[derive(Debug, Clone)]
struct Running<T: Clone> {
    number: u64,
    outcome: Outcome<T>,
    cancel: Cancel,
    ended: Arc<AtomicBool>,
}

impl<T: Clone> Running<T> {
    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

/// One kind of work, at most one for each key at a time. Whoever asks while it runs waits for the same. The failure of
/// work that nobody waited for is told to whoever asks next; its success is not, because it may no longer be true: the
/// work is begun again and finds that it is done.
#[derive(Debug)]
pub struct Tasks<K, T: Clone> {
    state: Mutex<State<K, T>>,
}

#[derive(Debug)]
struct State<K, T: Clone> {
    running: HashMap<K, Running<T>>,
    count: u64,
}

impl<K, T: Clone> Default for Tasks<K, T> {
    fn default() -> Self {
        Self { state: Mutex::new(State { running: HashMap::new(), count: 0 }) }
    }
}

impl<K: Clone + Eq + Hash + Debug + Send + Sync, T: Clone + Send + Sync + 'static> Tasks<K, T> {
    /// Joins the work under `key`, or begins it. `None` = it goes on after `patience`. Dropping the future lets the work go
    /// on, too.
    pub async fn run<F>(
        &self,
        key: &K,
        patience: Option<Duration>,
        work: impl FnOnce(Cancel) -> F + Send,
    ) -> Option<Result<T, Fault>>
    where
        F: Future<Output = Result<T, Fault>> + Send + 'static,
    {
        let (number, outcome) = self.join_or_begin(key, work);
        let result = match patience {
            None => outcome.await,
            Some(patience) => tokio::time::timeout(patience, outcome).await.ok()?,
        };
        self.forget(key, number);
        Some(result)
    }

    fn join_or_begin<F>(&self, key: &K, work: impl FnOnce(Cancel) -> F) -> (u64, Outcome<T>)
    where
        F: Future<Output = Result<T, Fault>> + Send + 'static,
    {
        let mut state = self.lock();
        if let Some(running) = state.running.get(key) {
            // `now_or_never` polls the handle of a task that has ended.
            let succeeded = running.has_ended()
                && running.outcome.clone().now_or_never().is_some_and(|outcome| outcome.is_ok());
            if !succeeded {
                return (running.number, running.outcome.clone());
            }
        }
        let cancel = Cancel::default();
        let ended = Arc::new(AtomicBool::new(false));
        let (work, at_end) = (work(cancel.clone()), ended.clone());
        let handle = tokio::spawn(async move {
            let result = work.await;
            at_end.store(true, Ordering::Release);
            result
        });
        let broke =
            |error| Fault::new(ErrorKind::Unexpected, format!("a task of the provider broke: {error}"));
        let outcome =
            handle.map(move |joined| joined.unwrap_or_else(|error| Err(broke(error)))).boxed().shared();
        state.count += 1;
        let number = state.count;
        state.running.insert(key.clone(), Running { number, outcome: outcome.clone(), cancel, ended });
        (number, outcome)
    }

    /// Calls off the work under `key` and waits until it has ended.
    pub async fn cancel(&self, key: &K) {
        let Some(running) = self.lock().running.get(key).cloned() else { return };
        running.cancel.cancel();
        let _ = running.outcome.await;
        self.forget(key, running.number);
    }

    /// Calls off everything, without waiting.
    pub fn cancel_all(&self) {
        for running in self.lock().running.values() {
            running.cancel.cancel();
        }
    }

    /// The keys of what runs.
    pub fn keys(&self) -> Vec<K> {
        self.lock().running.iter().filter(|(_, it)| !it.has_ended()).map(|(key, _)| key.clone()).collect()
    }

    fn forget(&self, key: &K, number: u64) {
        let mut state = self.lock();
        if state.running.get(key).is_some_and(|running| running.number == number) {
            state.running.remove(key);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State<K, T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
