//! Work that is done once for all who ask for it.

use std::collections::HashMap;
use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use outpost_core::model::WorkerProgram;
use outpost_core::ports::{Error, ErrorKind};
use tokio::task::AbortHandle;

use super::shelf::OPERATION;
use crate::fault;

type Outcome = Result<WorkerProgram, Arc<Error>>;
type UnderWay = Arc<Mutex<HashMap<String, Flight>>>;

struct Flight {
    outcome: Shared<BoxFuture<'static, Outcome>>,
    task: AbortHandle,
}

/// What is under way, by name. Each is a task of its own, which goes on when nobody waits for it any more.
#[derive(Default)]
pub(super) struct Flights(UnderWay);

impl fmt::Debug for Flights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flights").finish_non_exhaustive()
    }
}

impl Flights {
    /// What `work` comes to, or what the work of this name that is under way does.
    ///
    /// # Cancellation
    /// The work goes on.
    pub(super) async fn join<W>(&self, name: &str, work: W) -> Result<WorkerProgram, Error>
    where
        W: Future<Output = Result<WorkerProgram, Error>> + Send + 'static,
    {
        self.outcome(name, work).await.map_err(|error| copy(&error))
    }

    fn outcome<W>(&self, name: &str, work: W) -> Shared<BoxFuture<'static, Outcome>>
    where
        W: Future<Output = Result<WorkerProgram, Error>> + Send + 'static,
    {
        let mut under_way = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(flight) = under_way.get(name) {
            return flight.outcome.clone();
        }
        let landing = Landing { under_way: Arc::clone(&self.0), name: name.to_owned() };
        let task = tokio::spawn(async move {
            let _landing = landing;
            work.await.map_err(Arc::new)
        });
        let handle = task.abort_handle();
        let outcome = task.map(|done| done.unwrap_or_else(|_| Err(Arc::new(stopped())))).boxed().shared();
        under_way.insert(name.to_owned(), Flight { outcome: outcome.clone(), task: handle });
        outcome
    }

    /// Ends all of it.
    pub(super) fn stop(&self) {
        // A task that ends takes the lock.
        let flights = mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for flight in flights.into_values() {
            flight.task.abort();
        }
    }
}

/// Whatever ends the work: the next who asks begins anew.
struct Landing {
    under_way: UnderWay,
    name: String,
}

impl Drop for Landing {
    fn drop(&mut self) {
        let flight = self.under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.name);
        drop(flight);
    }
}

fn stopped() -> Error {
    Error::new(ErrorKind::Unexpected, fault::WHO, OPERATION, "it was stopped before its end")
}

/// The same error for each who waited.
fn copy(error: &Error) -> Error {
    let (who, operation, text) = (error.who(), error.operation(), error.to_string());
    let message = text.strip_prefix(&format!("{who}: {operation}: ")).unwrap_or(&text);
    Error::new(error.kind(), who, operation, message).with_retry_after(error.retry_after())
}
